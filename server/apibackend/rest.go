package apibackend

import (
	"context"
	"fmt"
	"io"

	"demesne/runner"
	"demesne/runner/files"
	"demesne/server"
	"demesne/server/apibackend/kinds"
	"demesne/server/rest"
	"demesne/session"
)

// The interface of the API under /v1.
var _ rest.Service = (*Backend)(nil)

// Limit implements [rest.Service].
func (b *Backend) Limit(ctx context.Context, name string, l runner.Limits) error {
	return b.do(ctx, func(e session.Engine) error {
		return e.ChangeLimits(ctx, runner.LimitChange{Sandbox: name, Limits: b.Policy.Change(l)})
	})
}

// Files implements [rest.Service].
func (b *Backend) Files(ctx context.Context, name string, r files.Request) (*files.Answer, error) {
	if err := r.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", session.ErrInvalid, err)
	}
	sb, err := b.Service.Open(ctx, name, session.Callbacks{})
	if err != nil {
		return nil, kinds.Of(err)
	}
	a, err := sb.Files(ctx, r)
	return a, kinds.Of(err)
}

// Copy implements [rest.Service].
func (b *Backend) Copy(ctx context.Context, name, from, to string) error {
	_, err := b.Service.Copy(ctx, session.Place{Sandbox: name, Path: from}, session.Place{Sandbox: name, Path: to}, session.Callbacks{})
	return kinds.Of(err)
}

// Archive implements [rest.Service].
func (b *Backend) Archive(ctx context.Context, name, from string, w io.Writer) error {
	_, err := b.Service.Copy(ctx, session.Place{Sandbox: name, Path: from}, session.Place{Tar: w}, session.Callbacks{})
	return kinds.Of(err)
}

// Diff implements [rest.Service].
func (b *Backend) Diff(ctx context.Context, name string) (d *runner.Diff, err error) {
	err = b.do(ctx, func(e session.Engine) error { d, err = e.Diff(ctx, name); return err })
	return d, err
}

// Rules implements [rest.Service].
func (b *Backend) Rules(ctx context.Context, name string, allow, deny []string) error {
	allow, err := b.Policy.Rules(runner.NoEgress, allow)
	if err != nil {
		return kinds.Invalid(err)
	}
	return b.do(ctx, func(e session.Engine) error {
		return e.ChangeEgress(ctx, runner.EgressChange{Sandbox: name, Allow: allow, Deny: deny})
	})
}

// RemoveGroup implements [rest.Service].
func (b *Backend) RemoveGroup(ctx context.Context, group string) ([]string, error) {
	ids, err := b.Service.RemoveGroup(ctx, group)
	return ids, kinds.Of(err)
}

// Questions implements [rest.Service].
func (b *Backend) Questions(ask func(runner.Question) (allow, answered bool)) {
	b.Service.Answer(session.Every, func(q runner.Question, _ []string) (allow, answered bool) { return ask(q) })
}

// MayDecide implements [rest.Service].
func (b *Backend) MayDecide(ctx context.Context) error {
	return kinds.Invalid(b.Policy.MayAnswer(server.CallerOf(ctx).Operator))
}

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
