package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

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

// TestRemoteList runs the shares of a list on machines that do not see its directory. One of them starts again, an item is cancelled, and
// one has no result.
func TestRemoteList(t *testing.T) {
	s, e, _ := remoteStore(t)
	items := []string{"a\r", "", "c", "d", "e", "f", ""}
	l, err := s.StartOn(t.Context(), "venus", Process{List: List{Items: items}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	e.states[l.ID] = State{Status: Running}
	dir := t.TempDir()
	text := strings.Join(items, "\n") + "\n"
	for n, part := range []string{text[:4], text[4:]} {
		os.WriteFile(filepath.Join(dir, ListPart+strconv.Itoa(n)), []byte(part), 0o600)
	}
	os.WriteFile(filepath.Join(dir, "data"), []byte(`"cli"`), 0o600)
	os.Symlink("data", filepath.Join(dir, ListCancel+"6"))
	log := func(share int, suffix string) string {
		var b bytes.Buffer
		if err := AttendRemoteShare(t.Context(), dir, "n7", Share{share, 3}, nil, &b, func(item Item) Run {
			return func(ctx context.Context, _ json.RawMessage, out, _ io.Writer) (*runner.Result, error) {
				io.WriteString(out, item.Text+suffix)
				if item.N == 6 {
					<-ctx.Done()
				}
				return &runner.Result{Reason: runner.Exited, ExitCode: item.N / 4}, nil
			}
		}); err != nil {
			t.Error(err)
		}
		return b.String()
	}
	first := log(0, "!") // 1, 4 and 7
	e.log = first[:strings.Index(first, "4/=")] + "\nits own words\n8/o0|x\n0/o0|x\n"
	if err := s.Fetch(t.Context(), l.ID); err != nil {
		t.Fatal(err)
	}
	e.log = log(0, "?") + log(2, "") // the second attempt; 3 and 6
	e.late = true
	if j, err := s.Wait(t.Context(), ItemID(l.ID, 4), time.Hour); err != nil || j.Status != Succeeded {
		t.Fatalf("%+v, %v", j, err)
	}
	e.late = false
	if j, err := s.Cancel(t.Context(), ItemID(l.ID, 5)); err != nil || j.Status != Cancelled || e.cancelled[len(e.cancelled)-1] != ItemID(l.ID, 5) {
		t.Errorf("%+v, %v, %q", j, err, e.cancelled)
	}
	for n, want := range map[int]Status{1: Succeeded, 2: Queued, 3: Succeeded, 4: Succeeded, 5: Cancelled, 6: Cancelled, 7: Succeeded} {
		if j, err := s.Get(ItemID(l.ID, n)); err != nil || j.Status != want || j.Node != "n7" && j.Result != nil {
			t.Errorf("%d: %+v, %v", n, j, err)
		}
	}
	if l, err = s.Get(l.ID); err != nil || l.Status != Running {
		t.Errorf("%+v, %v", l, err)
	}
	e.states[l.ID] = State{Status: Failed, Reason: "Evicted"}
	var out bytes.Buffer
	j, err := s.Follow(t.Context(), l.ID, 100, &out, &out)
	if err != nil || out.String() != "a\r!cd?f?" || j.Result == nil || j.Result.ExitCode != 125 ||
		j.Message != "7 items: 2 succeeded, 2 failed, 1 died, 2 were cancelled (venus ended it: Evicted: its own words)" {
		t.Errorf("%q, %+v, %v", out.String(), j, err)
	}
	if e.cancelled[len(e.cancelled)-1] != l.ID {
		t.Errorf("the engine still has the job: %q", e.cancelled)
	}
}
