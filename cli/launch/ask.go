package launch

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"demesne/cli/app"
	"demesne/cli/stream"
	"demesne/internal/text"
	"demesne/runner"
)

// CanAsk returns an error if --ask is impossible. The question and the command must not read from one terminal
// at the same time.
func CanAsk(c *app.Console, n *Network, p *ProcessOptions) error {
	if !n.Ask {
		if n.askTime > 0 {
			return text.Hinted(errors.New("--ask-timeout: needs --ask"), "--ask --ask-timeout 5m")
		}
		return nil
	}
	if !p.TTY && p.Interactive && stream.IsTerminal(c.Stdin) {
		return text.Hinted(errors.New("--ask: the command reads from the terminal"), "with -t, it does so through demesne, which can ask in between")
	}
	f, err := os.OpenFile(stream.Controlling, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return text.Hinted(errors.New("--ask: there is no terminal to ask on"), "--allow-domain NAME allows without a question; --learn records what would be asked")
	}
	return f.Close()
}

// asker returns a function that asks the user at the terminal, one question at a time, or nil without --ask. A
// question that waited too long for its turn is skipped: the runner has denied it.
func asker(a *app.App, verb string, n *Network) func(runner.Question, []string) (allow, answered bool) {
	if !n.Ask {
		return nil
	}
	a.Floor, a.Answers = make(stream.Floor, 1), &stream.Answers{}
	return func(q runner.Question, _ []string) (allow, answered bool) {
		late := time.Now().Add(n.waits())
		defer a.Floor.Take(nil)()
		f, err := os.OpenFile(stream.Controlling, os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
		if err != nil || !time.Now().Before(late) {
			return false, false
		}
		defer f.Close()
		question := fmt.Sprintf("demesne: %s: allow access to %s? [y/N] ", verb, text.SafeLine(fmt.Sprintf("%s:%d", q.Name, q.Port)))
		line, err := a.Answers.Line(f, question, late)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			fmt.Fprintf(f, "no answer in %v: denied for now\n", n.waits())
			return false, false
		}
		if err != nil {
			fmt.Fprintln(f)
		}
		return stream.IsYes(line), true
	}
}
