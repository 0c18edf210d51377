package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/text"
	"demesne/runner"
)

// controlling is the controlling terminal of the user, whatever stdin and stdout are.
const controlling = "/dev/tty"

// canAsk returns an error if --ask is impossible. The question and the command must not read from one terminal
// at the same time.
func (c *console) canAsk(n *network, p *processOptions) error {
	if !n.ask {
		if n.askTime > 0 {
			return hinted(errors.New("--ask-timeout: needs --ask"), "--ask --ask-timeout 5m")
		}
		return nil
	}
	if p.tty || p.interactive && isTerminal(c.stdin) {
		return errors.New("--ask: the command uses the terminal (-t, or -i on a terminal)")
	}
	f, err := os.OpenFile(controlling, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return hinted(errors.New("--ask: there is no terminal to ask on"), "--allow-domain NAME allows without a question; --learn records what would be asked")
	}
	return f.Close()
}

// waits returns how long a connection waits for an answer.
func (n *network) waits() time.Duration { return cmp.Or(n.askTime, runner.AskTime) }

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

// aloud ends whatever state the command's output has left on the terminal: an escape sequence, another
// character set, colours, margins.
const aloud = "\x18\x0f\x1b[!p\x1b[0m\n"

// asker returns a function that asks the user at the terminal, one question at a time, or nil without --ask. A
// question that waited too long for its turn is skipped: the runner has denied it.
func (a *app) asker(verb string, n *network) func(runner.Question, []string) (allow, answered bool) {
	if !n.ask {
		return nil
	}
	a.floor = make(floor, 1)
	return func(q runner.Question, _ []string) (allow, answered bool) {
		late := time.Now().Add(n.waits())
		defer a.floor.take(nil)()
		f, err := os.OpenFile(controlling, os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
		if err != nil || !time.Now().Before(late) {
			return false, false
		}
		defer f.Close()
		f.SetReadDeadline(late)
		forget(f)
		fmt.Fprintf(f, aloud+"demesne: %s: allow access to %s? [y/N] ", verb, text.SafeLine(fmt.Sprintf("%s:%d", q.Name, q.Port)))
		line, err := bufio.NewReader(f).ReadString('\n')
		if errors.Is(err, os.ErrDeadlineExceeded) {
			fmt.Fprintf(f, "no answer in %v: denied for now\n", n.waits())
			return false, false
		}
		if err != nil {
			fmt.Fprintln(f)
		}
		return isYes(line), true
	}
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
