package engine

import (
	"os"
	"sync"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
)

// scrollback is the number of bytes kept of a terminal's output while no caller holds the terminal.
const scrollback = 64 << 10

// screen is a command's terminal and its holder, one caller at a time. Without a holder the output is read, so that
// the command goes on, and its last part is kept for the next holder.
type screen struct {
	mu     sync.Mutex
	holder *caller
	reader *os.File // the runner's own descriptor of the terminal
	read   chan struct{}
	recent []byte
}

// attach hands c the terminal of the last started command that has one.
func (c *caller) attach(t api.Target) (*api.Attached, ipc.Files, error) {
	s, rec, err := c.e.locate(t.Sandbox)
	if err == nil && s == nil {
		err = stopped(rec)
	}
	if err != nil {
		return nil, nil, err
	}
	x := s.lastTerminal()
	if x == nil {
		return nil, nil, ipc.Errorf(ipc.CodeNoSuchSandbox, "attach to sandbox %q: no command in it has a terminal", s.id)
	}
	recent, ok := x.screen.take(c)
	if !ok {
		return nil, nil, ipc.Errorf(ipc.CodeBusy, "attach to sandbox %q: another caller has the terminal of its command", s.id)
	}
	x.leaveIfGone(c)
	tty, err := dup(x.tty)
	if err != nil {
		return nil, nil, err
	}
	return &api.Attached{Exec: x.id, Recent: recent}, ipc.Files{"tty": tty}, nil
}

func (s *sandbox) lastTerminal() (last *execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.execs {
		if x.tty != nil && (last == nil || x.id > last.id) {
			last = x
		}
	}
	return last
}

// take makes c the holder, unless there is one, and returns the output since the last holder left.
func (t *screen) take(c *caller) (recent []byte, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder != nil {
		return nil, false
	}
	t.holder = c
	if t.reader != nil {
		t.reader.Close()
		<-t.read
		t.reader = nil
	}
	recent, t.recent = t.recent[max(0, len(t.recent)-scrollback):], nil
	return recent, true
}

// leaveIfGone handles a caller that disconnected before it got the terminal.
func (x *execution) leaveIfGone(c *caller) {
	if c.left() {
		x.screen.leave(c, x.tty)
	}
}

// left ends the commands that c, which has disconnected, started in persistent sandboxes: no caller could end them
// any more. A command with a terminal goes on, and callers can attach to it.
func (e *Engine) left(c *caller) {
	for _, s := range e.ofSpec(func(spec *runner.Spec) bool { return spec.Lifetime == runner.Persistent }) {
		s.mu.Lock()
		for _, x := range s.execs {
			switch {
			case x.tty != nil:
				x.screen.leave(c, x.tty)
			case x.asker == c && x.begun:
				go x.kill(initTimeout)
			}
		}
		s.mu.Unlock()
	}
}

// leave starts reading tty if c was the holder.
func (t *screen) leave(c *caller, tty *os.File) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder != c {
		return
	}
	t.holder = nil
	own, err := dup(tty) // non-blocking, so that closing it ends a read
	if err != nil {
		return // the command blocks when the terminal's buffer is full
	}
	t.reader, t.read = own, make(chan struct{})
	go t.keep(t.reader, t.read)
}

// keep reads until the terminal is taken or its command ends.
func (t *screen) keep(from *os.File, done chan struct{}) {
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
