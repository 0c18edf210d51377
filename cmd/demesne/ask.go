package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
)

// askTime is how long a connection waits for an answer.
const askTime = time.Minute

// controlling is the terminal that a person is at, whatever stdin and stdout are.
const controlling = "/dev/tty"

// canAsk says why --ask cannot be had. The question and the command must not read from one
// terminal at once.
func (a *app) canAsk(o *options) error {
	if !o.network.ask {
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

// asker asks the person at the terminal, one question at a time; nil without --ask. No
// answer in time is a no.
func (a *app) asker(o *options) func(runner.Question) bool {
	if !o.network.ask {
		return nil
	}
	var one sync.Mutex
	return func(q runner.Question) bool {
		one.Lock()
		defer one.Unlock()
		f, err := os.OpenFile(controlling, os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
		if err != nil {
			return false
		}
		defer f.Close()
		f.SetReadDeadline(time.Now().Add(askTime))
		fmt.Fprintf(f, "demesne: %s: may it reach %s? [y/N] ", o.verb, oneLine(fmt.Sprintf("%s:%d", q.Name, q.Port)))
		line, err := bufio.NewReader(f).ReadString('\n')
		if err != nil {
			fmt.Fprintln(f)
		}
		return isYes(line)
	}
}

func isYes(line string) bool {
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	}
	return false
}
