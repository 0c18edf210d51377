// Package apibackend implements the interface of package server over a session, for the programs that serve HTTP APIs.
//
//	backend.go  sandboxes; rest.go: commands and more, for package rest; secrets.go
//	spaces.go   a Backend for each namespace
//
// Package stored has the images and directories of this machine, kernel the kernels, trees the processes that perform operations on files, and kinds the errors.
//
// It applies the operator's bounds: no caller gets a wider network, more memory, or a directory of the host as image.
package apibackend

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"os"
	"time"

	"demesne/images"
	"demesne/images/imageref"
	"demesne/runner"
	"demesne/runner/fileops"
	"demesne/server"
	"demesne/server/apibackend/kernel"
	"demesne/server/apibackend/kinds"
	"demesne/server/apibackend/stored"
	"demesne/server/apibackend/trees"
	"demesne/session"
	"demesne/session/events"
	"demesne/session/operator"
	"demesne/session/vault"
)

// Options are the operator's bounds of all sandboxes.
type Options struct {
	session.Bounds // an empty Image is the environment's default
	// Secrets returns the credentials of a sandbox, by name, when it is restarted; nil: none.
	Secrets func(name string) []runner.Secret

	Namespace string                              // of the callers, who see only its sandboxes; empty: the operator, who sees all
	Observe   func(context.Context, events.Event) // see session.Options
	Queue     *server.Queue                       // of commands; nil: none waits
}

// Backend is a [server.Sandboxes] over a session.
type Backend struct {
	*stored.Images // with the session, the policy and the queue
	trees          trees.Trees
	given          given
}

// New returns a Backend, which has not yet connected to the runner. The caller closes it; sandboxes live on.
func New(o Options) (*Backend, error) {
	b := &Backend{}
	front := runner.FrontendCLI.In(o.Namespace)
	so := session.Options{Mark: true, Observe: o.Observe, SecretsOf: func(s runner.Spec) []runner.Secret {
		s.Name = front.Short(s.Name)
		all := b.again(s)
		if o.Secrets != nil {
			all = append(all, o.Secrets(s.Name)...)
		}
		return all
	}}
	so.Runner.Frontend = front
	if o.Namespace != "" {
		so.MostSandboxes = o.MaxSandboxes
	}
	service := session.New(so)
	if err := service.Check(); err != nil {
		return nil, err
	}
	o.Image = cmp.Or(o.Image, imageref.Default(os.Getenv))
	policy, err := operator.New(o.Bounds, operator.Caller{Namespace: o.Namespace, Secrets: cmp.Or(o.Namespace, vault.DefaultNamespace), VaultKey: os.Getenv("DEMESNE_VAULT_KEY")})
	b.Images = &stored.Images{Service: service, Policy: policy, Queue: o.Queue}
	return b, err
}

// Close closes the connection to the runner.
func (b *Backend) Close() { b.Service.Close() }

// Connect connects to the runner, so that the first sandbox does not wait for that.
func (b *Backend) Connect(ctx context.Context) {
	b.Service.With(ctx, func(session.Engine) error { return nil })
}

// aMonth is how long the runner keeps a sandbox without any use. Timeouts of clients are the API's.
const aMonth = runner.Duration(30 * 24 * time.Hour)

// Create implements [server.Sandboxes].
func (b *Backend) Create(ctx context.Context, r session.Request, built bool) (server.Sandbox, error) {
	if err := b.Queue.Closed(); err != nil {
		return nil, err
	}
	o, err := b.Allowed(r, built)
	if err != nil {
		return nil, err
	}
	changes, err := b.Mount(ctx, r.Mounts, &o)
	if err != nil {
		return nil, err
	}
	sb, err := b.Service.Create(ctx, o, session.Callbacks{})
	if err != nil {
		changes.Undo()
		return nil, kinds.Of(err)
	}
	if err := changes.Made(sb.ID, o.Spec.Name); err != nil {
		b.Service.Discard(sb.ID)
		changes.Undo()
		return nil, err
	}
	b.given.remember(r.Secrets, sb.ID, o.Spec.Name)
	return &sandbox{sb, b}, nil
}

// Allowed converts a request to a session's options, within the operator's bounds.
func (b *Backend) Allowed(r session.Request, built bool) (o session.CreateOptions, err error) {
	o = r.Create
	if built { // by Build, whose base was checked
		o.Image, err = session.ParseImage(o.Image.Given)
		o.Pull = images.PullNever
	} else {
		o.Image, o.Pull, err = b.Policy.Image(o.Image.Given)
	}
	if err != nil {
		return o, kinds.Invalid(err)
	}
	if o.Egress, err = b.reach(o.Egress); err != nil {
		return o, err
	}
	stored, err := b.Policy.AllSecrets(r.Secrets)
	if err != nil {
		return o, kinds.Invalid(err)
	}
	o.Egress.Secrets = append(o.Egress.Secrets, stored...)
	o.Spec.TTL = cmp.Or(o.Spec.TTL, aMonth)
	o.Spec.Limits = b.Policy.Grant(o.Spec.Limits, 0).Limits
	return o, nil
}

// Grants implements [server.Sandboxes].
func (b *Backend) Grants(_ context.Context, l runner.Limits, timeout time.Duration) operator.Granted {
	return b.Policy.Grant(l, timeout)
}

// reach returns the rules of a sandbox, within the operator's.
func (b *Backend) reach(e session.Egress) (session.Egress, error) {
	e, err := b.Policy.Network(e)
	e.OpenWithInputs = true // a volume is the client's own
	return e, kinds.Invalid(err)
}

// Widest implements [server.Sandboxes].
func (b *Backend) Widest() string { return b.Policy.Widest() }

func (b *Backend) Reach(ctx context.Context, name string, e session.Egress) error {
	r, err := b.reach(e)
	if err != nil {
		return err
	}
	return b.do(ctx, func(e session.Engine) error {
		return e.ChangeEgress(ctx, runner.EgressChange{Sandbox: name, Replace: true, Mode: r.Mode, Allow: r.Allow, Deny: r.Deny})
	})
}

func (b *Backend) do(ctx context.Context, f func(session.Engine) error) error {
	return kinds.Of(b.Service.With(ctx, f))
}

func (b *Backend) Open(ctx context.Context, name string) (server.Sandbox, error) {
	sb, err := b.Service.Open(ctx, name, session.Callbacks{})
	if err != nil {
		return nil, kinds.Of(err)
	}
	return &sandbox{sb, b}, nil
}

func (b *Backend) List(ctx context.Context) (all []runner.Info, err error) {
	err = b.do(ctx, func(e session.Engine) error { all, err = session.ListAll(ctx, e); return err })
	return all, err
}

// Prune removes the output directories, ended jobs and logs that last changed before a time and that nothing uses.
func (b *Backend) Prune(ctx context.Context, before time.Time) error {
	_, err := b.Service.PruneOutputs(ctx, before)
	return err
}

func (b *Backend) Remove(ctx context.Context, name string) error {
	changes := b.Changes(name)
	err := b.Service.Remove(ctx, name)
	if err == nil {
		changes.DropEmpty()
	}
	return kinds.Of(err)
}

func (b *Backend) Pause(ctx context.Context, name string) error {
	sb, err := b.Service.Open(ctx, name, session.Callbacks{})
	if err == nil {
		err = b.trees.Paused(sb.ID, func() error { return sb.Pause(ctx) })
	}
	return kinds.Of(err)
}

// stopGrace is how long processes may take to end when a sandbox is stopped.
const stopGrace = 2 * time.Second

func (b *Backend) Stop(ctx context.Context, name string) error {
	return b.do(ctx, func(e session.Engine) error { return e.Stop(ctx, name, stopGrace) })
}

func (b *Backend) Fork(ctx context.Context, from, name string) error {
	if err := b.Queue.Closed(); err != nil {
		return err
	}
	b.quiet(ctx, from)
	_, err := b.Service.Fork(ctx, from, name, "", nil)
	if err == nil {
		b.given.remember(b.given.of(from), name)
	}
	return kinds.Of(err)
}

// quiet ends the processes of a sandbox that the package started for files. The files of a sandbox without processes are
// shared with its forks, and not copied.
func (b *Backend) quiet(ctx context.Context, name string) {
	if info, err := b.Service.Inspect(ctx, name); err == nil {
		b.trees.Drop(info.ID)
	}
}

func (b *Backend) Snapshot(ctx context.Context, from, name string) error {
	b.quiet(ctx, from)
	return b.do(ctx, func(e session.Engine) error { _, err := e.Snapshot(ctx, from, name); return err })
}

func (b *Backend) Usage(ctx context.Context, name string) (u runner.Usage, err error) {
	sb, err := b.Service.Open(ctx, name, session.Callbacks{})
	if err == nil {
		u, err = sb.Usage(ctx)
	}
	return u, kinds.Of(err)
}

// Measure is Usage for a sandbox that runs. It starts no other one.
func (b *Backend) Measure(ctx context.Context, id string) (u runner.Usage, err error) {
	err = b.do(ctx, func(e session.Engine) error { u, err = e.Usage(ctx, id); return err })
	return u, err
}

// sandbox is a [server.Sandbox].
type sandbox struct {
	*session.Sandbox
	backend *Backend
}

// Made implements [server.Sandbox].
func (s *sandbox) Made() *runner.Info { return s.Sandbox.Made }

// Kernel starts a kernel in the sandbox. It runs as the sandbox's own user.
func (s *sandbox) Kernel(ctx context.Context, o server.KernelOptions) (server.Kernel, error) {
	return kernel.Start(ctx, s.backend.Service, s.Sandbox, o, s.backend.Policy.MaxTimeout)
}

// Start starts a command, which waits for a place among those that run, and has it until its end.
func (s *sandbox) Start(ctx context.Context, cmd runner.Command) (server.Process, error) {
	done, err := s.backend.Queue.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	cmd.Timeout = s.backend.Policy.Time(cmd.Timeout)
	if until, ok := ctx.Deadline(); ok && cmd.Timeout > 0 {
		cmd.Timeout = max(min(cmd.Timeout, time.Until(until)), time.Millisecond) // the time that it waited is over
	}
	cmd.Path = s.backend.Service.CallerPath()
	p, err := s.Exec(ctx, cmd)
	if err != nil {
		done()
		return nil, kinds.Of(err)
	}
	go func() {
		p.Wait(context.Background())
		done()
	}()
	return process{p, s}, nil
}

func (s *sandbox) Tree(ctx context.Context, user *runner.User, dir string, t fileops.Request, from func(io.Writer) error, to func(*fileops.Answer, *bufio.Reader) error) (*fileops.Answer, error) {
	t.Dir = dir
	a, err := s.backend.trees.Do(ctx, s.Sandbox, user, t, from, to)
	return a, kinds.Of(err)
}

func (s *sandbox) Dial(ctx context.Context, port uint16) (io.ReadWriteCloser, error) {
	c, err := s.Sandbox.Dial(ctx, port)
	if err != nil {
		return nil, kinds.Of(err)
	}
	return c, nil
}

// process is a [server.Process].
type process struct {
	session.Process
	sandbox *sandbox
}

func (p process) Shown(from io.Reader) io.ReadCloser {
	return p.sandbox.backend.Service.Hidden(p.sandbox.ID).Live(from)
}
