package container

import (
	"errors"
	"testing"

	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"
	"demesne/runner/userns"
)

func TestLevel(t *testing.T) {
	held := runner.Layer{Name: "a", Status: runner.Held}
	for _, c := range []struct {
		name  string
		layer runner.Status
		limit runner.Status
		mode  string
		want  runner.Level
	}{
		{"all held", runner.Held, runner.Held, userns.ModeUser, runner.LevelFull},
		{"left out on request", runner.Off, runner.Held, userns.ModeUser, runner.LevelFull},
		{"a layer degraded", runner.Degraded, runner.Held, userns.ModeUser, runner.LevelDegraded},
		{"a limit degraded", runner.Held, runner.Degraded, userns.ModeUser, runner.LevelDegraded},
		{"a limit missing", runner.Held, runner.Missing, userns.ModeRoot, runner.LevelDegraded},
		{"no namespaces", runner.Held, runner.Held, userns.ModeMinimal, runner.LevelMinimal},
	} {
		r := &runner.Receipt{
			Layers: []runner.Layer{held, {Name: "b", Status: c.layer}},
			Limits: []runner.LimitReceipt{{Name: "memory", Status: c.limit}},
		}
		if got := level(r, c.mode); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestMeets(t *testing.T) {
	r := &runner.Receipt{
		Level:  runner.LevelDegraded,
		Layers: []runner.Layer{{Name: "id-map", Status: runner.Degraded, Fix: "type this"}, {Name: "proc", Status: runner.Held}},
		Limits: []runner.LimitReceipt{{Name: "memory", Status: runner.Degraded, Fix: "type this"}, {Name: "disk", Status: runner.Degraded, Fix: "and that"}},
	}
	for want, ok := range map[runner.Level]bool{"": true, runner.LevelMinimal: true, runner.LevelDegraded: true, runner.LevelFull: false} {
		err := MeetsLevel(r, want)
		if (err == nil) != ok {
			t.Errorf("require %q: %v", want, err)
		}
	}
	var e *ipc.Error
	if !errors.As(MeetsLevel(r, runner.LevelFull), &e) || e.Hint != "type this; and: and that" || e.Code != ipc.CodeRequirement {
		t.Errorf("got %+v", e)
	}
}

// TestCoresLayer (P23): RLIMIT_CORE stops core files and the program of a "|" pattern, but not a socket.
func TestCoresLayer(t *testing.T) {
	for _, c := range []struct {
		pattern string
		limit   uint64
		want    runner.Status
	}{
		{"core", 1, runner.Held}, {"core", 0, runner.Held}, {"/var/cores/%e", 1, runner.Held}, {"core", 1 << 20, runner.Missing},
		{"|/usr/lib/collect %p", 1, runner.Held}, {"|/usr/lib/collect %p", 0, runner.Missing}, {"|/usr/lib/collect %p", 1 << 20, runner.Missing},
		{"@/run/collect", 1, runner.Missing}, {"@/run/collect", 0, runner.Missing}, {"@@/run/collect", 1, runner.Missing}, {"@@/run/collect", 0, runner.Missing},
		{"", 1, runner.Degraded},
	} {
		if got := coresLayer(c.pattern, c.limit); got.Status != c.want || (got.Status == runner.Held) != (got.Why == "" && got.Fix == "") && c.pattern != "core" {
			t.Errorf("pattern %q, limit %d: %+v, want %s", c.pattern, c.limit, got, c.want)
		}
	}
}

// TestLayersFollowFacts: a layer is claimed from verified facts, never from the request.
func TestLayersFollowFacts(t *testing.T) {
	full := pid1api.Facts{LandlockABI: 7, LandlockFS: true, LandlockScope: true, Seccomp: "ab", NoNewPrivs: true, ProcMasked: true, SysReadOnly: true}
	for _, c := range []struct {
		name string
		edit func(*pid1api.Facts)
		get  func(pid1api.Facts) runner.Layer
		want runner.Status
	}{
		{"landlock held", func(f *pid1api.Facts) {}, func(f pid1api.Facts) runner.Layer { return landlockLayer(f, runner.Spec{}) }, runner.Held},
		{"landlock not in the kernel", func(f *pid1api.Facts) { f.LandlockABI = 0 }, func(f pid1api.Facts) runner.Layer { return landlockLayer(f, runner.Spec{}) }, runner.Missing},
		{"landlock did not refuse", func(f *pid1api.Facts) { f.LandlockFS = false }, func(f pid1api.Facts) runner.Layer { return landlockLayer(f, runner.Spec{}) }, runner.Missing},
		{"no scopes", func(f *pid1api.Facts) { f.LandlockScope = false }, func(f pid1api.Facts) runner.Layer { return landlockLayer(f, runner.Spec{}) }, runner.Degraded},
		{"nesting", func(f *pid1api.Facts) {}, func(f pid1api.Facts) runner.Layer { return landlockLayer(f, runner.Spec{Nesting: true}) }, runner.Off},
		{"seccomp", func(f *pid1api.Facts) { f.Seccomp = "" }, func(f pid1api.Facts) runner.Layer { return seccompLayer(f, runner.Spec{}) }, runner.Missing},
		{"a capability left", func(f *pid1api.Facts) { f.CapEffective = 1 << 21 }, func(f pid1api.Facts) runner.Layer { return privilegeLayer(f, Privileges{}) }, runner.Missing},
		{"a capability that was not to be left", func(f *pid1api.Facts) { f.CapEffective = 1 << 31 }, func(f pid1api.Facts) runner.Layer { return privilegeLayer(f, Privileges{}) }, runner.Missing},
		{"a capability left on purpose", func(f *pid1api.Facts) { f.CapEffective = 1 << 31 }, func(f pid1api.Facts) runner.Layer { return privilegeLayer(f, Privileges{Set: 1 << 31}) }, runner.Held},
		{"proc bound", func(f *pid1api.Facts) {}, func(f pid1api.Facts) runner.Layer {
			return procLayer(f, Start{ProcBound: true, Why: errors.New("no")}, runner.Spec{})
		}, runner.Degraded},
		{"proc not masked", func(f *pid1api.Facts) { f.ProcMasked = false }, func(f pid1api.Facts) runner.Layer { return procLayer(f, Start{}, runner.Spec{}) }, runner.Degraded},
		{"sys writable", func(f *pid1api.Facts) { f.SysReadOnly = false }, func(f pid1api.Facts) runner.Layer { return sysLayer(f, nil) }, runner.Missing},
	} {
		f := full
		c.edit(&f)
		if got := c.get(f); got.Status != c.want {
			t.Errorf("%s: got %+v, want %s", c.name, got, c.want)
		}
	}
}
