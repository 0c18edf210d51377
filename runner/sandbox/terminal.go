package sandbox

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"
)

// This file holds the runner's end of the terminal of a command, and says which caller holds it.
//
//	t := newTerminal(master, caller)  // the caller that starts the command holds its terminal
//	f, err := t.dup()                 // the descriptor that goes to the holder
//	t.leave(caller)                   // the holder has disconnected
//	recent, ok := t.take(other)       // another caller attaches
//	t.close()                         // the command has ended
//
// A terminal has one holder at a time. The holder reads and writes the terminal itself, through its own descriptor.
// Without a holder the runner reads the output, so that the command goes on, and keeps its last part for the next
// holder. It does not interpret the data, and opens no terminal: package rootfs opens them in the sandbox's own
// devpts, of which the workload sees only the inner end.

// openTTY opens a terminal in the sandbox's own devpts. The workload sees only its inner end; the other end goes to
// the caller.
func (x *Execution) openTTY(c Caller, req api.ExecRequest, g *pid1api.Exec) error {
	if x.s.machine.minimal() {
		return ipc.Errorf(ipc.CodeInvalid, "open terminal: a sandbox without namespaces has no devpts of its own")
	}
	master, n, err := x.s.files.tree.OpenPTY(int(g.UID), int(g.GID))
	if err != nil {
		return err
	}
	x.s.mu.Lock() // other goroutines may already look for a terminal
	x.tty = newTerminal(master, c)
	x.s.mu.Unlock()
	g.TTY = &n
	return x.Resize(req.TTY)
}

// Resize sets the size of the terminal of x.
func (x *Execution) Resize(w *runner.Winsize) error {
	if x.tty == nil || w == nil {
		return ipc.Errorf(ipc.CodeInvalid, "resize terminal: the command has none")
	}
	return x.tty.resize(*w)
}

// Attach hands c the terminal of the last started command that has one.
func (s *Sandbox) Attach(c Caller) (*api.Attached, ipc.Files, error) {
	s.mu.Lock()
	x := s.commands.lastTerminal()
	s.mu.Unlock()
	if x == nil {
		return nil, nil, ipc.Errorf(ipc.CodeNoSuchCommand, "attach to sandbox %q: no command in it has a terminal", s.id)
	}
	recent, ok := x.tty.take(c)
	if !ok {
		return nil, nil, ipc.Errorf(ipc.CodeBusy, "attach to sandbox %q: another caller has the terminal of its command", s.id)
	}
	x.leaveIfGone(c)
	tty, err := x.tty.dup()
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
		x.tty.leave(c)
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
			x.tty.leave(c)
		case x.asker == c && x.begun:
			go x.kill(initTimeout)
		}
	}
}

// scrollback is the number of bytes kept of a terminal's output while it has no holder.
const scrollback = 64 << 10

// terminal is the terminal of one command. H identifies its holder; the zero H is no holder. mu guards the fields
// after it, except that only the goroutine of keep accesses recent until read is closed.
type terminal[H comparable] struct {
	master *os.File

	mu     sync.Mutex
	holder H
	reader *os.File // nil: there is a holder, or the output cannot be read
	read   chan struct{}
	recent []byte
}

// newTerminal returns the terminal with the outer end master, held by holder.
func newTerminal[H comparable](master *os.File, holder H) *terminal[H] {
	return &terminal[H]{master: master, holder: holder}
}

// dup returns a descriptor of the terminal for its holder.
func (t *terminal[H]) dup() (*os.File, error) { return dupFile(t.master) }

func dupFile(f *os.File) (*os.File, error) {
	var fd int
	err := controlFile(f, func(n uintptr) (err error) {
		fd, err = unix.FcntlInt(n, unix.F_DUPFD_CLOEXEC, 3)
		return err
	})
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// controlFile calls do with the descriptor of f and keeps it non-blocking, which f.Fd would not.
func controlFile(f *os.File, do func(fd uintptr) error) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := rc.Control(func(fd uintptr) { err = do(fd) }); cerr != nil {
		return cerr
	}
	return err
}

// resize sets the size of the terminal.
func (t *terminal[H]) resize(w runner.Winsize) error {
	return controlFile(t.master, func(fd uintptr) error {
		return unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: w.Rows, Col: w.Cols})
	})
}

// close closes the runner's end. The terminal itself lives as long as a descriptor of it.
func (t *terminal[H]) close() { t.master.Close() }

// take makes h the holder, unless there is one, and returns the output since the last holder left.
func (t *terminal[H]) take(h H) (recent []byte, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var none H
	if t.holder != none {
		return nil, false
	}
	t.holder = h
	if t.reader != nil {
		t.reader.Close()
		<-t.read
		t.reader = nil
	}
	recent, t.recent = t.recent[max(0, len(t.recent)-scrollback):], nil
	return recent, true
}

// leave starts reading the terminal if h was the holder.
func (t *terminal[H]) leave(h H) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder != h {
		return
	}
	var none H
	t.holder = none
	own, err := dupFile(t.master) // non-blocking, so that closing it ends a read
	if err != nil {
		return // the command blocks when the terminal's buffer is full
	}
	t.reader, t.read = own, make(chan struct{})
	go t.keep(t.reader, t.read)
}

// keep reads until the terminal is taken or its command ends.
func (t *terminal[H]) keep(from *os.File, done chan struct{}) {
	defer close(done)
	defer from.Close()
	buf := make([]byte, 4<<10)
	for {
		n, err := from.Read(buf)
		t.recent = append(t.recent, buf[:n]...) // no other goroutine accesses it before done is closed
		if over := len(t.recent) - scrollback; over > scrollback {
			t.recent = append(t.recent[:0], t.recent[over:]...)
		}
		if err != nil {
			return
		}
	}
}
