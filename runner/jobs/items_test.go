package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"demesne/runner"
)

// TestPlacedList runs the shares of a list as an engine does, with one that starts again, and one that never runs.
func TestPlacedList(t *testing.T) {
	s, e, _ := placedStore(t)
	l, err := s.StartOn(t.Context(), "mars", Process{Argv: []string{"attend"}, List: List{Items: []string{"a", "b", "", "d", "e"}, Parallel: 9}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if p := e.submitted[1]; l.Items != 5 || p.Argv[1] != l.ID || len(p.List.Items) != 5 || p.List.Parallel != 9 {
		t.Errorf("%+v, %+v", l, p)
	}
	e.states[l.ID] = State{Status: Running}
	var ran []string
	run := func(item Item) Run {
		return func(_ context.Context, _ json.RawMessage, out, _ io.Writer) (*runner.Result, error) {
			ran = append(ran, item.Text)
			io.WriteString(out, item.Text)
			return &runner.Result{Reason: runner.Exited, ExitCode: item.N / 4}, nil
		}
	}
	for range 2 { // the second finds all results
		if err := s.AttendShare(t.Context(), l.ID, Share{0, 3}, 0, run); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(ran, "|"); got != "a|d" {
		t.Errorf("%q", got)
	}
	if j, err := s.Cancel(t.Context(), ItemID(l.ID, 5)); err != nil || j.Status != Cancelled {
		t.Errorf("%+v, %v", j, err)
	}
	ran = nil
	if err := s.AttendShare(t.Context(), l.ID, Share{1, 3}, 0, run); err != nil || strings.Join(ran, "|") != "b" {
		t.Errorf("%q, %v", ran, err)
	}
	for n, want := range map[int]Status{1: Succeeded, 2: Succeeded, 3: Queued, 4: Succeeded, 5: Cancelled} {
		if j, err := s.Get(ItemID(l.ID, n)); err != nil || j.Status != want {
			t.Errorf("%d: %+v, %v", n, j, err)
		}
	}
	e.states[l.ID] = State{Status: Failed, Reason: "TIMEOUT"}
	var out bytes.Buffer
	j, err := s.Follow(t.Context(), l.ID, 100, &out, &out)
	if err != nil || out.String() != "abd" || j.Status != Succeeded || j.Result.ExitCode != 125 ||
		j.Message != "5 items: 2 succeeded, 1 failed, 1 died, 1 were cancelled (mars ended it: TIMEOUT)" {
		t.Errorf("%q, %+v, %v", out.String(), j, err)
	}
	if j, err := s.Get(ItemID(l.ID, 3)); err != nil || !j.Died() || !strings.Contains(j.Message, "TIMEOUT") {
		t.Errorf("%+v, %v", j, err)
	}
	for _, id := range []string{l.ID + "/0", l.ID + "/6", l.ID + "/01", l.ID + "/+1", l.ID + "/1/1", l.ID + "/", "/1", l.ID + "/../x"} {
		if j, err := s.Get(id); err != ErrUnknown {
			t.Errorf("%q: %+v, %v", id, j, err)
		}
	}
}
