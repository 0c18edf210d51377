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
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
)

// engine is a Place whose answers a test sets.
type engine struct {
	states    map[string]State
	submitted []Process
	cancelled []string
	err       error

	submitting func(id string)
}

func (e *engine) Submit(_ context.Context, p Process) error {
	e.submitted = append(e.submitted, p)
	if e.submitting != nil {
		e.submitting(p.ID)
	}
	return e.err
}

func (e *engine) States(context.Context, []string) (map[string]State, error) { return e.states, e.err }

func (e *engine) Cancel(_ context.Context, id string) error {
	e.cancelled = append(e.cancelled, id)
	e.states[id] = State{Status: Cancelled, Reason: "CANCELLED"}
	return e.err
}

func placedStore(t *testing.T) (*Store, *engine, *Job) {
	t.Helper()
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s.Frontend = runner.FrontendCLI
	e := &engine{states: map[string]State{}}
	s.Place = func(on string) (Place, error) {
		if on != "mars" {
			return nil, errors.New("unknown place")
		}
		return e, nil
	}
	j, err := s.StartOn(t.Context(), "mars", Process{Argv: []string{"attend"}}, map[string]string{"a": "b"})
	if err != nil {
		t.Fatal(err)
	}
	return s, e, j
}

// TestPlaced checks what a job's status is, by what its engine and its directory say.
func TestPlaced(t *testing.T) {
	for _, c := range []struct {
		name   string
		state  *State
		status Status
		says   string
	}{
		{"queued", &State{Status: Queued, Reason: "Resources"}, Queued, "Resources"},
		{"running", &State{Status: Running, Node: "n7"}, Running, ""},
		{"ended", &State{Status: Failed, Reason: "TIMEOUT"}, Failed, "mars ended the job: TIMEOUT: first words"},
		{"cancelled there", &State{Status: Cancelled, Reason: "CANCELLED"}, Cancelled, "mars ended the job: CANCELLED"},
		{"forgotten", nil, Failed, "mars does not know the job anymore, and there is no result"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, e, j := placedStore(t)
			if p := e.submitted[0]; p.ID != j.ID || p.Argv[1] != j.ID || j.Status != Queued || j.On != "mars" {
				t.Errorf("%+v, %+v", p, j)
			}
			os.WriteFile(e.submitted[0].Log, []byte("first words\nsecond"), 0o600)
			if c.state != nil {
				e.states[j.ID] = *c.state
			}
			all, err := s.List()
			if err != nil || len(all) != 1 || all[0].Status != c.status || all[0].Message != c.says {
				t.Errorf("listed: %+v, %v", all[0], err)
			}
			got, err := s.Get(j.ID)
			if err != nil || got.Status != c.status || got.Message != c.says {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// TestPlacedSubmitting looks at a job before its engine knows it. Such a job is queued, and none of its items has died.
func TestPlacedSubmitting(t *testing.T) {
	for _, items := range [][]string{nil, {"a", "b"}} {
		s, e, old := placedStore(t)
		e.states[old.ID] = State{Status: Running}
		looked := false
		e.submitting = func(id string) {
			looked = true
			for _, of := range []string{id, ItemID(id, 1)}[:1+min(len(items), 1)] {
				if j, err := s.Get(of); err != nil || j.Status != Queued {
					t.Errorf("%+v, %v", j, err)
				}
			}
			if all, err := s.List(); err != nil || len(all) != 2 || all[0].Status != Running || all[1].Status != Queued {
				t.Errorf("%+v, %v", all, err)
			}
		}
		j, err := s.StartOn(t.Context(), "mars", Process{List: List{Items: items}}, nil)
		if err != nil || !looked {
			t.Fatal(err)
		}
		if j, err = s.Get(j.ID); err != nil || !j.Status.Over() { // the engine has it and forgot it
			t.Errorf("%+v, %v", j, err)
		}
	}
}

// TestPlacedSilent checks that an engine that does not answer ends no job.
func TestPlacedSilent(t *testing.T) {
	s, e, j := placedStore(t)
	e.err = errors.New("no route")
	if _, err := s.Get(j.ID); err == nil || err.Error() != "ask mars: no route" {
		t.Error(err)
	}
	if all, err := s.List(); err != nil || len(all) != 1 || all[0].Status != Queued || all[0].Message != "no route" {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := s.StartOn(t.Context(), "mars", Process{}, nil); err == nil {
		t.Error("started")
	}
	if entries, _ := filepath.Glob(s.dir + "/job-*"); len(entries) != 1 {
		t.Errorf("a job that was not submitted left %q", entries)
	}
}

// hungEngine takes requests and never answers.
type hungEngine struct{ *engine }

func (e hungEngine) Submit(ctx context.Context, _ Process) error { return e.hang(ctx) }
func (e hungEngine) Cancel(ctx context.Context, id string) error {
	e.cancelled = append(e.cancelled, id)
	return e.hang(ctx)
}
func (e hungEngine) States(ctx context.Context, _ []string) (map[string]State, error) {
	return nil, e.hang(ctx)
}
func (e hungEngine) hang(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// TestPlacedHung checks that each request to an engine ends, and that one for a job takes the job back.
func TestPlacedHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, e, j := placedStore(t)
		s.Place = func(string) (Place, error) { return hungEngine{e}, nil }
		if _, err := s.Get(j.ID); err == nil || err.Error() != "ask mars: no answer within 30 seconds" {
			t.Error(err)
		}
		if all, err := s.List(); err != nil || len(all) != 1 || all[0].Status != Queued || all[0].Message != "no answer within 30 seconds" {
			t.Errorf("%+v, %v", all, err)
		}
		if _, err := s.StartOn(t.Context(), "mars", Process{}, nil); err == nil || err.Error() != "start job: no answer within 120 seconds" || len(e.cancelled) != 1 {
			t.Errorf("%v, %q", err, e.cancelled)
		}
		if _, err := s.Cancel(t.Context(), j.ID); err == nil || !strings.HasSuffix(err.Error(), ": no answer within 30 seconds") {
			t.Error(err)
		}
	})
}

// lazyEngine ends a job that waits in its queue only at its start.
type lazyEngine struct{ *engine }

func (e lazyEngine) Cancel(context.Context, string) error { return nil }

// TestPlacedCancelled checks that a job that waits in its engine's queue ends when it is cancelled, and never begins.
func TestPlacedCancelled(t *testing.T) {
	for _, lazy := range []bool{false, true} {
		s, e, j := placedStore(t)
		if lazy {
			s.Place = func(string) (Place, error) { return lazyEngine{e}, nil }
		}
		e.states[j.ID] = State{Status: Queued}
		got, err := s.Cancel(t.Context(), j.ID)
		if err != nil || got.Status != Cancelled || got.Message != "cancelled by a call of cli" || lazy != (len(e.cancelled) == 0) {
			t.Errorf("%+v, %v", got, err)
		}
		if err := s.Attend(t.Context(), j.ID, 0, func(context.Context, json.RawMessage, io.Writer, io.Writer) (*runner.Result, error) {
			t.Error("it began")
			return nil, errors.New("began")
		}); !errors.Is(err, os.ErrExist) {
			t.Error(err)
		}
	}
}

// TestPlacedAttended runs the process of a job twice, as an engine does after the failure of a machine.
func TestPlacedAttended(t *testing.T) {
	s, _, j := placedStore(t)
	dir := filepath.Join(s.dir, j.ID)
	word := "first"
	run := func(ctx context.Context, what json.RawMessage, out, _ io.Writer) (*runner.Result, error) {
		io.WriteString(out, word)
		if word == "first" { // as the engine's SIGTERM
			unix.Kill(os.Getpid(), unix.SIGTERM)
			<-ctx.Done()
		}
		return &runner.Result{ExitCode: 3, Reason: runner.Exited}, nil
	}
	defer signal.Reset(unix.SIGTERM)
	signal.Ignore(unix.SIGTERM)
	if err := s.Attend(t.Context(), j.ID, 0, run); err == nil || !strings.Contains(err.Error(), "the engine ended the process") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(dir + "/result.json"); err == nil {
		t.Error("a process that the engine ended wrote a result")
	}
	word = "second"
	if err := s.Attend(t.Context(), j.ID, 0, run); err != nil {
		t.Fatal(err)
	}
	got, err := s.Wait(t.Context(), j.ID, 0)
	if err != nil || got.Status != Succeeded || got.Result.ExitCode != 3 || got.Node == "" || got.Stdout != 6 {
		t.Errorf("%+v, %v", got, err)
	}
	var out bytes.Buffer
	if _, err := s.Follow(t.Context(), j.ID, 100, &out, &out); err != nil || out.String() != "second" {
		t.Errorf("%q, %v", out.String(), err)
	}
	if err := s.Attend(t.Context(), j.ID, 0, run); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second result: %v", err)
	}
}

// TestLostByCancel checks that a job is cancelled if the engine's signal ends the runner or the command before it reaches the job's
// process.
func TestLostByCancel(t *testing.T) {
	for _, res := range []runner.Result{
		{Reason: runner.Lost}, {Reason: runner.Signaled, Signal: 15, ExitCode: 143}, {Reason: runner.Signaled, Signal: 9, ExitCode: 137}, {Reason: runner.Exited, ExitCode: 143},
	} {
		s := &Store{}
		dir := t.TempDir()
		ctx, cancel := context.WithCancelCause(t.Context())
		err := s.attempt(ctx, dir, 1<<10, nil, func(context.Context, json.RawMessage, io.Writer, io.Writer) (*runner.Result, error) {
			time.AfterFunc(20*time.Millisecond, func() { cancel(cancelledBy(runner.FrontendCLI)) })
			return &res, nil
		})
		var e ended
		if err = errors.Join(err, readJSON(filepath.Join(dir, "result.json"), &e)); err != nil || e.Status != Cancelled {
			t.Errorf("%+v: %+v, %v", res, e, err)
		}
	}
}

// TestSuperseded lets an engine begin a job again while its first process goes on, as after a split of the network. The job has one
// result, and the first process ends without one.
func TestSuperseded(t *testing.T) {
	dir, up, first := t.TempDir(), make(chan struct{}), make(chan error, 1)
	go func() {
		first <- (&Store{}).attempt(t.Context(), dir, 1<<10, nil, func(ctx context.Context, _ json.RawMessage, out, _ io.Writer) (*runner.Result, error) {
			close(up)
			<-ctx.Done()
			return &runner.Result{ExitCode: 1}, nil
		})
	}()
	<-up
	err := (&Store{}).attempt(t.Context(), dir, 1<<10, nil, func(_ context.Context, _ json.RawMessage, out, _ io.Writer) (*runner.Result, error) {
		io.WriteString(out, "second")
		if err := <-first; !errors.Is(err, errSuperseded) {
			t.Error(err)
		}
		return &runner.Result{ExitCode: 2}, nil
	})
	var e ended
	if err != nil || readJSON(filepath.Join(dir, "result.json"), &e) != nil || e.Result.ExitCode != 2 || e.Stdout != 6 {
		t.Errorf("%v, %+v", err, e)
	}
}
