package changes

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
	"demesne/rootfs/upper"
	"demesne/session/cow"
)

// Questions asks about each change on the terminal. Only the user types there: stdin may be a program's.
type Questions struct {
	f     *os.File
	in    *bufio.Reader
	shows cmdline.Terminal
	all   bool // the user answered a
	quit  bool // the user answered q
}

// OpenQuestions opens the user's terminal.
func OpenQuestions(a *app.App) (*Questions, error) {
	f, err := os.OpenFile(stream.Controlling, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, text.Hinted(errors.New("--interactive: there is no terminal to ask on"), "demesne diff --patch shows the changes; demesne apply PATH makes some")
	}
	unix.IoctlSetInt(stream.FD(f), unix.TCFLSH, unix.TCIFLUSH) // typed before the question
	return &Questions{f: f, in: bufio.NewReader(f), shows: cmdline.TerminalOf(f, a.Env)}, nil
}

func (q *Questions) Close() { q.f.Close() }

// Apply is an applier. It makes an edit, or some hunks of it, if the user agrees.
func (q *Questions) Apply(over *upper.Over, e cow.Edit) error {
	switch {
	case q.quit:
		return cow.ErrQuit
	case e.Special:
		return over.Apply(e.Edit, false) // returns why it is never applied
	case e.Parent && e.Kind == 'A':
		return cow.ErrKept // it is made with the first file in it
	}
	if q.all && !e.Guarded && !e.Changed && e.Leads == "" {
		return over.Apply(e.Edit, false)
	}
	p := cow.PatchOf(over, e)
	fmt.Fprint(q.f, headText(&p, e))
	if !p.Divisible() {
		for _, h := range p.Hunks {
			fmt.Fprint(q.f, hunkText(h, q.shows))
		}
		if err := q.ask("apply this change"); err != nil {
			return err
		}
		return over.ApplySeen(e.Edit, p.State, nil)
	}
	var chosen []cow.Hunk
	for i, h := range p.Hunks {
		fmt.Fprint(q.f, hunkText(h, q.shows))
		err := q.ask(fmt.Sprintf("apply this place (%d of %d)", i+1, len(p.Hunks)))
		if err == nil {
			chosen = append(chosen, h)
		}
		if err == nil && q.all {
			chosen = append(chosen, p.Hunks[i+1:]...)
			break
		}
		if q.quit {
			break
		}
	}
	return q.some(over, e, p, chosen)
}

// some applies some hunks of a file.
func (q *Questions) some(over *upper.Over, e cow.Edit, p cow.Patch, chosen []cow.Hunk) error {
	switch len(chosen) {
	case 0:
		return cow.ErrKept
	case len(p.Hunks):
		return over.ApplySeen(e.Edit, p.State, nil)
	}
	return over.ApplySeen(e.Edit, p.State, p.With(chosen))
}

// ask asks until the answer is one of those that it offers. A closed terminal ends the questions.
func (q *Questions) ask(what string) error {
	for {
		fmt.Fprintf(q.f, "demesne: %s? [y]es, [n]o, [a]ll that follow too, [q]uit: ", what)
		line, err := q.in.ReadString('\n')
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "a", "all":
			q.all = true
			fallthrough
		case "y", "yes":
			return nil
		case "n", "no":
			return cow.ErrKept
		case "q", "quit":
			err = cow.ErrQuit
		}
		if err != nil {
			q.quit = true
			return cow.ErrQuit
		}
	}
}

// Ask asks on the terminal until the answer is one of those that it offers.
func Ask(a *app.App, c *cow.Set, edits []cow.Edit) {
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
			if _, err := Apply(a, c, nil, cow.Directly(nil, false)); err != nil {
				a.Report(a.Verb, err)
			}
			return
		case "d", "discard":
			if err := c.Discard(); err != nil {
				a.Report(a.Verb, err)
			}
			return
		case "l", "list":
			fmt.Fprint(f, List(edits, true))
		case "p", "patch":
			text, perr := PatchText(c, nil, cmdline.TerminalOf(f, a.Env))
			if perr != nil {
				a.Report(a.Verb, perr)
			}
			fmt.Fprint(f, text)
		case "n", "no":
			err = errors.New("keep")
		}
		if err != nil {
			fmt.Fprintf(f, "kept as %s: demesne apply %s makes them\n", c.ID, c.ID)
			return
		}
	}
}
