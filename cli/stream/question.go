package stream

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Controlling is the controlling terminal of the user, whatever stdin and stdout are.
const Controlling = "/dev/tty"

// Floor serializes writes to the user's terminal. The command takes it for each write, and --ask until the
// question is answered, so that the command's output cannot follow or overwrite the question. The writer holds
// it by sending. A nil floor never blocks.
type Floor chan struct{}

// Take acquires the floor. It stops waiting when over is closed: after that there is no other writer.
func (f Floor) Take(over <-chan struct{}) (leave func()) {
	if f == nil {
		return func() {}
	}
	select {
	case f <- struct{}{}:
		return func() { <-f }
	case <-over:
		return func() {}
	}
}

// Prompts of a question. A command that has the terminal redraws its screen afterwards, so resetRaw resets only what
// would hide the question: escape sequence, synchronized update, character set, colours and margins. It goes to the last
// line.
const resetRaw = "\x18\x1b[?2026l\x0f\x1b(B\x1b[0m\x1b[r\x1b[999;1H\r\n"

// Reset ends whatever state the command's output has left on the terminal: an escape sequence, a synchronized update,
// another character set, colours, margins.
const Reset = "\x18\x1b[?2026l\x0f\x1b[!p\x1b[0m\n"

// Answers reads the user's answers: from the terminal, or from what the user types to a command that uses the terminal.
type Answers struct {
	mu     sync.Mutex
	raw    bool   // a command has the terminal
	redraw func() // makes it redraw its screen
	asked  time.Time
	typed  []byte
	lines  chan string // nil: nothing is asked
	echo   *os.File
}

// ignoreKeys is how long after a question keys are ignored: they were meant for the command.
const ignoreKeys = 300 * time.Millisecond

// Line asks a question on f, and returns the line that the user types.
func (a *Answers) Line(f *os.File, question string, late time.Time) (string, error) {
	a.mu.Lock()
	if !a.raw {
		a.mu.Unlock()
		f.SetReadDeadline(late)
		forget(f)
		fmt.Fprint(f, Reset+question)
		return bufio.NewReader(f).ReadString('\n')
	}
	lines := make(chan string, 1)
	a.lines, a.echo, a.typed, a.asked = lines, f, nil, time.Now()
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.lines = nil
		redraw := a.redraw
		a.mu.Unlock()
		redraw()
	}()
	fmt.Fprint(f, resetRaw+question)
	select {
	case line := <-lines:
		return line, nil
	case <-time.After(time.Until(late)):
		return "", os.ErrDeadlineExceeded
	}
}

// Attach tells that a command has the terminal from now on. a may be nil.
func (a *Answers) Attach(redraw func()) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.raw, a.redraw = true, redraw
}

// divert takes what is typed while a question is asked, and returns the rest. a may be nil.
func (a *Answers) divert(typed []byte) []byte {
	if a == nil {
		return typed
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lines == nil {
		return typed
	}
	if time.Since(a.asked) < ignoreKeys {
		return nil
	}
	const ctrlC, backspace, del = 3, 8, 127
	for i, c := range typed {
		switch {
		case c == '\r' || c == '\n' || c == ctrlC:
			if c == ctrlC {
				a.typed = nil
			}
			a.lines <- string(a.typed)
			a.lines = nil
			return typed[i+1:]
		case c == backspace || c == del:
			a.typed = a.typed[:max(0, len(a.typed)-1)]
			fmt.Fprint(a.echo, "\b \b")
		case c > ' ' && c < del && len(a.typed) < 8:
			a.typed = append(a.typed, c)
			fmt.Fprintf(a.echo, "%c", c)
		}
	}
	return nil
}

// forget discards input typed before the question: it answers an earlier question, too late.
func forget(terminal *os.File) {
	if raw, err := terminal.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { unix.IoctlSetInt(int(fd), unix.TCFLSH, unix.TCIFLUSH) })
	}
}

// IsYes reports whether a line answers yes.
func IsYes(line string) bool {
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	}
	return false
}
