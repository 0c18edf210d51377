package engine

import (
	"fmt"
	"strings"

	"demesne/runner"
	"demesne/runner/protocol"
	"demesne/runner/userns"
	"demesne/runner/wire"
)

// account turns what was asked, done and verified into the receipt. What the limits
// and the network are, it asks those.
func (s *sandbox) account(saw seen) *runner.Receipt {
	b, f, st := s.e.boot, saw.facts, saw.start
	r := &runner.Receipt{
		Version: 1, Sandbox: s.id, Kernel: s.e.kernel, Image: s.spec.Image,
		UIDMap: b.UIDMap, GIDMap: b.GIDMap, Landlock: f.LandlockABI, Seccomp: f.Seccomp,
		Network: s.net.word(),
	}
	if s.spec.Rootfs != nil {
		r.ImageDigest = s.spec.Rootfs.Digest
	}
	if b.Mode == userns.ModeMinimal {
		r.Layers = minimalLayers(b)
		r.UIDMap, r.GIDMap = nil, nil
	} else {
		r.Layers = append(saw.namespaces, idLayer(b), procLayer(f, st, s.spec), sysLayer(f, saw.sysfsErr), hostnameLayer(st))
	}
	r.Layers = append(r.Layers, s.net.layers()...)
	if s.spec.Rootfs != nil {
		r.Layers = append(r.Layers, imageLayer(s.spec.Rootfs, s.tree), userLayer(b, s.tree))
	}
	if s.spec.Lifetime == runner.Persistent {
		r.Layers = append(r.Layers, filesLayer(s))
	}
	r.Layers = append(r.Layers, landlockLayer(f, s.spec), seccompLayer(f, s.spec), privilegeLayer(f, s.spec))
	r.Limits = s.group.Receipt()
	switch {
	case b.Mode == userns.ModeMinimal:
		r.Limits = minimalLimits(r.Limits)
	case s.spec.Rootfs != nil:
		r.Limits = imageLimits(r.Limits, b, s.tree.Upper)
	}
	if s.kept.onDisk {
		r.Limits = keptLimits(r.Limits)
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

// meets compares with --require and names everything that falls short.
func meets(r *runner.Receipt, want runner.Level) error {
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
	return &wire.Error{
		Code: wire.CodeRequirement,
		Text: fmt.Sprintf("require %q: this machine gives %q: %s", want, r.Level, strings.Join(short, ", ")),
		Hint: hint,
	}
}

func idLayer(b protocol.Boot) runner.Layer {
	n := size(b.UIDMap)
	l := runner.Layer{Name: "id-map", Status: runner.Held, Detail: fmt.Sprintf("%d ids", n)}
	if n == 1 {
		l.Status, l.Why, l.Fix = runner.Degraded, b.MapWhy, b.MapFix
		l.Detail = "one id: uid 0 inside is the caller, there are no other users"
	}
	return l
}

func procLayer(f wire.GuestFacts, st started, spec runner.Spec) runner.Layer {
	l := runner.Layer{Name: "proc", Status: runner.Held, Detail: "own, masked"}
	switch {
	case st.rung.procBound:
		l.Status = runner.Degraded
		l.Detail = "the outer /proc, bound: its process list is visible"
		l.Why = errText(st.why)
		l.Fix = "run where /proc is not masked, e.g. podman run --security-opt unmask=ALL"
	case spec.Nesting:
		l.Status, l.Detail = runner.Off, "own, unmasked (--nesting)"
	case !f.ProcMasked:
		l.Status, l.Detail = runner.Degraded, "own, not masked"
	}
	return l
}

func sysLayer(f wire.GuestFacts, err error) runner.Layer {
	switch {
	case err != nil:
		return runner.Layer{Name: "sys", Status: runner.Held, Detail: "empty: a sysfs of its own was refused: " + err.Error()}
	case f.SysReadOnly:
		return runner.Layer{Name: "sys", Status: runner.Held, Detail: "own, read-only"}
	}
	return runner.Layer{Name: "sys", Status: runner.Missing, Detail: "writable"}
}

func hostnameLayer(st started) runner.Layer {
	if st.rung.noHostname {
		return runner.Layer{Name: "hostname", Status: runner.Degraded, Detail: "the outer one", Why: errText(st.why)}
	}
	return runner.Layer{Name: "hostname", Status: runner.Held, Detail: "own"}
}

func landlockLayer(f wire.GuestFacts, spec runner.Spec) runner.Layer {
	l := runner.Layer{Name: "landlock", Status: runner.Held, Detail: fmt.Sprintf("ABI %d", f.LandlockABI)}
	switch {
	case f.LandlockABI == 0:
		l.Status, l.Detail = runner.Missing, "the kernel has none"
		l.Why = "landlock_create_ruleset(2) is not supported"
		l.Fix = "boot with landlock in the lsm= list (Linux 5.13 or later)"
	case spec.Nesting && f.LandlockScope:
		l.Status, l.Detail = runner.Off, fmt.Sprintf("ABI %d, scopes only (--nesting)", f.LandlockABI)
	case spec.Nesting:
		l.Status, l.Detail = runner.Off, "none (--nesting)"
	case !f.LandlockFS:
		l.Status, l.Detail, l.Why = runner.Missing, "no filesystem rules", strings.Join(f.Problems, "; ")
	case !f.LandlockScope:
		l.Status, l.Detail = runner.Degraded, fmt.Sprintf("ABI %d: filesystem, no scopes", f.LandlockABI)
		l.Why, l.Fix = "scopes came with ABI 6", "a kernel of Linux 6.12 or later"
	default:
		l.Detail += ": filesystem, abstract unix sockets, signals"
	}
	return l
}

func seccompLayer(f wire.GuestFacts, spec runner.Spec) runner.Layer {
	if f.Seccomp == "" {
		return runner.Layer{Name: "seccomp", Status: runner.Missing, Why: strings.Join(f.Problems, "; ")}
	}
	l := runner.Layer{Name: "seccomp", Status: runner.Held, Detail: fmt.Sprintf("%d instructions", f.SeccompLen)}
	if spec.Nesting {
		l.Detail += ", namespaces, mounts and setuid bits allowed (--nesting)"
	}
	return l
}

func privilegeLayer(f wire.GuestFacts, spec runner.Spec) runner.Layer {
	l := runner.Layer{Name: "privileges", Status: runner.Held}
	allowed := uint64(0)
	var have []string
	if spec.Nesting {
		allowed |= 1 << capSetfcap
		have = append(have, "CAP_SETFCAP (--nesting)")
	}
	if spec.Rootfs != nil {
		for _, c := range rootCaps {
			allowed |= 1 << c
		}
		have = append(have, "uid 0 over the image's ids: "+strings.Join(rootCapNames, " "))
	}
	if have == nil {
		have = []string{"no capability"}
	}
	l.Detail = "no_new_privs, " + strings.Join(have, ", ")
	if !f.NoNewPrivs || f.CapEffective&^allowed != 0 {
		l.Status = runner.Missing
		l.Detail = fmt.Sprintf("no_new_privs %t, capabilities %#x", f.NoNewPrivs, f.CapEffective)
	}
	return l
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
