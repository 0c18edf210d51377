// Package background executes the MCP tools for background jobs and coding agents over a session.
//
//	jobs.go    jobs, and the list of them
//	agents.go  agents; usage.go: what they used; trace.go: what they did
package background

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"demesne/agents"
	"demesne/internal/text"
	"demesne/mcp/toolbackend/sandboxes"
	"demesne/runner"
	"demesne/runner/client"
	"demesne/runner/jobs"
	"demesne/session"
)

// Jobs are the background jobs of the callers that have those sandboxes, and their agents.
type Jobs struct {
	*sandboxes.Sandboxes
	store  *jobs.Store
	attend []string        // the command that executes a job; the job's id is appended
	agents *agents.Catalog // nil until OpenAgents
}

// Open opens the jobs of a session.
func Open(of *sandboxes.Sandboxes) (*Jobs, error) {
	store, err := of.Jobs()
	if err != nil {
		return nil, err
	}
	argv, err := client.FindFrontend("mcp") // calls Do in a process of its own, so that a job outlives its starter
	if err != nil {
		return nil, err
	}
	return &Jobs{Sandboxes: of, store: store, attend: append(argv, "job")}, nil
}

// NamespaceOf returns the namespace of the callers that started a job.
func NamespaceOf(id string) (string, error) {
	dir, err := jobs.DefaultDir()
	if err != nil {
		return "", err
	}
	all, err := jobs.Open(dir)
	if err != nil {
		return "", err
	}
	j, err := all.Get(id)
	if err != nil {
		return "", err
	}
	return j.Frontend.Namespace(), nil
}

// startTime and slowTime bound how long Start waits for a job to run: startTime if all job slots are taken,
// slowTime if one is free.
const startTime, slowTime = 500 * time.Millisecond, 20 * time.Second

// Start stores a script as a job, and starts the process that runs it. The returned status is Running, even if
// the job has ended since, or Queued.
func (f *Jobs) Start(ctx context.Context, r session.Request) (*session.Job, error) {
	return f.startJob(ctx, f.attend, r)
}

func (f *Jobs) startJob(ctx context.Context, argv []string, r any) (*session.Job, error) {
	if err := f.Closed(); err != nil {
		return nil, err
	}
	j, err := f.store.Start(argv, r)
	if err != nil {
		return nil, sandboxes.Explained(err)
	}
	t := shown(j)
	t.Status = jobs.Queued
	for end := time.Now().Add(slowTime); ; {
		late, cancel := context.WithTimeout(ctx, startTime)
		err := f.store.Begun(late, j.ID)
		cancel()
		if err == nil {
			t.Status = jobs.Running
		}
		if err == nil || ctx.Err() != nil || time.Now().After(end) || !f.store.Free() {
			return t, nil
		}
	}
}

// Do does a job. The process that Start started does nothing else.
func (f *Jobs) Do(ctx context.Context, id string) error {
	return f.store.Attend(ctx, id, runner.JobKept, func(ctx context.Context, what json.RawMessage, out, errs io.Writer) (*runner.Result, error) {
		var r session.Request
		if err := json.Unmarshal(what, &r); err != nil {
			return nil, fmt.Errorf("read job: %w", err)
		}
		c, err := f.Options(r)
		if err != nil {
			return nil, err
		}
		o := r.Run
		o.Stdout, o.Stderr = out, errs
		d, err := f.Run(ctx, c, o, session.Callbacks{})
		if err != nil {
			return nil, sandboxes.Explained(err)
		}
		return d.Result, nil
	})
}

// Status returns the state of a job.
func (f *Jobs) Status(_ context.Context, id string) (*session.Job, error) {
	return f.told(f.store.Get(id))
}

// Wait waits up to most for a job's end, and returns its state.
func (f *Jobs) Wait(ctx context.Context, id string, most time.Duration) (*session.Job, error) {
	return f.told(f.store.Wait(ctx, id, most))
}

// Cancel cancels a job and returns its state.
func (f *Jobs) Cancel(ctx context.Context, id string) (*session.Job, error) {
	return f.told(f.store.Cancel(ctx, id))
}

// shown returns what the record of a job has.
func shown(j *jobs.Job) *session.Job {
	t := &session.Job{Job: *j, Outcome: &session.RunResult{Result: j.Result}}
	if t.Started.IsZero() {
		t.Started = j.Created
	}
	t.Command, t.Agent = session.TextOf(j.Request)
	return t
}

// told adds the output of a job to its record.
func (f *Jobs) told(j *jobs.Job, err error) (*session.Job, error) {
	switch {
	case errors.Is(err, jobs.ErrUnknown):
		return nil, session.ErrNoJob
	case err != nil:
		return nil, sandboxes.Explained(err)
	}
	t := shown(j)
	o := t.Outcome
	if j.Result != nil {
		o.OutputDir, o.Job = j.Result.Out, filepath.Base(j.Result.Out)
		o.Manifest = f.ManifestOf(o.OutputDir)
	}
	if t.Agent {
		return t, f.toldAgent(t, j)
	}
	if o.Stdout, err = f.tail(j.ID, "stdout", runner.OutputKept, j.Stdout); err == nil {
		o.Stderr, err = f.tail(j.ID, "stderr", runner.StderrKept, j.Stderr)
	}
	if err == nil && j.Status.Over() {
		err = f.whole(&o.Stdout, j)
	}
	return t, err
}

// whole adds the head of a job's stdout, and the file that has all of it: stdout.log of the output directory, unless
// the sandbox of a key has that, where any command can write such a file.
func (f *Jobs) whole(t *session.Tail, j *jobs.Job) (err error) {
	if t.Head, err = f.store.Head(j.ID, "stdout", runner.OutputKept); err != nil {
		return err
	}
	t.Head = strings.ToValidUTF8(t.Head, "\uFFFD")
	var r session.Request
	if json.Unmarshal(j.Request, &r) == nil && r.Create.Spec.Key == "" && j.Result != nil && j.Result.Out != "" {
		t.File = filepath.Join(j.Result.Out, "stdout.log")
		return nil
	}
	t.File, err = f.store.File(j.ID, "stdout")
	return err
}

func (f *Jobs) tail(id, stream string, most int, all int64) (session.Tail, error) {
	written, err := f.store.Tail(id, stream, int64(most))
	last := session.Last{Last: text.Last{Most: most}}
	last.Write([]byte(written))
	last.Bytes = max(last.Bytes, all)
	return session.Tail(last.Tail(most)), err
}

// List returns the sandboxes and jobs of MCP servers, the newest job first.
func (f *Jobs) List(ctx context.Context) (*session.Listing, error) {
	l, err := f.Sandboxes.List(ctx)
	if err != nil {
		return nil, err
	}
	all, err := f.store.List()
	if err != nil {
		return nil, sandboxes.Explained(err)
	}
	for _, j := range slices.Backward(all) {
		l.Jobs = append(l.Jobs, shown(j))
	}
	return l, nil
}
