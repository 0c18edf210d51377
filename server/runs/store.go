package runs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"demesne/runner"
	"demesne/runner/jobs"
)

// Start stores a run and starts the process that executes it.
func (s *Store) Start(r *Request) (*Run, error) {
	j, err := s.jobs.Start(s.attend, r)
	if err != nil {
		return nil, fmt.Errorf("start run: %w", err)
	}
	if s.Observe != nil {
		s.feed(j.ID, r, 0)
	}
	return newRun(j, r), nil
}

// Begun returns when a run is admitted, or has ended. It returns an error when ctx ends.
func (s *Store) Begun(ctx context.Context, id string) error { return s.jobs.Begun(ctx, jobOf(id)) }

// Resume observes the runs that an earlier server has started and that go on. It returns their number.
func (s *Store) Resume() (n int, err error) {
	all, err := s.newest()
	if err != nil {
		return 0, err
	}
	for _, e := range all {
		j, err := s.jobs.Get(e.job)
		var r Request
		if err != nil || j.Status.Over() || json.Unmarshal(j.Request, &r) != nil {
			continue
		}
		n++
		s.feed(j.ID, &r, j.Stdout)
	}
	return n, nil
}

// newRun returns a run before its first event.
func newRun(j *jobs.Job, r *Request) *Run {
	run := &Run{ID: idOf(j.ID), Identifier: r.Identifier, State: Queued, Created: j.Created, Commands: []Command{}, Artifacts: []Artifact{}}
	for i, step := range r.Commands {
		run.Commands = append(run.Commands, Command{Index: i, Step: step, Result: Result{Status: waiting}})
	}
	return run
}

// Get returns a run of a namespace that sees allows.
func (s *Store) Get(id string, sees func(namespace string) bool) (*Run, error) {
	j, r, err := s.job(id, sees)
	if err != nil {
		return nil, err
	}
	run := newRun(j, r)
	err = s.lines(j.ID, 0, func(line []byte) {
		var e Event
		if json.Unmarshal(line, &e) == nil {
			run.apply(e)
		}
	})
	if err != nil {
		return nil, err
	}
	run.finish()
	if list := s.artifacts(j.ID); list != nil {
		run.Artifacts = list
	}
	if j.Status.Over() && !run.State.Over() { // its process was killed
		e := lost(j)
		run.apply(e)
	}
	return run, nil
}

// lost returns the last event of a run whose process wrote none.
func lost(j *jobs.Job) Event {
	return Event{runFailed, Data{Run: idOf(j.ID), Ended: j.Ended, Error: j.Message, Canceled: j.Status == jobs.Cancelled}}
}

// Wait waits up to most for the end of a run, and returns it.
func (s *Store) Wait(ctx context.Context, id string, most time.Duration, sees func(namespace string) bool) (*Run, error) {
	if _, _, err := s.job(id, sees); err != nil {
		return nil, err
	}
	if _, err := s.jobs.Wait(ctx, jobOf(id), most); err != nil {
		return nil, fmt.Errorf("wait for run: %w", err)
	}
	return s.Get(id, sees)
}

// Cancel ends a run, and returns it. It may be repeated.
func (s *Store) Cancel(ctx context.Context, id string, sees func(namespace string) bool) (*Run, error) {
	if _, _, err := s.job(id, sees); err != nil {
		return nil, err
	}
	if _, err := s.jobs.Cancel(ctx, jobOf(id)); err != nil {
		return nil, fmt.Errorf("cancel run: %w", err)
	}
	return s.Get(id, sees)
}

// List returns the newest runs of the namespaces that sees allows, the newest first, without output.
func (s *Store) List(most int, sees func(namespace string) bool) ([]*Run, error) {
	all, err := s.newest()
	if err != nil {
		return nil, err
	}
	list := []*Run{}
	for _, e := range all {
		if len(list) == most {
			break
		}
		run, err := s.Get(idOf(e.job), sees)
		if err != nil {
			continue
		}
		for i := range run.Commands {
			run.Commands[i].Stdout, run.Commands[i].Stderr = "", ""
		}
		list = append(list, run)
	}
	return list, nil
}

// Attend is the main function of the process that executes a run. admit is called first, for one run after another in the
// order of their start; it may be nil. The end of ctx, and Cancel, end the run.
func (s *Store) Attend(ctx context.Context, job string, admit func(id string, r *Request) error, do func(context.Context, *Request, *Recorder) error) error {
	if admit != nil {
		s.jobs.Admit = func(what json.RawMessage) error {
			var r Request
			if err := json.Unmarshal(what, &r); err != nil {
				return fmt.Errorf("read run: %w", err)
			}
			return admit(idOf(job), &r)
		}
	}
	return s.jobs.Attend(ctx, job, 2*maxLog, func(ctx context.Context, what json.RawMessage, out, _ io.Writer) (*runner.Result, error) {
		rec := &Recorder{store: s, job: job, out: out, left: maxLog}
		if err := json.Unmarshal(what, &rec.request); err != nil {
			return nil, fmt.Errorf("read run: %w", err)
		}
		err := do(ctx, &rec.request, rec)
		rec.finish(ctx, err)
		if err != nil {
			return nil, err
		}
		return &runner.Result{Reason: runner.Exited}, nil
	})
}
