package session

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"demesne/images"
	"demesne/images/oci"
	"demesne/internal/fsutil"
	"demesne/runner"
	"demesne/runner/client"
	"demesne/runner/ipc"
)

// Engine is the part of [client.Client] that frontends use. Tests without a kernel replace it.
type Engine interface {
	Create(context.Context, runner.Spec) (*Sandbox, error)
	Run(context.Context, runner.Spec, runner.Command) (*Sandbox, Process, error)
	Open(ctx context.Context, idOrName string) (*Sandbox, error)
	Exec(ctx context.Context, idOrName string, cmd runner.Command) (*Sandbox, Process, error)
	List(context.Context) ([]runner.Info, error)
	Reserve(ctx context.Context, key string) (slot string, release func(), err error)
	Inspect(ctx context.Context, idOrName string) (*runner.Info, error)
	Usage(ctx context.Context, idOrName string) (runner.Usage, error)
	Check(context.Context) ([]runner.Probe, error)
	Remove(ctx context.Context, idOrName string) error
	Stop(ctx context.Context, idOrName string, grace time.Duration) error
	Fork(ctx context.Context, idOrName, name, out string, publish ...runner.Port) (runner.Forked, error)
	Snapshot(ctx context.Context, idOrName, name string) (runner.Forked, error)
	EphemeralFork(ctx context.Context, idOrName, out string, mounts []runner.Mount, routes []runner.Route) (runner.Forked, error)
	EphemeralSnapshot(ctx context.Context, idOrName string) (runner.Forked, error)
	Layer(ctx context.Context, idOrName string, n int, o runner.LayerOptions, to *os.File) (runner.Layered, error)
	Diff(ctx context.Context, idOrName string) (*runner.Diff, error)
	GC(context.Context) (removed []string, err error)
	ChangeEgress(context.Context, runner.EgressChange) error
	ChangeLimits(context.Context, runner.LimitChange) error
	Userns() (*client.Userns, error)
	Namespaces() bool
	Done() <-chan struct{}
	Close() error
}

// Sandbox is a live sandbox. Its fields replace the methods of the same names.
type Sandbox struct {
	*client.Sandbox
	Exec   func(context.Context, runner.Command) (Process, error)
	Attach func(context.Context) (p Process, recent []byte, err error)
}

// Process is a command in a sandbox: see client.Process.
type Process interface {
	Number() int // its pid in the sandbox
	Terminal() *os.File
	Signal(syscall.Signal) error
	Resize(runner.Winsize) error
	Wait(context.Context) (*runner.Result, error)
	Stages() []runner.Stage // of its start
}

// connect finds or starts the runner.
func connect(ctx context.Context, o client.Options) (Engine, error) {
	c, err := client.Connect(ctx, o)
	if err != nil {
		return nil, err
	}
	return connected{c}, nil
}

type connected struct{ *client.Client }

type process struct{ *client.Process }

// Number returns the process's pid inside the sandbox.
func (p process) Number() int { return p.PID }

func (p process) Stages() []runner.Stage { return p.Trace }

func (c connected) Create(ctx context.Context, s runner.Spec) (*Sandbox, error) {
	return sandboxOf(c.Client.Create(ctx, s))
}

func (c connected) Open(ctx context.Context, idOrName string) (*Sandbox, error) {
	return sandboxOf(c.Client.Open(ctx, idOrName))
}

func (c connected) Usage(ctx context.Context, idOrName string) (runner.Usage, error) {
	return client.Measure(ctx, c.Client, idOrName)
}

func (c connected) Run(ctx context.Context, s runner.Spec, cmd runner.Command) (*Sandbox, Process, error) {
	return started(c.Client.Run(ctx, s, cmd))
}

func (c connected) Exec(ctx context.Context, idOrName string, cmd runner.Command) (*Sandbox, Process, error) {
	return started(c.Client.Exec(ctx, idOrName, cmd))
}

func started(s *client.Sandbox, p *client.Process, err error) (*Sandbox, Process, error) {
	b, err := sandboxOf(s, err)
	if err != nil {
		return nil, nil, err
	}
	return b, process{p}, nil
}

func sandboxOf(s *client.Sandbox, err error) (*Sandbox, error) {
	if err != nil {
		return nil, err
	}
	exec := func(ctx context.Context, cmd runner.Command) (Process, error) {
		p, err := s.Exec(ctx, cmd)
		if err != nil {
			return nil, err
		}
		return process{p}, nil
	}
	attach := func(ctx context.Context) (Process, []byte, error) {
		p, recent, err := s.Attach(ctx)
		if err != nil {
			return nil, nil, err
		}
		return process{p}, recent, nil
	}
	return &Sandbox{s, exec, attach}, nil
}

// HoldStored locks the images of stored sandboxes, which nothing else locks while they have no processes; they
// could not be restarted without them. layers lists every layer that sandboxes use, including the layers of images
// that were removed by force. Unless sweep is nil, it first removes expired sandboxes, and calls sweep if files of another
// id map are left. If no sandbox was ever stored, it does not connect.
func (s *Service) HoldStored(ctx context.Context, store *images.Store, sweep func(left error)) (release func(), layers []oci.Digest, err error) {
	var held []io.Closer
	release = func() {
		for _, h := range held {
			h.Close()
		}
	}
	dir, err := client.SandboxRoot()
	if err != nil || !fsutil.Exists(dir) {
		return release, nil, err
	}
	eng, err := s.Engine(ctx)
	if err != nil {
		return release, nil, err
	}
	if sweep != nil {
		_, err := eng.GC(ctx)
		var e *ipc.Error
		switch {
		case errors.As(err, &e) && e.Code == ipc.CodeRequirement:
			sweep(err)
		case err != nil:
			return release, nil, err
		}
	}
	infos, err := ListAll(ctx, eng)
	if err != nil {
		return release, nil, err
	}
	for _, i := range infos {
		if i.Spec.Rootfs == nil || i.Spec.Rootfs.Digest == "" || i.Spec.Rootfs.Store != store.Dir() {
			continue
		}
		for _, id := range i.Spec.Rootfs.Layers {
			layers = append(layers, oci.Digest(id))
		}
		h, err := store.Hold(ctx, oci.Digest(i.Spec.Rootfs.Digest))
		if errors.Is(err, images.ErrNotFound) { // the image was removed by force
			continue
		}
		if err != nil {
			release()
			return release, nil, err
		}
		held = append(held, h)
	}
	return release, layers, nil
}
