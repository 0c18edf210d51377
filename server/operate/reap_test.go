package operate

import (
	"testing"
	"time"

	"demesne/runner"
	"demesne/server/events"
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
