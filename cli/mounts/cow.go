package mounts

import (
	"fmt"

	"demesne/cli/app"
	"demesne/cli/changes"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/session"
	"demesne/session/cow"
)

var cowWords = []string{"ask", "keep"}

// CowFlag is a flag of run.
func (o *Options) CowFlag() cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupResult, Long: "cow", Arg: "WORD", Words: cowWords, Set: cmdline.Word(&o.cow, cowWords),
		Help: "what to do with the changes of a directory with mode cow: keep them for demesne apply (the default), or ask on the terminal"}}
}

// TellApart says where the changes of a persistent sandbox are.
func (p *Placed) TellApart() {
	if p == nil || p.changes == nil || p.changes.Sandbox == "" {
		return
	}
	for _, d := range p.changes.Dirs {
		p.app.Say(fmt.Sprintf("%s: changes to %s are kept apart, as %s", p.app.Verb, text.SafeLine(d.Path), p.changes.ID))
	}
	fmt.Fprintf(p.app.Stderr, "hint: after demesne stop %s, demesne apply %s makes them; demesne diff %s lists them\n", p.changes.Sandbox, p.changes.ID, p.changes.ID)
}

// tellChanges sums up the changes of a one-shot sandbox, and asks what to do with them if the user wanted that.
func (p *Placed) tellChanges() {
	if p.key != "" {
		p.TellApart()
		return
	}
	c, say := p.changes, func(s string) { p.app.Say(p.app.Verb + ": " + s) }
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
	if p.ask {
		changes.Ask(p.app, c, edits)
		return
	}
	fmt.Fprintf(p.app.Stderr, "hint: demesne diff --patch %s shows them; demesne apply %s makes them, demesne discard %s drops them\n", c.ID, c.ID, c.ID)
}

// Placed are the mounts of one sandbox, with what must be told at its end.
type Placed struct {
	app       *app.App
	key, name string // of the sandbox
	ask       bool   // what to do with changes
	watch     Watch
	changes   *cow.Set // nil: no mount has mode cow
}

// made records the sandbox that has the mounts.
func (p *Placed) made(b *session.Sandbox) {
	if p == nil || b.Existing {
		return // an existing sandbox of the key has its own
	}
	if err := p.changes.Made(b.ID, p.name); err != nil {
		p.app.Say(fmt.Sprintf("%s: record changes: %v", p.app.Verb, err))
	}
}

// Undo removes what no sandbox got.
func (p *Placed) Undo() {
	if p != nil {
		p.changes.Undo()
	}
}

// Tell names the files that programs of this machine would execute, and sums up the changes that are kept apart.
func (p *Placed) Tell() {
	if p == nil {
		return
	}
	p.watch.Tell(&p.app.Console)
	if p.changes != nil && p.changes.Sandbox != "" {
		p.tellChanges()
	}
}

// Recorded returns callbacks that record the sandbox, too.
func (p *Placed) Recorded(cb session.Callbacks) session.Callbacks {
	tell := cb.Made
	cb.Made = func(b *session.Sandbox) {
		p.made(b)
		tell(b)
	}
	return cb
}
