package pid1

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"slices"
	"syscall"

	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"

	"golang.org/x/sys/unix"
)

// handleExec starts a command. It sends the reply before it releases mu, so the reaper cannot report the
// command's exit earlier.
func (g *guest) handleExec(m *ipc.Message) error {
	var req pid1api.Exec
	if err := m.Decode(&req); err != nil {
		return ipc.Errorf(ipc.CodeInvalid, "execute: %w", err)
	}
	if !g.ready {
		return ipc.Errorf(ipc.CodeInvalid, "execute: not set up")
	}
	c, err := g.command(m, &req)
	if err != nil {
		return err
	}
	defer c.close()
	if g.protected != nil {
		return ipc.Errorf(ipc.CodeInternal, "execute: %w", g.protected)
	}
	if err := g.limits.set(req.Rlimits); err != nil {
		return err
	}

	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.pids[req.Exec]; ok {
		return ipc.Errorf(ipc.CodeExists, "execute: exec %d is running", req.Exec)
	}
	pid, err := c.start()
	if err != nil {
		return err
	}
	g.running[pid], g.pids[req.Exec] = req.Exec, pid
	select {
	case g.started <- struct{}{}:
	default:
	}
	return g.peer.Reply(m, pid1api.Executed{PID: pid}, nil)
}

// handleSignal signals a command or its process group. While mu is held the command's pid is not reaped, so it
// cannot belong to another process.
func (g *guest) handleSignal(m *ipc.Message) error {
	var req pid1api.Signal
	if err := m.Decode(&req); err != nil {
		return ipc.Errorf(ipc.CodeInvalid, "signal: %w", err)
	}
	if req.All {
		if err := g.killAll(); err != nil {
			return err
		}
		return g.peer.Reply(m, struct{}{}, nil)
	}
	g.mu.Lock()
	pid, ok := g.pids[req.Exec]
	if ok && req.Group {
		pid = -pid
	}
	var err error
	if ok {
		err = unix.Kill(pid, syscall.Signal(req.Signal))
	}
	g.mu.Unlock()
	switch {
	case !ok:
		return ipc.Errorf(ipc.CodeNoSuchCommand, "signal: exec %d is not running", req.Exec)
	case errors.Is(err, unix.EINVAL):
		return ipc.Errorf(ipc.CodeInvalid, "signal %d: %w", req.Signal, err)
	case err != nil:
		return ipc.Errorf(ipc.CodeInternal, "signal %d: %w", req.Signal, err)
	}
	return g.peer.Reply(m, struct{}{}, nil)
}

// command is a request prepared for start.
type command struct {
	argv  []string
	rest  [][]ipc.Bytes // the further command lines
	env   []string
	dir   string
	who   identity
	files []uintptr
	held  []*os.File
	attr  syscall.SysProcAttr
}

// command translates req. The descriptors of m become the command's.
func (g *guest) command(m *ipc.Message, req *pid1api.Exec) (*command, error) {
	lines := append([][]ipc.Bytes{req.Argv}, req.Else...)
	if slices.ContainsFunc(lines, func(argv []ipc.Bytes) bool { return len(argv) == 0 || len(argv[0]) == 0 }) {
		return nil, ipc.Errorf(ipc.CodeInvalid, "execute: no command")
	}
	for _, b := range slices.Concat(slices.Concat(lines...), req.Env, req.Path, []ipc.Bytes{req.Dir}) {
		if bytes.IndexByte(b, 0) >= 0 {
			return nil, ipc.Errorf(ipc.CodeInvalid, "execute %q: NUL byte", req.Argv[0])
		}
	}
	c := &command{
		argv: ipc.Strings(req.Argv),
		rest: req.Else,
		env:  ipc.Strings(req.Env),
		dir:  cmp.Or(string(req.Dir), "/"),
		who:  identity{change: req.SetIDs, uid: req.UID, gid: req.GID},
		attr: g.attr(req),
	}
	c.addPath(ipc.Strings(req.Path))
	if req.TTY != nil {
		tty, err := c.who.openTTY(*req.TTY)
		if err != nil {
			return nil, err
		}
		c.held = []*os.File{tty}
		c.files = []uintptr{tty.Fd(), tty.Fd(), tty.Fd()}
		c.attr.Setctty = true // descriptor 0 of the command
		return c, nil
	}
	for n, name := range ipc.Descriptors() {
		f := m.File(name)
		switch {
		case f != nil:
			c.held = append(c.held, f)
		case n > 2: // Extra has no gaps
			continue
		case g.null != nil:
			f = g.null
		default:
			c.close()
			return nil, ipc.Errorf(ipc.CodeInternal, "execute: the call has no %s, and there is no /dev/null", name)
		}
		c.files = append(c.files, f.Fd())
	}
	return c, nil
}

func (c *command) close() {
	for _, f := range c.held {
		f.Close()
	}
}

// attr returns the attributes of the command's process before execve. The process leads a session and has the
// requested user. With Subreaper it dies when the spawner dies.
//
// A command of uid 0 gets KeepCaps and RootCaps through execve. A command of another uid needs KeepCaps as
// ambient capabilities, which Go raises after it changes ids. PID 1's own sets do not change.
func (g *guest) attr(req *pid1api.Exec) syscall.SysProcAttr {
	a := syscall.SysProcAttr{Setsid: true}
	uid := uint32(os.Geteuid())
	if req.SetIDs {
		// Also for PID 1's own ids, because it includes setgroups.
		a.Credential = &syscall.Credential{Uid: req.UID, Gid: req.GID, Groups: req.Groups}
		uid = req.UID
	}
	if uid != 0 {
		for _, c := range g.setup.KeepCaps {
			a.AmbientCaps = append(a.AmbientCaps, uintptr(c))
		}
	}
	if g.setup.Subreaper {
		a.Pdeathsig = syscall.SIGKILL
	}
	return a
}
