package engine

import (
	"syscall"

	"demesne/runner"
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
	switch m.Op {
	case runner.OpCreate:
		var spec runner.Spec
		if err := m.Decode(&spec); err != nil {
			return nil, nil, err
		}
		reply, err := c.create(spec, m)
		return reply, nil, err
	case runner.OpRun:
		var req runner.RunRequest
		if err := m.Decode(&req); err != nil {
			return nil, nil, err
		}
		return c.launch(req, m)
	case runner.OpExec:
		var req runner.ExecRequest
		if err := m.Decode(&req); err != nil {
			return nil, nil, err
		}
		s, rec, err := c.e.locate(req.Sandbox)
		if err == nil && s == nil {
			err = stopped(rec)
		}
		if err != nil {
			return nil, nil, err
		}
		reply, files, err := s.exec(c, req, m)
		return reply, files, err
	case runner.OpAttach:
		var t runner.Target
		if err := m.Decode(&t); err != nil {
			return nil, nil, err
		}
		attached, files, err := c.attach(t)
		return attached, files, err
	case runner.OpDiff:
		var t runner.Target
		if err := m.Decode(&t); err != nil {
			return nil, nil, err
		}
		diff, err := c.e.diff(t.Sandbox)
		return diff, nil, err
	case runner.OpLayer:
		var t runner.LayerRequest
		if err := m.Decode(&t); err != nil {
			return nil, nil, err
		}
		layered, err := c.e.layer(t, m.File(runner.FileLayer))
		return layered, nil, err
	case runner.OpFork:
		var t runner.ForkRequest
		if err := m.Decode(&t); err != nil {
			return nil, nil, err
		}
		forked, err := c.fork(t)
		return forked, nil, err
	case runner.OpRestart:
		var t runner.Restart
		if err := m.Decode(&t); err != nil {
			return nil, nil, err
		}
		reply, err := c.restart(t, m)
		return reply, nil, err
	case runner.OpWait, runner.OpSignal, runner.OpResize:
		return c.dispatchExec(m)
	case runner.OpOpen, runner.OpStop, runner.OpInspect:
		return c.dispatchSandbox(m)
	case runner.OpEgress, runner.OpAnswer:
		return nil, nil, c.dispatchEgress(m)
	case runner.OpList:
		if err := c.e.settled(); err != nil {
			return nil, nil, err
		}
		return c.e.list(), nil, nil
	case runner.OpCheck:
		if err := c.e.settled(); err != nil {
			return nil, nil, err
		}
		return c.e.check(), nil, nil
	case runner.OpSweep:
		if err := c.e.settled(); err != nil {
			return nil, nil, err
		}
		removed, err := c.e.sweep()
		return removed, nil, err
	}
	return nil, nil, wire.Errorf(wire.CodeInvalid, "serve call: unknown operation %q", m.Op)
}

func (c *caller) dispatchExec(m *wire.Message) (any, wire.Files, error) {
	var t runner.ExecTarget
	if err := m.Decode(&t); err != nil {
		return nil, nil, err
	}
	x, err := c.e.findExec(t)
	if err != nil {
		return nil, nil, err
	}
	switch m.Op {
	case runner.OpSignal:
		return nil, nil, x.signal(syscall.Signal(t.Signal))
	case runner.OpResize:
		return nil, nil, x.resize(t.TTY)
	}
	select {
	case <-x.done:
		return x.result, nil, nil
	case <-c.peer.Done():
		return nil, nil, wire.ErrClosed
	}
}

func (c *caller) dispatchSandbox(m *wire.Message) (any, wire.Files, error) {
	var t runner.Target
	if err := m.Decode(&t); err != nil {
		return nil, nil, err
	}
	if err := c.e.settled(); err != nil {
		return nil, nil, err
	}
	s, rec, err := c.e.locate(t.Sandbox)
	switch {
	case s == nil:
		reply, err := c.e.absent(m.Op, t, rec, err)
		return reply, nil, err
	case m.Op == runner.OpInspect:
		return s.info(), nil, nil
	case m.Op == runner.OpOpen:
		opened, err := s.open()
		return opened, nil, err
	}
	return nil, nil, s.stop(t.Keep)
}
