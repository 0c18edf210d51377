package main

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"demesne/cmd/internal/cli"
	"demesne/images/events"
	"demesne/images/oci"
)

// progress prints the progress of an image on stderr. On a terminal that can redraw, it rewrites one line, and erases
// it in the end; elsewhere it prints a line for each completed step. A nil progress prints nothing. It has no timer: it
// prints only when an event arrives.
type progress struct {
	on   *console
	noun string // `pull "python"`
	term bool

	mu     sync.Mutex
	layers map[oci.Digest]*layerState // both by digest and by DiffID
	drawn  time.Time
	shown  bool
}

// layerState is the progress of one layer.
type layerState struct {
	fetched, total int64
	unpacked       bool
}

// drawEvery bounds how often the line is redrawn, so that a fast download is not slowed down.
const drawEvery = 100 * time.Millisecond

// newProgress returns nil if quiet.
func (c *console) newProgress(quiet bool, noun string) *progress {
	if quiet {
		return nil
	}
	return &progress{on: c, noun: noun, term: cli.TerminalOf(c.stderr, c.env).Redraw, layers: map[oci.Digest]*layerState{}}
}

// take handles an event of an images.Client.
func (p *progress) take(e events.Event) {
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
		p.tell(layerName(e.DiffID) + ": " + e.Why)
	}
}

func (p *progress) layer(e events.Event) {
	l := p.find(e)
	l.total = max(l.total, e.Total)
	last := false
	switch e.State {
	case events.Pulling:
		l.fetched = e.Bytes
	case events.Pulled:
		l.fetched, last = l.total, true
		p.plain(e.Digest, "fetched, "+cli.FormatBytes(l.total))
	case events.Unpacking:
		l.fetched = l.total // unpacking implies that it was fetched
	case events.Done:
		l.fetched, l.unpacked, last = l.total, true, true
		p.plain(e.DiffID, "unpacked")
	case events.Present:
		l.fetched = l.total
		l.unpacked = l.unpacked || e.DiffID != ""
	}
	if now := time.Now(); p.term && (last || now.Sub(p.drawn) >= drawEvery) {
		p.drawn = now
		p.draw()
	}
}

// find returns the state of e's layer. Pull events name a layer by its digest, unpack events by its DiffID; the
// event of a completed pull has both.
func (p *progress) find(e events.Event) *layerState {
	name := e.Digest
	if name == "" {
		name = e.DiffID
	}
	l := p.layers[name]
	if l == nil {
		l = &layerState{}
		p.layers[name] = l
	}
	if e.Layer != nil {
		l.total = max(l.total, e.Layer.Size)
		if other := p.layers[e.Layer.DiffID]; other != nil {
			l.unpacked = other.unpacked
		}
		p.layers[e.Layer.DiffID] = l
	}
	return l
}

// draw rewrites the line. It truncates it to the terminal's current width, because a wrapped line could not be
// erased.
func (p *progress) draw() {
	line := []rune(p.noun + ": " + p.summary())
	width := 80
	if w, err := unix.IoctlGetWinsize(fdOf(p.on.stderr), unix.TIOCGWINSZ); err == nil && w.Col > 0 {
		width = int(w.Col)
	}
	fmt.Fprintf(p.on.stderr, "\r\x1b[K%s", string(line[:min(len(line), width-1)]))
	p.shown = true
}

func (p *progress) summary() string {
	var fetched, total int64
	unpacked, seen := 0, map[*layerState]bool{}
	for _, l := range p.layers {
		if seen[l] {
			continue
		}
		seen[l] = true
		fetched, total = fetched+l.fetched, total+l.total
		if l.unpacked {
			unpacked++
		}
	}
	return fmt.Sprintf("%s of %s, %d of %d layers unpacked", cli.FormatBytes(fetched), cli.FormatBytes(total), unpacked, len(seen))
}

// plain prints a line about a layer if stderr is not a terminal.
func (p *progress) plain(d oci.Digest, what string) {
	if !p.term {
		p.tell(layerName(d) + ": " + what)
	}
}

// tell prints a permanent line.
func (p *progress) tell(text string) {
	p.clear()
	p.on.say(p.noun + ": " + text)
}

// clear erases the progress line.
func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.on.stderr, "\r\x1b[K")
		p.shown = false
	}
}

// done erases the progress line; no events may follow.
func (p *progress) done() {
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
	return "layer " + shortDigest(d)
}

// shortDigest returns the prefix of a digest that commands print and accept.
func shortDigest(d oci.Digest) string {
	hex := d.Encoded()
	return hex[:min(12, len(hex))]
}
