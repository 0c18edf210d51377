// Package progress prints on stderr how far the pull or push of an image is.
//
// A [Progress] takes the events of an images.Client. On a terminal it draws a bar for each layer and a line for the image, and
// erases them at the end. Elsewhere it prints a line for each completed step. It has no timer: it draws when an event
// arrives. Texts of events come from registries, and are printed without control characters.
package progress

import (
	"fmt"
	"slices"
	"time"

	"demesne/cli/app"
	"demesne/images/events"
	"demesne/images/oci"
	"demesne/internal/cmdline"
	"demesne/internal/text"
)

var (
	pullWords = progressWords{"fetching", "fetched", "unpacked"}
	pushWords = progressWords{"sending", "sent", "pushed"}
)

// drawEvery bounds how often the lines are redrawn, so that a fast download is not slowed down. The first drawing
// waits as long, until the size of each layer is known.
const drawEvery = 100 * time.Millisecond

// New returns nil if quiet.
func New(c *app.Console, quiet bool, noun string) *Progress {
	if quiet {
		return nil
	}
	return &Progress{on: c, noun: noun, words: pullWords, term: cmdline.TerminalOf(c.Stderr, c.Env).Redraw, now: time.Now, drawn: time.Now(), layers: map[oci.Digest]*layerState{}}
}

// NewPush is New for an image that is sent.
func NewPush(c *app.Console, quiet bool, noun string) *Progress {
	p := New(c, quiet, noun)
	if p != nil {
		p.words = pushWords
	}
	return p
}

// Take handles an event of an images.Client.
func (p *Progress) Take(e events.Event) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e.Event {
	case events.Layer:
		p.layer(e)
	case events.Retry:
		p.tell(fmt.Sprintf("%s: again in %s: %s", layerName(e.Digest), e.In.Round(time.Millisecond), e.Why))
	case events.Notice:
		if e.DiffID == "" {
			p.tell(e.Why)
			return
		}
		p.tell(layerName(e.DiffID) + ": " + e.Why)
	}
}

func (p *Progress) layer(e events.Event) {
	l := p.find(e)
	l.total = max(l.total, e.Total)
	last := false
	switch e.State {
	case events.Pulling, events.Pushing:
		p.fetched(l, e.Bytes)
	case events.Pulled:
		l.begun, last = true, true
		p.fetched(l, l.total)
		p.plain(e.Digest, "fetched, "+text.FormatBytes(l.total))
	case events.Unpacking:
		l.fetched, l.unpacking = l.total, true // unpacking implies that it was fetched
	case events.Done:
		l.fetched, l.unpacked, last = l.total, true, true
		p.plain(e.DiffID, "unpacked")
	case events.Pushed, events.Mounted:
		last, l.unpacked = true, true
		p.fetched(l, l.total)
		p.plain(e.Digest, p.sent(e))
	case events.Present:
		l.fetched = l.total
		l.unpacked = l.unpacked || e.DiffID != "" || p.words == pushWords
	}
	if now := p.now(); p.term && (last || now.Sub(p.drawn) >= drawEvery) {
		p.drawn = now
		p.draw()
	}
}

// sent describes a layer that the registry got.
func (p *Progress) sent(e events.Event) string {
	if e.State == events.Mounted || e.Layer == nil {
		return "mounted from another repository"
	}
	return "pushed, " + text.FormatBytes(e.Layer.Size)
}

// fetched counts bytes of a layer. The bytes of an earlier pull, which this one resumes, are not part of its rate.
func (p *Progress) fetched(l *layerState, n int64) {
	if l.begun {
		p.rate.add(p.now(), n-l.fetched)
	}
	l.fetched, l.begun = n, true
}

// find returns the state of e's layer. Pull events name a layer by its digest, unpack events by its DiffID; the
// event of a completed pull has both.
func (p *Progress) find(e events.Event) *layerState {
	name := e.Digest
	if name == "" {
		name = e.DiffID
	}
	l := p.layers[name]
	if l == nil {
		l = &layerState{name: ShortDigest(name)}
		p.layers[name] = l
		p.order = append(p.order, l)
	}
	if e.Layer != nil && p.words != pushWords {
		l.total = max(l.total, e.Layer.Size)
		if other := p.layers[e.Layer.DiffID]; other != nil && other != l {
			l.unpacked = other.unpacked
			p.order = slices.DeleteFunc(p.order, func(o *layerState) bool { return o == other })
		}
		p.layers[e.Layer.DiffID] = l
	}
	return l
}

// plain prints a line about a layer if stderr is not a terminal.
func (p *Progress) plain(d oci.Digest, what string) {
	if !p.term {
		p.tell(layerName(d) + ": " + what)
	}
}

// tell prints a permanent line.
func (p *Progress) tell(text string) {
	p.clear()
	p.on.Say(p.noun + ": " + text)
}

// Done erases the progress lines; no events may follow.
func (p *Progress) Done() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

func layerName(d oci.Digest) string {
	if d == "" {
		return "manifest"
	}
	return "layer " + ShortDigest(d)
}

// ShortDigest returns the prefix of a digest that commands print and accept.
func ShortDigest(d oci.Digest) string {
	hex := d.Encoded()
	return hex[:min(12, len(hex))]
}
