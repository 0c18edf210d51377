package cli

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/cli/app"
	"demesne/cli/stream"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/session/cow"
)

// cowOptions say what becomes of changes that are kept apart.
type cowOptions struct {
	cow string // ask or keep; empty: keep
}

var cowWords = []string{"ask", "keep"}

func cowFlag(o *cowOptions) cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupResult, Long: "cow", Arg: "WORD", Words: cowWords, Set: cmdline.Word(&o.cow, cowWords),
		Help: "what to do with the changes of a directory with mode cow: keep them for demesne apply (the default), or ask on the terminal"}}
}

// canAskCow returns an error if --cow ask is impossible.
func (o *options) canAskCow(background bool) error {
	switch {
	case o.cow != "ask":
		return nil
	case !o.hasCow():
		return app.Hinted(errors.New("--cow: no directory has mode cow"), "--workspace DIR:cow, --mount DIR:cow or --here=cow")
	case o.key != "" || background:
		return app.Hinted(errors.New("--cow ask: cannot be combined with --key or --background"), "demesne diff lists the changes afterwards")
	}
	f, err := os.OpenFile(stream.Controlling, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return app.Hinted(errors.New("--cow ask: there is no terminal to ask on"), "without it the changes are kept for demesne apply")
	}
	return f.Close()
}

// tellApart says where the changes of a persistent sandbox are.
func (p *placed) tellApart() {
	if p == nil || p.changes == nil || p.changes.Sandbox == "" {
		return
	}
	for _, d := range p.changes.Dirs {
		p.o.Say(fmt.Sprintf("%s: changes to %s are kept apart, as %s", p.o.Verb, text.SafeLine(d.Path), p.changes.ID))
	}
	fmt.Fprintf(p.o.Stderr, "hint: after demesne stop %s, demesne apply %s makes them; demesne diff %s lists them\n", p.changes.Sandbox, p.changes.ID, p.changes.ID)
}

// tellChanges sums up the changes of a one-shot sandbox, and asks what to do with them if the user wanted that.
func (p *placed) tellChanges() {
	if p.o.key != "" {
		p.tellApart()
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
	for _, line := range changeSums(c, edits) {
		say(line)
	}
	if p.o.cow == "ask" {
		p.askChanges(edits)
		return
	}
	fmt.Fprintf(p.o.Stderr, "hint: demesne diff --patch %s shows them; demesne apply %s makes them, demesne discard %s drops them\n", c.ID, c.ID, c.ID)
}

// changeSums returns a line for each directory with changes, and lines for the files that this machine would execute.
func changeSums(c *cow.Set, edits []cow.Edit) (lines []string) {
	for _, d := range c.Dirs {
		n := map[byte]int{}
		for _, e := range edits {
			if e.Path == d.Path || strings.HasPrefix(e.Path, strings.TrimSuffix(d.Path, "/")+"/") {
				n[e.Kind]++
			}
		}
		if n['A']+n['M']+n['D'] > 0 {
			lines = append(lines, fmt.Sprintf("kept apart from %s: %d added, %d modified, %d deleted", text.SafeLine(d.Path), n['A'], n['M'], n['D']))
		}
	}
	return append(lines, reviewEdits(edits)...)
}

// askChanges asks on the terminal until the answer is one of those that it offers.
func (p *placed) askChanges(edits []cow.Edit) {
	f, err := os.OpenFile(stream.Controlling, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	// The user typed earlier keys for the command, whose output may have left the terminal in any state.
	unix.IoctlSetInt(stream.FD(f), unix.TCFLSH, unix.TCIFLUSH)
	fmt.Fprint(f, stream.Reset)
	in := bufio.NewReader(f)
	for {
		fmt.Fprint(f, "demesne: apply these changes? [y]es, [n]o and keep them, [d]iscard, [l]ist, [p]atch: ")
		line, err := in.ReadString('\n')
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			if _, err := applyChanges(p.o.App, p.changes, nil, cow.Directly(nil, false)); err != nil {
				p.o.Report(p.o.Verb, err)
			}
			return
		case "d", "discard":
			if err := p.changes.Discard(); err != nil {
				p.o.Report(p.o.Verb, err)
			}
			return
		case "l", "list":
			fmt.Fprint(f, editsText(edits, true))
		case "p", "patch":
			text, perr := patchText(p.changes, nil, cmdline.TerminalOf(f, p.o.Env))
			if perr != nil {
				p.o.Report(p.o.Verb, perr)
			}
			fmt.Fprint(f, text)
		case "n", "no":
			err = errors.New("keep")
		}
		if err != nil {
			fmt.Fprintf(f, "kept as %s: demesne apply %s makes them\n", p.changes.ID, p.changes.ID)
			return
		}
	}
}
