package engine

import (
	"os"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"
)

// openTTY opens a terminal in the sandbox's own devpts. The workload sees only its inner end; the other end goes to
// the caller.
func (x *execution) openTTY(c *caller, req api.ExecRequest, g *pid1api.Exec) error {
	if x.s.tree == nil {
		return ipc.Errorf(ipc.CodeInvalid, "open terminal: a sandbox without namespaces has no devpts of its own")
	}
	master, n, err := x.s.tree.OpenPTY(int(g.UID), int(g.GID))
	if err != nil {
		return err
	}
	x.s.mu.Lock() // other goroutines may already look for a terminal
	x.tty, x.screen.holder = master, c
	x.s.mu.Unlock()
	g.TTY = &n
	return x.resize(req.TTY)
}

func dup(f *os.File) (*os.File, error) {
	var fd int
	err := control(f, func(n uintptr) (err error) {
		fd, err = unix.FcntlInt(n, unix.F_DUPFD_CLOEXEC, 3)
		return err
	})
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// control calls do with the descriptor of f and keeps it non-blocking, which f.Fd would not.
func control(f *os.File, do func(fd uintptr) error) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := rc.Control(func(fd uintptr) { err = do(fd) }); cerr != nil {
		return cerr
	}
	return err
}

func (x *execution) resize(w *runner.Winsize) error {
	if x.tty == nil || w == nil {
		return ipc.Errorf(ipc.CodeInvalid, "resize terminal: the command has none")
	}
	return control(x.tty, func(fd uintptr) error {
		return unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: w.Rows, Col: w.Cols})
	})
}
