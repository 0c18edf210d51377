package cli

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// controlling is the controlling terminal of the user, whatever stdin and stdout are.
const controlling = "/dev/tty"

// floor serializes writes to the user's terminal. The command takes it for each write, and --ask until the
// question is answered, so that the command's output cannot follow or overwrite the question. The writer holds
// it by sending. A nil floor never blocks.
type floor chan struct{}

// take acquires the floor. It stops waiting when over is closed: after that there is no other writer.
func (f floor) take(over <-chan struct{}) (leave func()) {
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

// aloud ends whatever state the command's output has left on the terminal: an escape sequence, a synchronized update,
// another character set, colours, margins.
const aloud = "\x18\x1b[?2026l\x0f\x1b[!p\x1b[0m\n"

// answers reads the user's answers: from the terminal, or from what the user types to a command that has it.
type answers struct {
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

// line asks on f, and returns the line of the answer.
func (a *answers) line(f *os.File, question string, late time.Time) (string, error) {
	a.mu.Lock()
	if !a.raw {
		a.mu.Unlock()
		f.SetReadDeadline(late)
		forget(f)
		fmt.Fprint(f, aloud+question)
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

// attach tells that a command has the terminal from now on. a may be nil.
func (a *answers) attach(redraw func()) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.raw, a.redraw = true, redraw
}

// divert takes what is typed while a question is asked, and returns the rest. a may be nil.
func (a *answers) divert(typed []byte) []byte {
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

func isYes(line string) bool {
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	}
	return false
}
