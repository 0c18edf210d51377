package container

// Receipts report which restrictions were really enforced. From the request and the verified results of a sandbox's
// creation, NewReceipt writes the [runner.Receipt]. MeetsLevel compares it with the required level.
//
// These files are pure except for [Namespaces], which reads /proc. A receipt claims a layer only if PID 1 or the runner
// verified it, never because it was requested (TestLayersFollowFacts). A layer or limit that is weaker than possible
// names the reason and a fix. The verifiers are package pid1 (Landlock, seccomp, capabilities, /proc and /sys as seen
// inside), package limits (the mechanism of each limit) and netns.Gateway.Verify (egress).

import (
	"fmt"
	"slices"
	"strings"

	"demesne/rootfs"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"
	"demesne/runner/userns"
)

// ReceiptFacts are the inputs of a receipt.
type ReceiptFacts struct {
	Sandbox string // the sandbox's id
	Kernel  string // kernel release
	Boot    api.Boot
	Spec    runner.Spec

	Guest      pid1api.Facts
	Namespaces []runner.Layer // see [Namespaces]
	Start      Start
	SysErr     error      // why /sys is empty; nil: sysfs is mounted
	CoresTo    string     // the kernel's core_pattern, see core(5)
	Privileges Privileges // privileges kept on purpose
	Unplaced   error      // why a sandbox without a mount namespace has no /in, /out and /workspace
	Tree       *rootfs.Tree
	OnDisk     bool           // the sandbox's writes are kept on disk
	KeptWhy    error          // why they are not
	Network    string         // name of the network mode
	Egress     []runner.Layer // layers of the network
	Limits     []runner.LimitReceipt
}

// Start describes the start of PID 1 on a machine that refused some steps.
type Start struct {
	ProcBound  bool // /proc is a bind mount of the outer one
	NoHostname bool
	Why        error // the refusal
}

// Privileges are capabilities that a sandbox keeps.
type Privileges struct {
	Set   uint64   // bit mask as in capabilities(7), 1<<CAP_…
	Words []string // for human readers
}

// NewReceipt returns the receipt of a sandbox.
func NewReceipt(f ReceiptFacts) *runner.Receipt {
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
		places := placesLayer(f.Unplaced)
		if image != nil {
			places.Detail = "/in has copies of the inputs; what a command leaves in /out is copied to the caller's directory when it ends"
		}
		r.Layers = append(minimalLayers(b, f.Egress != nil), places)
		r.UIDMap, r.GIDMap = nil, nil
	} else {
		r.Layers = append(f.Namespaces, idLayer(b), procLayer(f.Guest, f.Start, f.Spec), sysLayer(f.Guest, f.SysErr), hostnameLayer(f.Start))
	}
	r.Layers = append(r.Layers, f.Egress...)
	if image != nil {
		r.Layers = append(r.Layers, imageLayer(image, f.Tree, b), userLayer(b, f.Tree))
	}
	if len(f.Spec.Mounts) > 0 {
		r.Layers = append(r.Layers, mountsLayer(f))
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
	if after := f.Spec.PauseIdle; after > 0 {
		r.Limits = append(r.Limits[:len(r.Limits):len(r.Limits)], idleLimit(after, b.Mode))
	}
	r.Level = level(r, b.Mode)
	return r
}

// level returns the overall level. A single degraded or missing layer or limit makes it degraded.
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

// MeetsLevel checks that the receipt reaches the required level. Its error is an [ipc.Error] with CodeRequirement.
// The error lists every layer and limit that falls short, and hints at every fix: one alone may not be enough.
func MeetsLevel(r *runner.Receipt, want runner.Level) error {
	rank := map[runner.Level]int{"": 0, runner.LevelMinimal: 0, runner.LevelDegraded: 1, runner.LevelFull: 2}
	if rank[r.Level] >= rank[want] {
		return nil
	}
	var short, fixes []string
	note := func(name string, st runner.Status, fix string) {
		if st == runner.Degraded || st == runner.Missing {
			short = append(short, name+" "+string(st))
			if fix != "" && !slices.Contains(fixes, fix) {
				fixes = append(fixes, fix)
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
		Hint: strings.Join(fixes, "; and: "),
	}
}
