package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"demesne/cmd/internal/manifest"
	"demesne/internal/fsutil"
	"demesne/mcp/backend"
	"demesne/runner"
	"demesne/runner/jobs"
)

// startTime and slowTime bound how long Start waits for a job to run: startTime if all job slots are taken,
// slowTime if one is free.
const startTime, slowTime = 500 * time.Millisecond, 20 * time.Second

// Start stores a script as a job, and starts the process that runs it. The returned status is Running, even if
// the job has ended since, or Queued.
func (d *Service) Start(ctx context.Context, r backend.Request) (*backend.Job, error) {
	j, err := d.opts.Jobs.Start(d.opts.Attend, r)
	if err != nil {
		return nil, explained(err)
	}
	t := &backend.Job{ID: j.ID, Status: jobs.Queued, Started: j.Created}
	began := time.Now()
	for pause := time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 100*time.Millisecond) {
		if took := time.Since(began); took > slowTime || took > startTime && !d.opts.Jobs.Free() {
			break
		}
		if j, err = d.opts.Jobs.Get(j.ID); err != nil || j.Status != jobs.Queued {
			t.Status = jobs.Running
			break
		}
		time.Sleep(pause)
	}
	return t, nil
}

// jobKept bounds what a job's directory keeps of each stream, in bytes; the output directory has the whole
// text.
const jobKept = 2 * backend.StdoutMax

// Attend runs the job with that id. The process that Start started does nothing else.
func (d *Service) Attend(ctx context.Context, id string) error {
	return d.opts.Jobs.Attend(ctx, id, jobKept, func(ctx context.Context, what json.RawMessage, out, errs io.Writer) (*runner.Result, error) {
		var r backend.Request
		if err := json.Unmarshal(what, &r); err != nil {
			return nil, fmt.Errorf("read job: %w", err)
		}
		s := newStreams()
		s.out.also, s.errs.also = out, errs
		o, err := d.script(ctx, r, backend.Callbacks{}, s)
		if err != nil {
			return nil, err
		}
		return o.Result, nil
	})
}

// Status returns the state of a job.
func (d *Service) Status(_ context.Context, id string) (*backend.Job, error) {
	return d.told(d.opts.Jobs.Get(id))
}

// Wait waits up to most for a job's end, and returns its state.
func (d *Service) Wait(ctx context.Context, id string, most time.Duration) (*backend.Job, error) {
	return d.told(d.opts.Jobs.Wait(ctx, id, most))
}

// Cancel cancels a job and returns its state.
func (d *Service) Cancel(ctx context.Context, id string) (*backend.Job, error) {
	return d.told(d.opts.Jobs.Cancel(ctx, id))
}

// told converts a job of the store to a [backend.Job].
func (d *Service) told(j *jobs.Job, err error) (*backend.Job, error) {
	switch {
	case errors.Is(err, jobs.ErrUnknown):
		return nil, backend.ErrNoJob
	case err != nil:
		return nil, explained(err)
	}
	t := &backend.Job{ID: j.ID, Status: j.Status, Started: j.Started, Ended: j.Ended, Message: j.Message}
	if t.Started.IsZero() {
		t.Started = j.Created
	}
	o := &backend.RunResult{Result: j.Result}
	if j.Result != nil {
		o.OutputDir, o.Job = j.Result.Out, filepath.Base(j.Result.Out)
		if path := manifest.Path(o.OutputDir); fsutil.Exists(path) {
			o.Manifest = path
		}
	}
	if o.Stdout, err = d.tail(j.ID, "stdout", backend.StdoutMax, j.Stdout); err == nil {
		o.Stderr, err = d.tail(j.ID, "stderr", backend.StderrMax, j.Stderr)
	}
	t.Outcome = o
	return t, err
}

func (d *Service) tail(id, stream string, most int, all int64) (backend.Tail, error) {
	text, err := d.opts.Jobs.Tail(id, stream, int64(most))
	return tailOf([]byte(text), most, max(all, int64(len(text)))), err
}
