package main

import (
	"context"
	"os"
	"syscall"

	"demesne/runner"
	"demesne/runner/client"
)

// engine is the part of client.Client that this program uses; tests without a kernel substitute it.
type engine interface {
	Create(context.Context, runner.Spec) (*box, error)
	Run(context.Context, runner.Spec, runner.Command) (*begun, error)
	Open(ctx context.Context, idOrName string) (*box, error)
	Exec(ctx context.Context, idOrName string, cmd runner.Command) (*begun, error)
	List(context.Context) ([]runner.Info, error)
	Count(context.Context) (int, error)
	Inspect(ctx context.Context, idOrName string) (*runner.Info, error)
	Check(context.Context) ([]runner.Probe, error)
	Remove(ctx context.Context, idOrName string) error
	Stop(ctx context.Context, idOrName string) error
	Fork(ctx context.Context, idOrName, name, out string, publish ...runner.Port) (runner.Forked, error)
	Snapshot(ctx context.Context, idOrName, name string) (runner.Forked, error)
	EphemeralSnapshot(ctx context.Context, idOrName string) (runner.Forked, error)
	Layer(ctx context.Context, idOrName string, n int, to *os.File) (runner.Layered, error)
	Diff(ctx context.Context, idOrName string) (*runner.Diff, error)
	GC(context.Context) (removed []string, err error)
	ChangeEgress(context.Context, runner.EgressChange) error
	Close() error
}

// box is a sandbox, with functions that start or attach to commands in it.
type box struct {
	*client.Sandbox
	attach func(context.Context) (p process, recent []byte, err error)
	exec   func(context.Context, runner.Command) (process, []runner.Stage, error)
}

// begun is a box together with the command that was started in it.
type begun struct {
	*box
	process process
	trace   []runner.Stage // of the command's start
}

// process is the interface of a client.Process.
type process interface {
	Terminal() *os.File
	Signal(syscall.Signal) error
	Resize(runner.Winsize) error
	Wait(context.Context) (*runner.Result, error)
}

// connectRunner finds or starts the runner.
func connectRunner(ctx context.Context, o client.Options) (engine, error) {
	c, err := client.Connect(ctx, o)
	if err != nil {
		return nil, err
	}
	return connected{c}, nil
}

type connected struct{ *client.Client }

func (c connected) Create(ctx context.Context, s runner.Spec) (*box, error) {
	return boxed(c.Client.Create(ctx, s))
}

func (c connected) Run(ctx context.Context, s runner.Spec, cmd runner.Command) (*begun, error) {
	return begin(c.Client.Run(ctx, s, cmd))
}

func (c connected) Exec(ctx context.Context, idOrName string, cmd runner.Command) (*begun, error) {
	return begin(c.Client.Exec(ctx, idOrName, cmd))
}

func begin(s *client.Sandbox, p *client.Process, err error) (*begun, error) {
	b, err := boxed(s, err)
	if err != nil {
		return nil, err
	}
	return &begun{b, p, p.Trace}, nil
}

func (c connected) Open(ctx context.Context, idOrName string) (*box, error) {
	return boxed(c.Client.Open(ctx, idOrName))
}

func boxed(s *client.Sandbox, err error) (*box, error) {
	if err != nil {
		return nil, err
	}
	attach := func(ctx context.Context) (process, []byte, error) {
		p, recent, err := s.Attach(ctx)
		if err != nil {
			return nil, nil, err
		}
		return p, recent, nil
	}
	return &box{s, attach, func(ctx context.Context, cmd runner.Command) (process, []runner.Stage, error) {
		p, err := s.Exec(ctx, cmd)
		if err != nil {
			return nil, nil, err
		}
		return p, p.Trace, nil
	}}, nil
}
