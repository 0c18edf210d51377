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

	"demesne/internal/termsafe"
	"demesne/runner"
)

// askTime is how long a connection waits for an answer, unless --ask-timeout says.
const askTime = time.Minute

// controlling is the terminal that a person is at, whatever stdin and stdout are.
const controlling = "/dev/tty"

// canAsk says why --ask cannot be had. The question and the command must not read from one
// terminal at once.
func (a *app) canAsk(o *options) error {
	if !o.network.ask {
		if o.network.askTime > 0 {
			return hinted(errors.New("--ask-timeout: nobody is asked"), "--ask --ask-timeout 5m")
		}
		return nil
	}
	if o.tty || o.interactive && isTerminal(a.stdin) {
		return errors.New("--ask: the terminal is the command's")
	}
	f, err := os.OpenFile(controlling, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return hinted(errors.New("--ask: there is no terminal to ask on"), "--allow-domain NAME allows without asking; --learn tells what would be asked")
	}
	return f.Close()
}

// waits is how long a connection waits for an answer.
func (n *network) waits() time.Duration { return cmp.Or(n.askTime, askTime) }

// floor is who may write where the person reads: the command, or --ask, whose question nothing of the command's is to follow, or to
// write over, until it was answered. It is held by who writes. nil: nobody asks.
type floor chan struct{}

// take waits for the floor, or until over: then there is nobody any more to keep from it.
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

// aloud ends whatever the command has begun to tell the terminal: an escape sequence, another character set, colours, margins.
const aloud = "\x18\x0f\x1b[!p\x1b[0m\n"

// asker asks the person at the terminal, one question at a time; nil without --ask. What waited too long
// for its turn is not asked any more: the runner has denied it.
func (a *app) asker(o *options) func(runner.Question) (allow, answered bool) {
	if !o.network.ask {
		return nil
	}
	a.floor = make(floor, 1)
	return func(q runner.Question) (allow, answered bool) {
		late := time.Now().Add(o.network.waits())
		defer a.floor.take(nil)()
		f, err := os.OpenFile(controlling, os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
		if err != nil || !time.Now().Before(late) {
			return false, false
		}
		defer f.Close()
		f.SetReadDeadline(late)
		forget(f)
		fmt.Fprintf(f, aloud+"demesne: %s: may it reach %s? [y/N] ", o.verb, termsafe.Line(fmt.Sprintf("%s:%d", q.Name, q.Port)))
		line, err := bufio.NewReader(f).ReadString('\n')
		if errors.Is(err, os.ErrDeadlineExceeded) {
			fmt.Fprintf(f, "no answer in %v: not now\n", o.network.waits())
			return false, false
		}
		if err != nil {
			fmt.Fprintln(f)
		}
		return isYes(line), true
	}
}

// forget drops what was typed before the question: it is an answer to another one, that came too late.
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
