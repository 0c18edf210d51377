package apibackend

import (
	"context"

	"demesne/runner"
	"demesne/server/backend"
	"demesne/server/rest"
	"demesne/session"
)

// Inspect describes a sandbox.
func (b *Backend) Inspect(ctx context.Context, name string) (*runner.Info, error) {
	info, err := b.service.Inspect(ctx, name)
	return info, classified(err)
}

// Run implements [rest.Backend].
func (b *Backend) Run(ctx context.Context, c backend.Create, cmd rest.Command) (*rest.Result, error) {
	if _, err := b.fill(ctx, &c); err != nil {
		return nil, err
	}
	o, err := b.options(c)
	if err != nil {
		return nil, err
	}
	done, err := b.queue.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	run, cb := b.started(cmd, "")
	run.Logs, run.Manifest = true, true
	return finished(b.service.Run(ctx, o, run, cb))
}

// Exec implements [rest.Backend].
func (b *Backend) Exec(ctx context.Context, name string, cmd rest.Command) (*rest.Result, error) {
	done, err := b.queue.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	run, cb := b.started(cmd, name)
	return finished(b.service.Exec(ctx, name, run, cb))
}

// started returns a command in the words of a session. sandbox is its id, or empty until it is made.
func (b *Backend) started(cmd rest.Command, sandbox string) (session.RunOptions, session.Callbacks) {
	cmd.Timeout = b.bounds.time(cmd.Timeout)
	cb := session.Callbacks{Made: func(sb *session.Sandbox) { sandbox = sb.ID }}
	if cmd.Began != nil {
		cb.Began = func(func() session.Tail) { cmd.Began(sandbox) }
	}
	return session.RunOptions{Command: cmd.Command, Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr}, cb
}

func finished(d *session.RunResult, err error) (*rest.Result, error) {
	if err != nil || d == nil {
		return nil, classified(err)
	}
	tail := func(t session.Tail) rest.Tail { return rest.Tail{Text: t.Text, Bytes: t.Bytes, Cut: t.Cut} }
	return &rest.Result{Result: d.Result, Stdout: tail(d.Stdout), Stderr: tail(d.Stderr)}, nil
}
