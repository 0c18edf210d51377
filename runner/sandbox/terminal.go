package sandbox

import (
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"
	"demesne/runner/pty"
)

// openTTY opens a terminal in the sandbox's own devpts. The workload sees only its inner end; the other end goes to
// the caller.
func (x *Execution) openTTY(c Caller, req api.ExecRequest, g *pid1api.Exec) error {
	if x.s.files.tree == nil {
		return ipc.Errorf(ipc.CodeInvalid, "open terminal: a sandbox without namespaces has no devpts of its own")
	}
	master, n, err := x.s.files.tree.OpenPTY(int(g.UID), int(g.GID))
	if err != nil {
		return err
	}
	x.s.mu.Lock() // other goroutines may already look for a terminal
	x.tty = pty.New(master, c)
	x.s.mu.Unlock()
	g.TTY = &n
	return x.Resize(req.TTY)
}

// Resize sets the size of the terminal of x.
func (x *Execution) Resize(w *runner.Winsize) error {
	if x.tty == nil || w == nil {
		return ipc.Errorf(ipc.CodeInvalid, "resize terminal: the command has none")
	}
	return x.tty.Resize(*w)
}

// Attach hands c the terminal of the last started command that has one.
func (s *Sandbox) Attach(c Caller) (*api.Attached, ipc.Files, error) {
	s.mu.Lock()
	x := s.commands.lastTerminal()
	s.mu.Unlock()
	if x == nil {
		return nil, nil, ipc.Errorf(ipc.CodeNoSuchSandbox, "attach to sandbox %q: no command in it has a terminal", s.id)
	}
	recent, ok := x.tty.Take(c)
	if !ok {
		return nil, nil, ipc.Errorf(ipc.CodeBusy, "attach to sandbox %q: another caller has the terminal of its command", s.id)
	}
	x.leaveIfGone(c)
	tty, err := x.tty.Dup()
	if err != nil {
		return nil, nil, err
	}
	return &api.Attached{Exec: x.id, Recent: recent}, ipc.Files{"tty": tty}, nil
}

// lastTerminal returns the last started command that has a terminal, or nil. mu is held.
func (c *commands) lastTerminal() (last *Execution) {
	for _, x := range c.running {
		if x.tty != nil && (last == nil || x.id > last.id) {
			last = x
		}
	}
	return last
}

// leaveIfGone handles a caller that disconnected before it got the terminal.
func (x *Execution) leaveIfGone(c Caller) {
	if c.Left() {
		x.tty.Leave(c)
	}
}

// CallerLeft ends the commands that c, which has disconnected, started in a persistent sandbox: no caller could end
// them any more. A command with a terminal goes on, and callers can attach to it.
func (s *Sandbox) CallerLeft(c Caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.commands.running {
		switch {
		case x.tty != nil:
			x.tty.Leave(c)
		case x.asker == c && x.begun:
			go x.kill(initTimeout)
		}
	}
}
