// Package pty holds the runner's end of the terminal of a command, and says which caller has it.
//
//	t := pty.New(master, caller)  // the caller that starts the command holds its terminal
//	f, err := t.Dup()             // the descriptor that goes to the holder
//	t.Leave(caller)               // the holder has disconnected
//	recent, ok := t.Take(other)   // another caller attaches
//	t.Close()                     // the command has ended
//
// A terminal has one holder at a time. The holder reads and writes the terminal itself, through its own descriptor.
// Without a holder this package reads the output, so that the command goes on, and keeps its last part for the next
// holder. It does not interpret the data, and opens no terminal: package rootfs opens them in the sandbox's own
// devpts, of which the workload sees only the inner end.
package pty

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"demesne/runner"
)

// scrollback is the number of bytes kept of a terminal's output while it has no holder.
const scrollback = 64 << 10

// Terminal is the terminal of one command. H identifies its holder; the zero H is no holder. mu guards the fields
// after it, except that only the goroutine of keep accesses recent until read is closed.
type Terminal[H comparable] struct {
	master *os.File

	mu     sync.Mutex
	holder H
	reader *os.File // nil: there is a holder, or the output cannot be read
	read   chan struct{}
	recent []byte
}

// New returns the terminal with the outer end master, held by holder.
func New[H comparable](master *os.File, holder H) *Terminal[H] {
	return &Terminal[H]{master: master, holder: holder}
}

// Dup returns a descriptor of the terminal for its holder.
func (t *Terminal[H]) Dup() (*os.File, error) { return dup(t.master) }

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

// Resize sets the size of the terminal.
func (t *Terminal[H]) Resize(w runner.Winsize) error {
	return control(t.master, func(fd uintptr) error {
		return unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: w.Rows, Col: w.Cols})
	})
}

// Close closes the runner's end. The terminal itself lives as long as a descriptor of it.
func (t *Terminal[H]) Close() { t.master.Close() }

// Take makes h the holder, unless there is one, and returns the output since the last holder left.
func (t *Terminal[H]) Take(h H) (recent []byte, ok bool) {
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

// Leave starts reading the terminal if h was the holder.
func (t *Terminal[H]) Leave(h H) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder != h {
		return
	}
	var none H
	t.holder = none
	own, err := dup(t.master) // non-blocking, so that closing it ends a read
	if err != nil {
		return // the command blocks when the terminal's buffer is full
	}
	t.reader, t.read = own, make(chan struct{})
	go t.keep(t.reader, t.read)
}

// keep reads until the terminal is taken or its command ends.
func (t *Terminal[H]) keep(from *os.File, done chan struct{}) {
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
