package cli

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
)

// terminal is the caller's own terminal, while a command has a terminal inside the sandbox.
type terminal struct {
	fd    int // -1: the caller has no terminal
	mu    sync.Mutex
	saved *unix.Termios
	raw   *unix.Termios
	keys  *detachKeys // nil: no keys detach from the command
	typed *pump       // copies what is typed; nil: nothing does

	answers *answers // may be nil
	floor   floor    // of output; may be nil
	over    <-chan struct{}
}

// edit returns what of the user's input is for the command.
func (t *terminal) edit(typed []byte) ([]byte, error) {
	typed = t.answers.divert(typed)
	if t.keys == nil {
		return typed, nil
	}
	return t.keys.edit(typed)
}

// openTerminal returns the caller's terminal. Its fd is -1 if stdin is not a terminal.
func (c *files) openTerminal() *terminal {
	fd := fdOf(c.stdin)
	if !isTerminal(c.stdin) {
		fd = -1
	}
	return &terminal{fd: fd}
}

// size returns the size of the caller's terminal, or 24x80 if it is unknown.
func (t *terminal) size() runner.Winsize {
	w, err := unix.IoctlGetWinsize(t.fd, unix.TIOCGWINSZ)
	if err != nil || w.Row == 0 || w.Col == 0 {
		return runner.Winsize{Rows: 24, Cols: 80}
	}
	return runner.Winsize{Rows: w.Row, Cols: w.Col}
}

// makeRaw passes every key on to the terminal inside, which echoes it and turns Ctrl-C into a signal.
func (t *terminal) makeRaw() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fd < 0 {
		return nil
	}
	saved, err := unix.IoctlGetTermios(t.fd, unix.TCGETS)
	if err != nil {
		return os.NewSyscallError("tcgetattr", err)
	}
	raw := *saved
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(t.fd, unix.TCSETS, &raw); err != nil {
		return os.NewSyscallError("tcsetattr", err)
	}
	t.saved, t.raw = saved, &raw
	return nil
}

// restore undoes makeRaw. It may be called at any time, and more than once.
func (t *terminal) restore() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.saved != nil {
		unix.IoctlSetTermios(t.fd, unix.TCSETS, t.saved)
		t.saved = nil
	}
}

// resume makes the terminal raw again after a stop: between SIGSTOP and SIGCONT a shell may have used it.
func (t *terminal) resume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.saved != nil {
		unix.IoctlSetTermios(t.fd, unix.TCSETS, t.raw)
	}
}

// connect copies between the caller and master, the controlling end of the terminal inside. If the caller has
// no terminal, its stdin is copied only with -i.
func (t *terminal) connect(on *files, master *os.File, interactive bool, kept *capture, first func()) *pump {
	// If the caller closes stdout, the pump ends and closes master, which hangs up the terminal inside.
	out := &pump{src: master, dst: on.stdout, floor: t.floor, over: t.over, first: first, end: func() { master.Close(); t.restore() }}
	if kept != nil {
		out.dst, out.keep = nil, &kept.out
	}
	out.start()
	if t.fd >= 0 || interactive {
		in := &pump{src: on.stdin, dst: master}
		if t.keys != nil || t.answers != nil {
			in.edit = t.edit
		}
		if t.fd < 0 {
			in.end = func() { endInput(master, in.last, out.done) }
		}
		in.start()
		t.typed = in
	}
	return out
}

// endInput types the end-of-file keys until the terminal inside is closed. Once is not enough: a terminal has
// no end of file, and a shell that turns its line editing on takes what was typed before that for something
// else.
func endInput(master *os.File, last byte, ended <-chan struct{}) {
	midLine := last != '\n' && last != 0
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		modes, err := unix.IoctlGetTermios(fdOf(master), unix.TCGETS) // the settings of the other end, tty_ioctl(4)
		if err != nil {
			return
		}
		edited := modes.Lflag&unix.ICANON == 0
		if writeAll(fdOf(master), endOfFile(edited, midLine)) != nil {
			return
		}
		midLine = midLine && !edited
		select {
		case <-ended:
			return
		case <-time.After(pause):
		}
	}
}

// endOfFile returns the keys that signal end of file on a terminal: Ctrl-D. In the middle of a line Ctrl-D only submits
// that line, so two are needed. If the program edits the line itself, only Enter submits it.
func endOfFile(edited, midLine bool) []byte {
	const eof, enter = 4, '\r'
	switch {
	case midLine && edited:
		return []byte{enter, eof}
	case midLine:
		return []byte{eof, eof}
	}
	return []byte{eof}
}

// drainTerminal waits for the remaining output of a terminal whose command has ended. It returns when every
// process has closed the other end, or when the terminal has been silent for a moment with no data pending. It
// also returns if the pump makes no progress for the time of patience.
func drainTerminal(out *pump) {
	const silent, limit = 30 * time.Millisecond, patience
	seen, since := int64(-1), time.Now()
	for {
		select {
		case <-out.done:
			return
		case <-time.After(5 * time.Millisecond):
		}
		idle := time.Since(since)
		switch moved := out.moved.Load(); {
		case moved != seen:
			seen, since = moved, time.Now()
		case idle > limit, idle > silent && !out.pending() && !out.busy.Load():
			return
		}
	}
}
