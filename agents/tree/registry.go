package tree

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"demesne/runner"
	"demesne/runner/jobs"
	"demesne/session"
)

// keepEnded is how long a job that has ended is remembered.
const keepEnded = time.Hour

// errCancelled is the cause with which a cancelled run ends.
var errCancelled = errors.New("cancelled by its parent")

// registry holds the background jobs of one agent's children. They run in this process and end with the agent. The zero
// value is ready.
type registry struct {
	mu   sync.Mutex
	jobs map[string]*job
}

// job is a background job in this process.
type job struct {
	cancel context.CancelCauseFunc
	done   chan struct{} // closed at the end

	mu    sync.Mutex
	state session.Job
	last  func() session.Tail
	cost  func() *session.Cost
}

// work is what a job does. It may call the methods of j that show its progress.
type work func(ctx context.Context, j *job) (*session.RunResult, error)

// start starts a job, whose context ends with ctx or when it is cancelled.
func (r *registry) start(ctx context.Context, as jobs.Traits, do work) *job {
	ctx, cancel := context.WithCancelCause(ctx)
	j := &job{cancel: cancel, done: make(chan struct{}), state: session.Job{Job: jobs.Job{ID: jobs.NewID(), Traits: as, Status: jobs.Running, Started: time.Now()}}}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.jobs == nil {
		r.jobs = map[string]*job{}
	}
	for id, old := range r.jobs {
		if old.endedBefore(time.Now().Add(-keepEnded)) {
			delete(r.jobs, id)
		}
	}
	r.jobs[j.state.ID] = j
	go j.run(ctx, do)
	return j
}

func (j *job) run(ctx context.Context, do work) {
	defer close(j.done)
	defer j.cancel(nil)
	res, err := j.attempt(ctx, do)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.state.Ended, j.state.Outcome = time.Now(), res
	if errors.Is(context.Cause(ctx), errCancelled) {
		j.state.Status, j.state.Message = jobs.Cancelled, errCancelled.Error()
		return
	}
	var ended *runner.Result
	if res != nil {
		ended = res.Result
	}
	j.state.Status, j.state.Message = jobs.Outcome(ended, err)
}

// attempt does the work, and turns a panic into an error: one child must not end the others.
func (j *job) attempt(ctx context.Context, do work) (res *session.RunResult, err error) {
	defer func() {
		if p := recover(); p != nil {
			res, err = nil, fmt.Errorf("internal error: %v", p)
		}
	}()
	return do(ctx, j)
}

// shows sets how the job's progress is read; either may be nil.
func (j *job) shows(last func() session.Tail, cost func() *session.Cost) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last, j.cost = last, cost
}

func (j *job) endedBefore(t time.Time) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.state.Ended.IsZero() && j.state.Ended.Before(t)
}

// status describes the job now.
func (j *job) status() *session.Job {
	j.mu.Lock()
	s, last, cost := j.state, j.last, j.cost
	j.mu.Unlock()
	if cost != nil {
		s.Cost = cost()
	}
	if s.Ended.IsZero() && last != nil {
		s.Outcome = &session.RunResult{Stdout: last()}
	}
	return &s
}

func (r *registry) find(id string) (*job, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if j := r.jobs[id]; j != nil {
		return j, nil
	}
	return nil, session.ErrNoJob
}

// wait returns the job when it has ended, or after timeout, or when ctx ends.
func (r *registry) wait(ctx context.Context, id string, timeout time.Duration) (*session.Job, error) {
	j, err := r.find(id)
	if err != nil {
		return nil, err
	}
	late := time.NewTimer(timeout)
	defer late.Stop()
	select {
	case <-j.done:
	case <-late.C:
	case <-ctx.Done():
	}
	return j.status(), nil
}

// stop cancels a job, and returns when it has ended.
func (r *registry) stop(ctx context.Context, id string) (*session.Job, error) {
	j, err := r.find(id)
	if err != nil {
		return nil, err
	}
	j.cancel(errCancelled)
	select {
	case <-j.done:
	case <-ctx.Done():
	}
	return j.status(), nil
}

// stopAll cancels every job, and returns when all have ended.
func (r *registry) stopAll(why error) {
	r.mu.Lock()
	var all []*job
	for _, j := range r.jobs {
		all = append(all, j)
	}
	r.mu.Unlock()
	for _, j := range all {
		j.cancel(why)
	}
	for _, j := range all {
		<-j.done
	}
}
