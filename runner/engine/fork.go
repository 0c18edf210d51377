package engine

import (
	"path/filepath"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/sandbox"
)

// fork makes a fork for c. It is removed when c ends if it is ephemeral (t.Ephemeral). An unnamed fork is removed,
// too, unless c has called about it by then, which shows that its id arrived.
func (c *caller) fork(t api.ForkRequest) (runner.Forked, error) {
	if err := sandbox.ValidName(t.Name); err != nil {
		return runner.Forked{}, err
	}
	t.Frontend, t.Name = c.frontend, c.frontend.Full(t.Name)
	f, err := c.makeFork(t)
	if err != nil {
		return f, err
	}
	c.mu.Lock()
	gone := c.gone
	if t.Ephemeral || gone {
		c.ephemeral = append(c.ephemeral, f.ID)
	} else if t.Name == "" {
		c.unacked = append(c.unacked, f.ID)
	}
	c.mu.Unlock()
	if gone {
		c.removeForks()
	}
	return f, nil
}

// makeFork makes a sandbox or snapshot from the files of another. It copies nothing if no process runs in the other.
func (c *caller) makeFork(t api.ForkRequest) (runner.Forked, error) {
	e := c.e
	if err := e.admitFork(t); err != nil {
		return runner.Forked{}, err
	}
	live, rec, err := e.table.locate(t.Sandbox)
	if err != nil {
		return runner.Forked{}, err
	}
	from := &rec.Info
	if live != nil {
		info := live.Info()
		from = &info
	}
	if !t.Snapshot && from.Spec.Served() != nil {
		return runner.Forked{}, ipc.Errorf(ipc.CodeInvalid, "fork sandbox %q: it has a Docker socket, whose containers cannot be forked", from.ID)
	}
	if !t.Snapshot && !t.Ephemeral {
		place, err := c.reserve("", "")
		if err != nil {
			return runner.Forked{}, err
		}
		defer place.release() // its record counts by then
		t.ID = place.id
	}
	if live == nil {
		return e.machine.ForkStopped(rec.Info.ID, t)
	}
	f, stopped, err := live.Fork(t)
	if stopped {
		return e.machine.ForkStopped(live.ID(), t)
	}
	return f, err
}

// admitFork rejects an invalid request.
func (e *Engine) admitFork(t api.ForkRequest) error {
	if !t.Snapshot && !filepath.IsAbs(t.Out) {
		return ipc.Errorf(ipc.CodeInvalid, "fork sandbox: output directory %q: not absolute", t.Out)
	}
	if t.Name == "" {
		return nil
	}
	if _, _, err := e.table.locate(t.Name); err == nil {
		return ipc.Errorf(ipc.CodeExists, "fork sandbox: the name %q is in use", t.Frontend.Short(t.Name))
	}
	return nil
}
