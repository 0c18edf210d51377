package apibackend

import (
	"context"

	"demesne/runner"
	"demesne/server/apibackend/kinds"
	"demesne/session"
)

// Inspect describes a sandbox.
func (b *Backend) Inspect(ctx context.Context, name string) (*runner.Info, error) {
	info, err := b.Service.Inspect(ctx, name)
	return info, kinds.Of(err)
}

// Run implements [rest.Service].
func (b *Backend) Run(ctx context.Context, r session.Request, cb session.Callbacks) (*session.RunResult, error) {
	o, err := b.Allowed(r, false)
	if err != nil {
		return nil, err
	}
	done, err := b.Queue.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	r.Run.Logs, r.Run.Manifest = true, true
	d, err := b.Service.Run(ctx, o, b.Timed(r.Run), cb)
	return d, kinds.Of(err)
}

// Exec implements [rest.Service].
func (b *Backend) Exec(ctx context.Context, name string, r session.RunOptions, cb session.Callbacks) (*session.RunResult, error) {
	done, err := b.Queue.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	d, err := b.Service.Exec(ctx, name, b.Timed(r), cb)
	return d, kinds.Of(err)
}

// Timed returns a command with a time within the operator's bound.
func (b *Backend) Timed(r session.RunOptions) session.RunOptions {
	r.Command.Timeout = b.Policy.Time(r.Command.Timeout)
	return r
}
