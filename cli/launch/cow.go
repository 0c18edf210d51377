package launch

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"demesne/cli/app"
	"demesne/cli/changes"
	"demesne/cli/stream"
	"demesne/internal/cmdline"
	"demesne/internal/text"
)

// cowOptions say what becomes of changes that are kept apart.
type cowOptions struct {
	cow string // ask or keep; empty: keep
}

var cowWords = []string{"ask", "keep"}

func (o *cowOptions) CowFlag() cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupResult, Long: "cow", Arg: "WORD", Words: cowWords, Set: cmdline.Word(&o.cow, cowWords),
		Help: "what to do with the changes of a directory with mode cow: keep them for demesne apply (the default), or ask on the terminal"}}
}

// CanAskCow returns an error if --cow ask is impossible.
func (o *Options) CanAskCow(background bool) error {
	switch {
	case o.cow != "ask":
		return nil
	case !o.hasCow():
		return app.Hinted(errors.New("--cow: no directory has mode cow"), "--workspace DIR:cow, --mount DIR:cow or --here=cow")
	case o.Key != "" || background:
		return app.Hinted(errors.New("--cow ask: cannot be combined with --key or --background"), "demesne diff lists the changes afterwards")
	}
	f, err := os.OpenFile(stream.Controlling, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return app.Hinted(errors.New("--cow ask: there is no terminal to ask on"), "without it the changes are kept for demesne apply")
	}
	return f.Close()
}

// TellApart says where the changes of a persistent sandbox are.
func (p *Placed) TellApart() {
	if p == nil || p.changes == nil || p.changes.Sandbox == "" {
		return
	}
	for _, d := range p.changes.Dirs {
		p.o.Say(fmt.Sprintf("%s: changes to %s are kept apart, as %s", p.o.Verb, text.SafeLine(d.Path), p.changes.ID))
	}
	fmt.Fprintf(p.o.Stderr, "hint: after demesne stop %s, demesne apply %s makes them; demesne diff %s lists them\n", p.changes.Sandbox, p.changes.ID, p.changes.ID)
}

// tellChanges sums up the changes of a one-shot sandbox, and asks what to do with them if the user wanted that.
func (p *Placed) tellChanges() {
	if p.o.Key != "" {
		p.TellApart()
		return
	}
	c, say := p.changes, func(s string) { p.o.Say(p.o.Verb + ": " + s) }
	edits, all, err := c.Edits()
	if err != nil {
		say(err.Error())
		return
	}
	if len(edits) == 0 && all {
		if err := c.Discard(); err != nil {
			say(err.Error())
		}
		return
	}
	for _, line := range changes.Sums(c, edits) {
		say(line)
	}
	if p.o.cow == "ask" {
		changes.Ask(p.o.App, c, edits)
		return
	}
	fmt.Fprintf(p.o.Stderr, "hint: demesne diff --patch %s shows them; demesne apply %s makes them, demesne discard %s drops them\n", c.ID, c.ID, c.ID)
}
