// Package receipt says what was really enforced: from what was asked for, done and verified while a
// sandbox was made it writes the [runner.Receipt], and says whether that is as much as was required.
//
// It is pure, but for [Namespaces], which reads /proc. A layer is claimed from what PID 1 and the
// runner verified, never from what was asked for (TestLayersFollowFacts); what holds less than it
// could, says why, and what to type. Who verifies what: package guest (Landlock, seccomp,
// capabilities, /proc and /sys as they are from inside), package limits (which mechanism holds which
// limit), netns.Gateway.Verify (the way out).
package receipt

import (
	"fmt"
	"strings"

	"demesne/rootfs"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"
	"demesne/runner/userns"
)

// Facts are what a receipt is made of.
type Facts struct {
	Sandbox string // its id
	Kernel  string // release
	Boot    api.Boot
	Spec    runner.Spec

	Guest      pid1api.Facts
	Namespaces []runner.Layer // see [Namespaces]
	Start      Start
	SysErr     error      // why /sys is empty; nil: it is a sysfs
	CoresTo    string     // the kernel's core_pattern, see core(5)
	Privileges Privileges // that were left on purpose
	Tree       *rootfs.Tree
	OnDisk     bool           // what it writes is kept
	KeptWhy    error          // why not
	Network    string         // the word for it
	Ways       []runner.Layer // of the network
	Limits     []runner.LimitReceipt
}

// Start is how PID 1 came up, where the machine refused something.
type Start struct {
	ProcBound  bool // /proc is the outer one
	NoHostname bool
	Why        error // what refused it
}

// Privileges are capabilities.
type Privileges struct {
	Set   uint64   // as in capabilities(7), 1<<CAP_…
	Words []string // for people
}

// Of writes the receipt of a sandbox.
func Of(f Facts) *runner.Receipt {
	b, image := f.Boot, f.Spec.Rootfs
	r := &runner.Receipt{
		Version: 1, Sandbox: f.Sandbox, Kernel: f.Kernel, Image: f.Spec.Image,
		UIDMap: b.UIDMap, GIDMap: b.GIDMap, Landlock: f.Guest.LandlockABI, Seccomp: f.Guest.Seccomp,
		Network: f.Network,
	}
	if image != nil {
		r.ImageDigest = image.Digest
	}
	if b.Mode == userns.ModeMinimal {
		r.Layers = minimalLayers(b)
		r.UIDMap, r.GIDMap = nil, nil
	} else {
		r.Layers = append(f.Namespaces, idLayer(b), procLayer(f.Guest, f.Start, f.Spec), sysLayer(f.Guest, f.SysErr), hostnameLayer(f.Start))
	}
	r.Layers = append(r.Layers, f.Ways...)
	if image != nil {
		r.Layers = append(r.Layers, imageLayer(image, f.Tree), userLayer(b, f.Tree))
	}
	if f.Spec.Lifetime == runner.Persistent {
		r.Layers = append(r.Layers, filesLayer(f.OnDisk, f.KeptWhy))
	}
	r.Layers = append(r.Layers, landlockLayer(f.Guest, f.Spec), seccompLayer(f.Guest, f.Spec), privilegeLayer(f.Guest, f.Privileges),
		coresLayer(f.CoresTo, f.Guest.CoreLimit))
	r.Limits = f.Limits
	switch {
	case b.Mode == userns.ModeMinimal:
		r.Limits = minimalLimits(r.Limits)
	case image != nil:
		r.Limits = imageLimits(r.Limits, f.Tree.Upper)
	}
	if f.OnDisk {
		r.Limits = keptLimits(r.Limits)
	}
	if after := f.Spec.FreezeIdle; after > 0 {
		r.Limits = append(r.Limits[:len(r.Limits):len(r.Limits)], idleLimit(after, b.Mode))
	}
	r.Level = level(r, b.Mode)
	return r
}

// level sums up: one layer or limit that is less than it could be is enough.
func level(r *runner.Receipt, mode string) runner.Level {
	if mode == userns.ModeMinimal {
		return runner.LevelMinimal
	}
	for _, l := range r.Layers {
		if l.Status == runner.Degraded || l.Status == runner.Missing {
			return runner.LevelDegraded
		}
	}
	for _, l := range r.Limits {
		if l.Status == runner.Degraded || l.Status == runner.Missing {
			return runner.LevelDegraded
		}
	}
	return runner.LevelFull
}

// Meets compares with what was required. Its error is a [ipc.Error] of CodeRequirement that names
// everything that falls short, with what to type about the first.
func Meets(r *runner.Receipt, want runner.Level) error {
	rank := map[runner.Level]int{"": 0, runner.LevelMinimal: 0, runner.LevelDegraded: 1, runner.LevelFull: 2}
	if rank[r.Level] >= rank[want] {
		return nil
	}
	var short []string
	hint := ""
	note := func(name string, st runner.Status, fix string) {
		if st == runner.Degraded || st == runner.Missing {
			short = append(short, name+" "+string(st))
			if hint == "" {
				hint = fix
			}
		}
	}
	for _, l := range r.Layers {
		note(l.Name, l.Status, l.Fix)
	}
	for _, l := range r.Limits {
		note(l.Name+" limit", l.Status, l.Fix)
	}
	return &ipc.Error{
		Code: ipc.CodeRequirement,
		Text: fmt.Sprintf("require %q: this machine gives %q: %s", want, r.Level, strings.Join(short, ", ")),
		Hint: hint,
	}
}
