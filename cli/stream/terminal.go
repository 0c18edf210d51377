package stream

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
)

// Terminal is the caller's own terminal, while a command has a terminal inside the sandbox.
type Terminal struct {
	Fd    int // -1: the caller has no terminal
	mu    sync.Mutex
	saved *unix.Termios
	raw   *unix.Termios
	Keys  *DetachKeys // nil: no keys detach from the command
	Typed *Pump       // copies what is typed; nil: nothing does

	Answers *Answers // may be nil
	Floor   Floor    // of output; may be nil
	Over    <-chan struct{}
}

// edit returns what of the user's input is for the command.
func (t *Terminal) edit(typed []byte) ([]byte, error) {
	typed = t.Answers.divert(typed)
	if t.Keys == nil {
		return typed, nil
	}
	return t.Keys.edit(typed)
}

// OpenTerminal returns the caller's terminal. Its fd is -1 if stdin is not a terminal.
func (c *Files) OpenTerminal() *Terminal {
	fd := FD(c.Stdin)
	if !IsTerminal(c.Stdin) {
		fd = -1
	}
	return &Terminal{Fd: fd}
}

// Size returns the size of the caller's terminal, or 24x80 if it is unknown.
func (t *Terminal) Size() runner.Winsize {
	w, err := unix.IoctlGetWinsize(t.Fd, unix.TIOCGWINSZ)
	if err != nil || w.Row == 0 || w.Col == 0 {
		return runner.Winsize{Rows: 24, Cols: 80}
	}
	return runner.Winsize{Rows: w.Row, Cols: w.Col}
}

// MakeRaw passes every key on to the terminal inside, which echoes it and turns Ctrl-C into a signal.
func (t *Terminal) MakeRaw() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.Fd < 0 {
		return nil
	}
	saved, err := unix.IoctlGetTermios(t.Fd, unix.TCGETS)
	if err != nil {
		return os.NewSyscallError("tcgetattr", err)
	}
	raw := *saved
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(t.Fd, unix.TCSETS, &raw); err != nil {
		return os.NewSyscallError("tcsetattr", err)
	}
	t.saved, t.raw = saved, &raw
	return nil
}

// Restore undoes MakeRaw. It may be called at any time, and more than once.
func (t *Terminal) Restore() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.saved != nil {
		unix.IoctlSetTermios(t.Fd, unix.TCSETS, t.saved)
		t.saved = nil
	}
}

// resume makes the terminal raw again after a stop: between SIGSTOP and SIGCONT a shell may have used it.
func (t *Terminal) resume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.saved != nil {
		unix.IoctlSetTermios(t.Fd, unix.TCSETS, t.raw)
	}
}

// Connect copies between the caller and master, the controlling end of the terminal inside. If the caller has
// no terminal, its stdin is copied only with -i.
func (t *Terminal) Connect(on *Files, master *os.File, interactive bool, kept *Capture, first func()) *Pump {
	// If the caller closes stdout, the pump ends and closes master, which hangs up the terminal inside.
	out := &Pump{src: master, dst: on.Stdout, floor: t.Floor, over: t.Over, first: first, end: func() { master.Close(); t.Restore() }}
	if kept != nil {
		out.dst, out.keep = nil, &kept.out
	}
	out.start()
	if t.Fd >= 0 || interactive {
		in := &Pump{src: on.Stdin, dst: master}
		if t.Keys != nil || t.Answers != nil {
			in.edit = t.edit
		}
		if t.Fd < 0 {
			in.end = func() { endInput(master, in.last, out.Done) }
		}
		in.start()
		t.Typed = in
	}
	return out
}

// endInput types the end-of-file keys until the terminal inside is closed. Once is not enough: a terminal has
// no end of file, and a shell that turns its line editing on takes what was typed before that for something
// else.
func endInput(master *os.File, last byte, ended <-chan struct{}) {
	midLine := last != '\n' && last != 0
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		modes, err := unix.IoctlGetTermios(FD(master), unix.TCGETS) // the settings of the other end, tty_ioctl(4)
		if err != nil {
			return
		}
		edited := modes.Lflag&unix.ICANON == 0
		if WriteAll(FD(master), EndOfFile(edited, midLine)) != nil {
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

// EndOfFile returns the keys that signal end of file on a terminal: Ctrl-D. In the middle of a line Ctrl-D only submits
// that line, so two are needed. If the program edits the line itself, only Enter submits it.
func EndOfFile(edited, midLine bool) []byte {
	const eof, enter = 4, '\r'
	switch {
	case midLine && edited:
		return []byte{enter, eof}
	case midLine:
		return []byte{eof, eof}
	}
	return []byte{eof}
}

// DrainTerminal waits for the remaining output of a terminal whose command has ended. It returns when every
// process has closed the other end, or when the terminal has been silent for a moment with no data pending. It also returns if
// the pump does not progress for the time of patience.
func (p *Pump) DrainTerminal() {
	const silent, limit = 30 * time.Millisecond, Patience
	seen, since := int64(-1), time.Now()
	for {
		select {
		case <-p.Done:
			return
		case <-time.After(5 * time.Millisecond):
		}
		idle := time.Since(since)
		switch moved := p.moved.Load(); {
		case moved != seen:
			seen, since = moved, time.Now()
		case idle > limit, idle > silent && !p.pending() && !p.busy.Load():
			return
		}
	}
}
