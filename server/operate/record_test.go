package operate

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"demesne/session"
	"demesne/session/audit"
	"demesne/session/events"
)

// TestUnrecorded: while the audit log cannot be written, nothing may begin. What still happens is recorded later,
// with the number of what found no place.
func TestUnrecorded(t *testing.T) {
	dir := t.TempDir()
	inTheWay := filepath.Join(dir, "00000000000000000001.jsonl")
	if err := os.Mkdir(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, dir, nil)
	if err := r.Unrecorded(); err != nil {
		t.Errorf("before an event: %v", err)
	}
	const lost = 5
	for range maxLate + lost {
		r.Observe(by("someone", "team"), events.Event{Type: events.SessionKilled, Sandbox: "s1"})
	}
	if err := r.Record(by("someone", "team"), events.Event{Type: events.SessionCreated, Sandbox: "s2"}); err == nil {
		t.Error("an event was recorded")
	}
	if err := r.Unrecorded(); !errors.Is(err, session.ErrBusy) || strings.Contains(err.Error(), dir) {
		t.Errorf("err = %v, want ErrBusy without a path", err)
	}
	r.get("someone", "/ready", 503)
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); r.Unrecorded() != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the audit log is not written again")
		}
	}
	all, err := audit.Last(t.Context(), dir, maxLate+10)
	if err != nil || len(all) != maxLate+1 {
		t.Fatalf("%d entries, %v", len(all), err)
	}
	first, last := all[0], all[maxLate]
	if first.Type != events.SessionKilled || first.Caller != "someone" || first.Namespace != "team" || last.Time.Sub(first.Time) < time.Millisecond {
		t.Errorf("first: %+v", first)
	}
	if last.Type != Resumed || last.Detail["late"] != "1000" || last.Detail["lost"] != "5" {
		t.Errorf("last: %+v", last)
	}
	if _, err := audit.Verify(t.Context(), dir, nil); err != nil {
		t.Error(err)
	}
	if said := r.said.String(); strings.Count(said, "no command starts") != 1 || strings.Count(said, "recorded again: 1000 late, 5 lost") != 1 {
		t.Errorf("said:\n%s", said)
	}
}
