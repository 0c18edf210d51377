package apibackend

import (
	"context"

	"demesne/runner"
	"demesne/session"
)

// Inspect describes a sandbox.
func (b *Backend) Inspect(ctx context.Context, name string) (*runner.Info, error) {
	info, err := b.service.Inspect(ctx, name)
	return info, classified(err)
}

// Run implements [rest.Service].
func (b *Backend) Run(ctx context.Context, r session.Request, cb session.Callbacks) (*session.RunResult, error) {
	o, err := b.allowed(r, false)
	if err != nil {
		return nil, err
	}
	done, err := b.queue.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	r.Run.Logs, r.Run.Manifest = true, true
	d, err := b.service.Run(ctx, o, b.timed(r.Run), cb)
	return d, classified(err)
}

// Exec implements [rest.Service].
func (b *Backend) Exec(ctx context.Context, name string, r session.RunOptions, cb session.Callbacks) (*session.RunResult, error) {
	done, err := b.queue.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	d, err := b.service.Exec(ctx, name, b.timed(r), cb)
	return d, classified(err)
}

// timed returns a command with a time within the operator's bound.
func (b *Backend) timed(r session.RunOptions) session.RunOptions {
	r.Command.Timeout = b.policy.Time(r.Command.Timeout)
	return r
}
