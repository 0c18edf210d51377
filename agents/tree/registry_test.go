package tree

import (
	"context"
	"errors"
	"testing"
	"time"

	"demesne/runner"
	"demesne/runner/jobs"
	"demesne/session"
)

// TestRegistry checks the states of jobs: each end has its status and its reason, and the time of a job stops with it.
func TestRegistry(t *testing.T) {
	ok := &session.RunResult{Result: &runner.Result{ExitCode: 3, Reason: runner.Exited}}
	for name, c := range map[string]struct {
		do      work
		cancel  bool
		status  jobs.Status
		message string
	}{
		"exit code": {do: func(context.Context, *job) (*session.RunResult, error) { return ok, nil }, status: jobs.Succeeded},
		"error":     {do: func(context.Context, *job) (*session.RunResult, error) { return nil, errors.New("no image") }, status: jobs.Failed, message: "no image"},
		"panic":     {do: func(context.Context, *job) (*session.RunResult, error) { panic("oops") }, status: jobs.Failed, message: "internal error: oops"},
		"lost": {do: func(context.Context, *job) (*session.RunResult, error) {
			return &session.RunResult{Result: &runner.Result{Reason: runner.Lost, Detail: "gone"}}, nil
		}, status: jobs.Failed, message: "gone"},
		"cancelled": {do: func(ctx context.Context, _ *job) (*session.RunResult, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}, cancel: true, status: jobs.Cancelled, message: "cancelled by its parent"},
		"cancel-end": {do: func(context.Context, *job) (*session.RunResult, error) { return ok, nil }, cancel: false, status: jobs.Succeeded},
	} {
		var r registry
		j := r.start(t.Context(), jobs.Traits{}, c.do)
		if c.cancel {
			if s, err := r.wait(t.Context(), j.state.ID, time.Millisecond); err != nil || s.Status != jobs.Running {
				t.Errorf("%s: before: %+v, %v", name, s, err)
			}
			if _, err := r.stop(t.Context(), j.state.ID); err != nil {
				t.Error(err)
			}
		}
		s, err := r.wait(t.Context(), j.state.ID, time.Minute)
		if err != nil || s.Status != c.status || s.Message != c.message || s.Ended.IsZero() {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		if again, _ := r.stop(t.Context(), j.state.ID); again.Status != c.status || !again.Ended.Equal(s.Ended) {
			t.Errorf("%s: cancelled after its end: %+v", name, again)
		}
	}
	var r registry
	if _, err := r.wait(t.Context(), "job-x", 0); !errors.Is(err, session.ErrNoJob) {
		t.Error(err)
	}
}

// TestRegistryForgets checks that a job is forgotten an hour after its end.
func TestRegistryForgets(t *testing.T) {
	var r registry
	nothing := func(context.Context, *job) (*session.RunResult, error) { return nil, errors.New("x") }
	old := r.start(t.Context(), jobs.Traits{}, nothing)
	<-old.done
	old.state.Ended = time.Now().Add(-2 * keepEnded)
	j := r.start(t.Context(), jobs.Traits{}, nothing)
	<-j.done
	if _, err := r.find(old.state.ID); err == nil {
		t.Error("an old job is remembered")
	}
	if _, err := r.find(j.state.ID); err != nil {
		t.Error(err)
	}
}
