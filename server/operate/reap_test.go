package operate

import (
	"maps"
	"slices"
	"testing"
	"time"

	"demesne/runner"
	"demesne/session/events"
)

// TestVanished checks which sandboxes are reported as gone, with which cause, and that a call that removes one does so
// alone.
func TestVanished(t *testing.T) {
	now := time.Now()
	one := func(id string, life runner.Lifetime, left time.Duration) runner.Info {
		return runner.Info{ID: id, State: runner.Running, Expires: now.Add(left), Spec: runner.Spec{Lifetime: life}}
	}
	a := alive{}
	first := []runner.Info{one("old", runner.Persistent, -time.Second), one("taken", runner.Persistent, time.Hour), one("stays", runner.Persistent, time.Hour), one("once", runner.OneShot, 0)}
	if gone := a.update(first, now); len(gone) > 0 {
		t.Errorf("%v", gone)
	}
	later := first[2:3]
	if gone := a.update(later, now); len(gone) > 0 {
		t.Errorf("at once: %v", gone)
	}
	gone := a.update(later, now)
	if len(gone) != 2 || gone["old"] != events.Timeout || gone["taken"] != "removed by another program" {
		t.Errorf("%v", gone)
	}
	if again := a.update(later, now); len(again) > 0 {
		t.Errorf("again: %v", again)
	}

	r := newRig(t, t.TempDir(), nil)
	next, stop := r.listen("operator", "/v1/events")
	defer stop()
	r.expect(next, "connected")
	r.Observe(t.Context(), events.Event{Type: events.SessionKilled, Sandbox: "taken", Detail: map[string]string{"action": "remove"}})
	r.vanished(t.Context(), "taken", "x")
	r.vanished(t.Context(), "old", events.Timeout)
	r.expect(next, "1 session.killed taken", "2 session.killed old")
}

// TestListChanged checks which namespaces hear that their list of sandboxes has changed.
func TestListChanged(t *testing.T) {
	one := func(id, namespace string, state runner.State, execs int) runner.Info {
		return runner.Info{ID: id, State: state, Execs: execs, Spec: runner.Spec{Lifetime: runner.Persistent, Frontend: runner.FrontendCLI.In(namespace)}}
	}
	shared := one("s", "", runner.Running, 0)
	shared.Spec.Share = runner.FrontendOf("bob")
	l := list{}
	for _, c := range []struct {
		name string
		all  []runner.Info
		want []string
	}{
		{"none", nil, nil},
		{"made", []runner.Info{one("a", "alice", runner.Running, 0), one("b", "", runner.Running, 0)}, []string{"", "alice"}},
		{"same", []runner.Info{one("b", "", runner.Running, 0), one("a", "alice", runner.Running, 0)}, nil},
		{"a command", []runner.Info{one("a", "alice", runner.Running, 0), one("b", "", runner.Running, 1)}, []string{""}},
		{"stopped", []runner.Info{one("a", "alice", runner.Stopped, 0), one("b", "", runner.Running, 1)}, []string{"", "alice"}},
		{"shared", []runner.Info{one("a", "alice", runner.Stopped, 0), one("b", "", runner.Running, 1), shared}, []string{"", "bob"}},
		{"removed", []runner.Info{one("a", "alice", runner.Stopped, 0)}, []string{"", "bob"}},
		{"one-shot", []runner.Info{one("a", "alice", runner.Stopped, 0), {ID: "x", State: runner.Running}}, nil},
	} {
		if got := slices.Sorted(maps.Keys(l.update(c.all))); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}

	r := newRig(t, t.TempDir(), nil)
	next, stop := r.listen("operator", "/v1/events")
	defer stop()
	r.expect(next, "connected")
	r.Listed([]runner.Info{one("short", "", runner.Running, 0)}) // and no look of Watch has it
	r.expect(next, "0  ")                                        // the event sandboxes, which is empty: a client that saw the list before learns it too
	r.compare(nil)
	r.expect(next, "0  ")
}
