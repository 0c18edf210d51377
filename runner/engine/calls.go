package engine

import (
	"syscall"

	"demesne/runner"
	"demesne/runner/protocol"
	"demesne/runner/wire"
)

// serve answers one call.
func (c *caller) serve(m *wire.Message) {
	defer m.Close()
	reply, files, err := c.dispatch(m)
	if err != nil {
		c.peer.Fail(m, err)
	} else {
		c.peer.Reply(m, reply, files)
	}
	for _, f := range files {
		f.Close()
	}
}

func (c *caller) dispatch(m *wire.Message) (any, wire.Files, error) {
	h := handlers[m.Op]
	if h == nil {
		return nil, nil, wire.Errorf(wire.CodeInvalid, "serve call: unknown operation %q", m.Op)
	}
	if err := c.hold(m); err != nil {
		return nil, nil, err
	}
	return h(c, m)
}

// decode reads the body of a call to a runner that is ready for it: beside what that does to be so.
func (c *caller) decode(m *wire.Message, body any) error {
	if err := m.Decode(body); err != nil {
		return err
	}
	return c.e.settled()
}

// handler serves calls of one operation. The files are a part of the answer, and closed once they were
// sent.
type handler func(*caller, *wire.Message) (reply any, files wire.Files, err error)

// handlers is where each operation of a caller is served.
var handlers = map[wire.Op]handler{
	protocol.OpCreate: of((*caller).create),
	protocol.OpKey:    of((*caller).findKey),
	protocol.OpRun:    withFiles((*caller).launch),
	protocol.OpExec:   withFiles((*caller).exec),
	protocol.OpAttach: withFiles(func(c *caller, t protocol.Target, _ *wire.Message) (*protocol.Attached, wire.Files, error) {
		return c.attach(t)
	}),
	protocol.OpRestart: of((*caller).restart),
	protocol.OpWait:    onExec((*caller).wait),
	protocol.OpSignal: onExec(func(_ *caller, x *execution, t protocol.ExecTarget) (any, error) {
		return nil, x.signal(syscall.Signal(t.Signal))
	}),
	protocol.OpResize: onExec(func(_ *caller, x *execution, t protocol.ExecTarget) (any, error) {
		return nil, x.resize(t.TTY)
	}),
	protocol.OpOpen:    onSandbox(func(s *sandbox, _ protocol.Target) (protocol.Opened, error) { return s.open() }),
	protocol.OpStop:    onSandbox(func(s *sandbox, t protocol.Target) (any, error) { return nil, s.stop(t.Keep) }),
	protocol.OpInspect: onSandbox(func(s *sandbox, _ protocol.Target) (runner.Info, error) { return s.info(), nil }),
	protocol.OpDiff:    of(func(c *caller, t protocol.Target, _ *wire.Message) (*runner.Diff, error) { return c.e.diff(t.Sandbox) }),
	protocol.OpLayer: of(func(c *caller, t protocol.LayerRequest, m *wire.Message) (runner.Layered, error) {
		return c.e.layer(t, m.File(protocol.FileLayer))
	}),
	protocol.OpFork:   of(func(c *caller, t protocol.ForkRequest, _ *wire.Message) (runner.Forked, error) { return c.fork(t) }),
	protocol.OpEgress: of(func(c *caller, t runner.EgressChange, _ *wire.Message) (any, error) { return nil, c.e.changeEgress(t) }),
	protocol.OpAnswer: of(func(c *caller, a protocol.Answer, _ *wire.Message) (any, error) { return nil, c.e.answer(a) }),
	protocol.OpList:   of(func(c *caller, _ struct{}, _ *wire.Message) ([]runner.Info, error) { return c.list(), nil }),
	protocol.OpCount:  of(func(c *caller, _ struct{}, _ *wire.Message) (int, error) { return c.e.count(), nil }),
	protocol.OpCheck:  of(func(c *caller, _ struct{}, _ *wire.Message) ([]runner.Probe, error) { return c.e.check(), nil }),
	protocol.OpSweep:  of(func(c *caller, _ struct{}, _ *wire.Message) ([]string, error) { return c.e.sweep() }),
}

// withFiles is a handler of calls whose body is a T.
func withFiles[T, R any](f func(*caller, T, *wire.Message) (R, wire.Files, error)) handler {
	return func(c *caller, m *wire.Message) (any, wire.Files, error) {
		var body T
		if err := c.decode(m, &body); err != nil {
			return nil, nil, err
		}
		return f(c, body, m)
	}
}

// of is withFiles for answers without any.
func of[T, R any](f func(*caller, T, *wire.Message) (R, error)) handler {
	return withFiles(func(c *caller, body T, m *wire.Message) (R, wire.Files, error) {
		reply, err := f(c, body, m)
		return reply, nil, err
	})
}

// onExec is a handler of calls about a command.
func onExec[R any](f func(*caller, *execution, protocol.ExecTarget) (R, error)) handler {
	return of(func(c *caller, t protocol.ExecTarget, _ *wire.Message) (reply R, err error) {
		x, err := c.e.findExec(t)
		if err != nil {
			return reply, err
		}
		return f(c, x, t)
	})
}

// onSandbox is a handler of calls about a sandbox, which may live or not.
func onSandbox[R any](f func(*sandbox, protocol.Target) (R, error)) handler {
	return func(c *caller, m *wire.Message) (any, wire.Files, error) {
		var t protocol.Target
		if err := c.decode(m, &t); err != nil {
			return nil, nil, err
		}
		s, rec, err := c.e.locate(t.Sandbox)
		if s == nil {
			c.told(rec.Info.ID)
			reply, err := c.e.absent(m.Op, t, rec, err)
			return reply, nil, err
		}
		reply, err := f(s, t)
		return reply, nil, err
	}
}

// wait is until a command has ended, or the caller has gone.
func (c *caller) wait(x *execution, _ protocol.ExecTarget) (*runner.Result, error) {
	select {
	case <-x.done:
		return x.result, nil
	case <-c.peer.Done():
		return nil, wire.ErrClosed
	}
}
