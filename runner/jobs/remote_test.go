package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/runner"
)

// farEngine is a Remote whose log a test sets.
type farEngine struct {
	*engine
	log    string
	silent error
	late   bool // it does not notice the end of a process
}

func (e *farEngine) Output(ctx context.Context, _ string, follow bool, to io.Writer) error {
	for _, piece := range strings.SplitAfter(e.log, "o") { // an engine cuts anywhere
		if _, err := io.WriteString(to, piece); err != nil {
			return err
		}
	}
	if follow && e.late {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return e.silent
}

func remoteStore(t *testing.T) (*Store, *farEngine, *Job) {
	t.Helper()
	s, e, _ := placedStore(t)
	far := &farEngine{engine: e}
	s.Place = func(string) (Place, error) { return far, nil }
	j, err := s.StartOn(t.Context(), "venus", Process{}, map[string]string{"a": "b"})
	if err != nil {
		t.Fatal(err)
	}
	e.states[j.ID] = State{Status: Running, Node: "n7"}
	return s, far, j
}

// attended returns what the process of a job writes whose command writes out and errs.
func attended(t *testing.T, out, errs string) string {
	t.Helper()
	var b bytes.Buffer
	code, err := AttendRemote(t.Context(), json.RawMessage(`{"a":"b"}`), &b, func(_ context.Context, what json.RawMessage, o, e io.Writer) (*runner.Result, error) {
		io.WriteString(o, out)
		io.WriteString(e, errs)
		return &runner.Result{ExitCode: 3, Reason: runner.Exited, Out: "/there"}, nil
	})
	if code != 3 || err != nil {
		t.Errorf("%d, %v", code, err)
	}
	return b.String()
}

// TestRemote copies every byte of a process that does not see the directory of jobs, and its result, and removes the job there.
func TestRemote(t *testing.T) {
	for _, c := range []struct{ out, errs string }{
		{"", ""}, {"one\ntwo\n", "three"}, {"\n\n\x00|+\r\n=", "@{}\no0|x\n"}, {strings.Repeat("long", 10_000) + "\nend", "e"},
	} {
		s, e, j := remoteStore(t)
		e.log, e.late = attended(t, c.out, c.errs), true
		var out, errs bytes.Buffer
		got, err := s.Follow(t.Context(), j.ID, 1<<20, &out, &errs)
		if err != nil || got.Status != Succeeded || got.Result.ExitCode != 3 || got.Result.Out != "" || got.Started.IsZero() || got.Message != "" {
			t.Errorf("%+v, %v", got, err)
		}
		if out.String() != c.out || errs.String() != c.errs || got.Stdout != int64(len(c.out)) {
			t.Errorf("%.40q, %.40q, %+v", out.String(), errs.String(), got)
		}
		if len(e.cancelled) == 0 {
			t.Error("the engine still has the job")
		}
	}
}

// TestRemoteEnd checks what a job becomes whose process wrote no result.
func TestRemoteEnd(t *testing.T) {
	whole := attended(t, "part\n", "")
	part := whole[:strings.LastIndex(whole, "=")]
	for _, c := range []struct {
		name, log string
		state     State
		silent    error
		status    Status
		says      string
	}{
		{"running", part, State{Status: Running, Node: "n7"}, nil, Running, ""},
		{"evicted", part, State{Status: Failed, Reason: "Evicted"}, nil, Failed, "venus ended the job: Evicted"},
		{"no program", "exec demesne: not found\nmore\n", State{Status: Failed, Reason: "Error, exit code 127"}, nil, Failed, "venus ended the job: Error, exit code 127: exec demesne: not found"},
		{"bad result", "={\"status\":\"running\"}\n", State{Status: Failed, Reason: "x"}, nil, Failed, `venus ended the job: x: ={"status":"running"}`},
		{"machine silent", part, State{Status: Failed, Reason: "x"}, errors.New("no route"), "", "read output from venus: no route"},
		{"ended", whole, State{Status: Failed, Reason: "Error, exit code 3"}, nil, Succeeded, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, e, j := remoteStore(t)
			e.log, e.states[j.ID], e.silent = c.log, c.state, c.silent
			got, err := s.Get(j.ID)
			switch {
			case c.status == "" && (err == nil || err.Error() != c.says):
				t.Error(got, err)
			case c.status != "" && (err != nil || got.Status != c.status || got.Message != c.says || got.Node == "" && c.state.Node != ""):
				t.Errorf("%+v, %v", got, err)
			}
			if err == nil && got.Status.Over() != (len(e.cancelled) > 0) {
				t.Errorf("removed there: %q", e.cancelled)
			}
		})
	}
}

// TestRemoteOutput reads output while a job runs, again after the start of another attempt, and after the engine discarded lines.
func TestRemoteOutput(t *testing.T) {
	s, e, j := remoteStore(t)
	fetch := func(log, want string) {
		t.Helper()
		e.log = log
		if err := s.Fetch(t.Context(), j.ID); err != nil {
			t.Error(err)
		}
		if got, err := s.Tail(j.ID, "stdout", 100); err != nil || got != want {
			t.Errorf("%q, %v", got, err)
		}
	}
	fetch("@{\"attempt\":\"a\"}\no0|first\no6+sec", "first\n")
	fetch("@{\"attempt\":\"a\"}\no0|first\no6+sec\no9|ond\n", "first\nsecond\n")
	fetch("@{\"attempt\":\"b\"}\no0+2\n", "2")
	fetch("o4|end\n={\"status\":\"succeeded\",\"result\":{\"exit_code\":0}}\n", "2\x00\x00\x00end\n")
	if got, err := s.Get(j.ID); err != nil || got.Status != Succeeded || got.Message != "4 bytes of output are lost: the engine had discarded them" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestRemoteCancelled ends a job that waits in the engine's queue, which then forgets it.
func TestRemoteCancelled(t *testing.T) {
	s, e, j := remoteStore(t)
	s.Place = func(string) (Place, error) { return forgetful{e}, nil }
	got, err := s.Cancel(t.Context(), j.ID)
	if err != nil || got.Status != Cancelled || got.Message != "cancelled by a call of cli" {
		t.Errorf("%+v, %v", got, err)
	}
}

type forgetful struct{ *farEngine }

func (f forgetful) Cancel(_ context.Context, id string) error { delete(f.states, id); return nil }

// TestRemoteSignal checks that a process that the engine ends writes no result.
func TestRemoteSignal(t *testing.T) {
	defer signal.Reset(unix.SIGTERM)
	signal.Ignore(unix.SIGTERM)
	var b bytes.Buffer
	_, err := AttendRemote(t.Context(), nil, &b, func(ctx context.Context, _ json.RawMessage, _, _ io.Writer) (*runner.Result, error) {
		unix.Kill(os.Getpid(), unix.SIGTERM)
		<-ctx.Done()
		return &runner.Result{}, nil
	})
	if err == nil || strings.Contains(b.String(), "=") {
		t.Errorf("%q, %v", b.String(), err)
	}
}

// FuzzRemoteLines reads the log of a hostile pod.
func FuzzRemoteLines(f *testing.F) {
	f.Add([]byte("@{\"attempt\":\"a\"}\no0|first\ne6+sec\no1125899906842623|x\n={\"status\":\"failed\"}\n"))
	f.Add([]byte("o18446744073709551615|x\no-1|\no|\n=\n@\n\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := newCollector(dir)
		if err != nil {
			t.Fatal(err)
		}
		c.Write(b)
		if c.close() != nil {
			t.Error("no result written")
		}
		os.Remove(filepath.Join(dir, "result.json"))
	})
}
