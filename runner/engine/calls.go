package engine

import (
	"encoding/json"
	"syscall"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/sandbox"
)

// serve answers one call.
func (c *caller) serve(m *ipc.Message) {
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

func (c *caller) dispatch(m *ipc.Message) (any, ipc.Files, error) {
	h := handlers[m.Op]
	if h == nil {
		return nil, nil, ipc.Errorf(ipc.CodeInvalid, "serve call: unknown operation %q", m.Op)
	}
	if err := c.hold(m); err != nil {
		return nil, nil, err
	}
	c.e.outMap.keep(m.File(api.FileOutMap))
	return h(c, m)
}

// decode reads the body of a call and then waits until the runner is set up.
func (c *caller) decode(m *ipc.Message, body any) error {
	if err := m.Decode(body); err != nil {
		return err
	}
	return c.e.settled()
}

// handler serves the calls of one operation. The files are part of the reply and are closed after it is sent.
type handler func(*caller, *ipc.Message) (reply any, files ipc.Files, err error)

// handlers maps each operation to its handler.
var handlers = map[ipc.Op]handler{
	api.OpCreate: withFiles((*caller).createFor),
	api.OpKey:    of((*caller).findKey),
	api.OpRun:    withFiles((*caller).launch),
	api.OpExec:   withFiles((*caller).exec),
	api.OpAttach: withFiles(func(c *caller, t api.Target, _ *ipc.Message) (*api.Attached, ipc.Files, error) {
		return c.attach(t)
	}),
	api.OpRestart: of((*caller).restart),
	api.OpWait:    onExec((*caller).wait),
	api.OpSignal: onExec(func(_ *caller, x *sandbox.Execution, t api.ExecTarget) (any, error) {
		return nil, x.Signal(syscall.Signal(t.Signal))
	}),
	api.OpResize: onExec(func(_ *caller, x *sandbox.Execution, t api.ExecTarget) (any, error) {
		return nil, x.Resize(t.TTY)
	}),
	api.OpOpen: onSandbox(func(c *caller, s *sandbox.Sandbox, _ api.Target) (api.Opened, error) {
		c.answers(s)
		return s.Open()
	}),
	api.OpStop: onSandbox(func(c *caller, s *sandbox.Sandbox, t api.Target) (api.Ended, error) {
		spec := s.Info().Spec
		return api.Ended{Served: spec.Served()}, c.e.stop(s, t)
	}),
	api.OpInspect: onSandbox(func(c *caller, s *sandbox.Sandbox, _ api.Target) (runner.Info, error) {
		info := s.Info()
		c.shorten(&info)
		return info, nil
	}),
	api.OpPause: onSandbox(func(_ *caller, s *sandbox.Sandbox, _ api.Target) (any, error) { return nil, sandbox.Pause(s) }),
	api.OpUsage: onSandbox(func(_ *caller, s *sandbox.Sandbox, _ api.Target) (runner.Usage, error) {
		return sandbox.Measure(s), nil
	}),
	api.OpDiff: of(func(c *caller, t api.Target, _ *ipc.Message) (*runner.Diff, error) { return c.e.diff(t.Sandbox) }),
	api.OpLayer: of(func(c *caller, t api.LayerRequest, m *ipc.Message) (runner.Layered, error) {
		return c.e.layer(t, m.File(api.FileLayer))
	}),
	api.OpFork:    of(func(c *caller, t api.ForkRequest, _ *ipc.Message) (runner.Forked, error) { return c.fork(t) }),
	api.OpEgress:  of(func(c *caller, t runner.EgressChange, _ *ipc.Message) (any, error) { return nil, c.e.changeEgress(t) }),
	api.OpLimits:  of(func(c *caller, t runner.LimitChange, _ *ipc.Message) (any, error) { return nil, c.changeLimits(t) }),
	api.OpAnswer:  of(func(c *caller, a api.Answer, _ *ipc.Message) (any, error) { return nil, c.e.answer(a) }),
	api.OpList:    of(func(c *caller, r api.ListRequest, _ *ipc.Message) ([]json.RawMessage, error) { return c.list(r) }),
	api.OpReserve: of(func(c *caller, r api.ReserveRequest, _ *ipc.Message) (api.Slot, error) { return c.reserveAhead(r) }),
	api.OpRelease: of(func(c *caller, s api.Slot, _ *ipc.Message) (any, error) {
		c.takeSlot(s.Slot).release()
		return nil, nil
	}),
	api.OpCheck: of(func(c *caller, _ struct{}, _ *ipc.Message) ([]runner.Probe, error) { return c.e.check(), nil }),
	api.OpSweep: of(func(c *caller, _ struct{}, _ *ipc.Message) ([]string, error) { return c.e.sweep() }),
}

// withFiles makes a handler for calls with a body of type T.
func withFiles[T, R any](f func(*caller, T, *ipc.Message) (R, ipc.Files, error)) handler {
	return func(c *caller, m *ipc.Message) (any, ipc.Files, error) {
		var body T
		if err := c.decode(m, &body); err != nil {
			return nil, nil, err
		}
		return f(c, body, m)
	}
}

// of makes a handler for calls whose reply has no files.
func of[T, R any](f func(*caller, T, *ipc.Message) (R, error)) handler {
	return withFiles(func(c *caller, body T, m *ipc.Message) (R, ipc.Files, error) {
		reply, err := f(c, body, m)
		return reply, nil, err
	})
}

// onExec makes a handler for calls about a command.
func onExec[R any](f func(*caller, *sandbox.Execution, api.ExecTarget) (R, error)) handler {
	return of(func(c *caller, t api.ExecTarget, _ *ipc.Message) (reply R, err error) {
		x, err := c.e.results.Find(t)
		if err != nil {
			return reply, err
		}
		return f(c, x, t)
	})
}

// onSandbox makes a handler for calls about a sandbox, live or not.
func onSandbox[R any](f func(*caller, *sandbox.Sandbox, api.Target) (R, error)) handler {
	return func(c *caller, m *ipc.Message) (any, ipc.Files, error) {
		var t api.Target
		if err := c.decode(m, &t); err != nil {
			return nil, nil, err
		}
		s, rec, err := c.e.table.locate(t.Sandbox)
		if s == nil {
			c.acked(rec.Info.ID)
			reply, err := c.e.absent(m.Op, t, rec, err)
			if info, ok := reply.(runner.Info); ok {
				c.shorten(&info)
				reply = info
			}
			return reply, nil, err
		}
		reply, err := f(c, s, t)
		return reply, nil, err
	}
}

// wait waits until a command has ended or the caller has disconnected.
func (c *caller) wait(x *sandbox.Execution, _ api.ExecTarget) (*runner.Result, error) {
	select {
	case <-x.Done():
		return x.Result(), nil
	case <-c.peer.Done():
		return nil, ipc.ErrClosed
	}
}

// exec starts a command in a live sandbox.
func (c *caller) exec(req api.ExecRequest, m *ipc.Message) (*api.ExecReply, ipc.Files, error) {
	s, err := c.e.table.live(req.Sandbox)
	if err != nil {
		return nil, nil, err
	}
	c.answers(s)
	if !req.Open {
		return s.Execute(c, req, m)
	}
	opened, err := s.Open()
	if err != nil {
		return nil, nil, err
	}
	reply, files, err := s.Execute(c, req, m)
	if err == nil {
		reply.Opened = &opened
	}
	return reply, files, err
}

// answers lets c answer the questions of a sandbox of its frontend if no caller does: a server that was started again takes
// over from the one before.
func (c *caller) answers(s *sandbox.Sandbox) {
	if c.frontend.Owns(s.Spec()) {
		s.Adopt(c)
	}
}

// attach hands c the terminal of a command.
func (c *caller) attach(t api.Target) (*api.Attached, ipc.Files, error) {
	s, err := c.e.table.live(t.Sandbox)
	if err != nil {
		return nil, nil, err
	}
	return s.Attach(c)
}

// answer forwards a caller's answer to the sandbox that asked.
func (e *Engine) answer(a api.Answer) error {
	s, err := e.table.find(a.Sandbox)
	if err != nil {
		return err
	}
	s.Answer(a)
	return nil
}

// changeEgress changes the egress rules of a live sandbox.
func (e *Engine) changeEgress(change runner.EgressChange) error {
	s, err := e.table.find(change.Sandbox)
	if err != nil {
		return err
	}
	return s.ChangeEgress(change)
}

// changeLimits changes limits of a live sandbox, within the caller's total of all sandboxes. A loan does not change that
// total, and may take time: the table is not held meanwhile.
func (c *caller) changeLimits(change runner.LimitChange) error {
	s, err := c.e.table.live(change.Sandbox)
	if err != nil {
		return err
	}
	defer s.HoldLimits()()
	switch {
	case change.Lent == nil:
	case change.Limits != (runner.Limits{}):
		return ipc.Errorf(ipc.CodeInvalid, "change limits: a loan excludes other changes")
	default:
		return s.Lend(*change.Lent)
	}
	return c.e.table.changeLimits(s, change.Limits, c.most)
}
