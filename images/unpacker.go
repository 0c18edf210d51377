package images

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"demesne/images/events"
	"demesne/images/oci"
)

// An unpacker is one `demesne-images unpack`, started when the first layer comes.
type unpacker struct {
	c      *Client
	ctx    context.Context
	cancel context.CancelCauseFunc // ends a pull whose layers are not wanted any more
	seen   map[oci.Digest]bool     // layers passed on, by DiffID
	lines  chan string             // has room for every layer an image may have
	ended  chan struct{}           // closed when it has ended; nil before it has begun
	err    error

	mu       sync.Mutex
	progress func(events.Event)
	blobs    map[oci.Digest]oci.Digest // which blob a DiffID came from
	finished map[oci.Digest]bool       // by DiffID
}

func (c *Client) unpacker(ctx context.Context, cancel context.CancelCauseFunc, progress func(events.Event)) *unpacker {
	if progress == nil {
		progress = func(events.Event) {}
	}
	return &unpacker{
		c: c, ctx: ctx, cancel: cancel, progress: progress,
		seen: map[oci.Digest]bool{}, blobs: map[oci.Digest]oci.Digest{}, finished: map[oci.Digest]bool{},
	}
}

// pulled takes an event of the pull. A layer that landed is unpacked at once.
func (u *unpacker) pulled(e events.Event) {
	u.mu.Lock()
	u.progress(e)
	u.mu.Unlock()
	if e.Layer != nil && (e.State == events.Pulled || e.State == events.Present) && len(u.seen) < oci.MaxLayers {
		u.add(*e.Layer)
	}
}

// add passes a layer on, once. It never waits.
func (u *unpacker) add(l oci.Layer) {
	if u.seen[l.DiffID] {
		return
	}
	u.seen[l.DiffID] = true
	u.mu.Lock()
	u.blobs[l.DiffID] = l.Digest
	u.mu.Unlock()
	if u.c.Unpacked != nil && u.c.Unpacked(l.DiffID) {
		u.unpacked(events.Event{Event: events.Layer, State: events.Present, DiffID: l.DiffID, Total: l.Size})
		return
	}
	if u.ended == nil {
		u.lines = make(chan string, 2*oci.MaxLayers)
		u.ended = make(chan struct{})
		go u.run(u.lines)
	}
	line, _ := json.Marshal(l) // strings and a number
	u.lines <- string(line)
}

func (u *unpacker) run(lines <-chan string) {
	defer close(u.ended)
	_, u.err = u.c.run(u.ctx, job{
		args:  []string{"unpack", "--store", u.c.Store.Dir()},
		enter: true,
		lines: lines,
		on:    u.unpacked,
	})
	if u.err != nil {
		u.cancel(u.err)
	}
}

// unpacked takes an event of the unpacking, and adds which blob it is about.
func (u *unpacker) unpacked(e events.Event) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e.State == events.Done || e.State == events.Present {
		u.finished[e.DiffID] = true
	}
	if e.Digest == "" {
		e.Digest = u.blobs[e.DiffID]
	}
	u.progress(e)
}

// finish says that no more layers come, and waits until all of them are unpacked. It may be called
// twice.
func (u *unpacker) finish() error {
	if u.ended == nil {
		return nil // nothing was to be done
	}
	if u.lines != nil {
		close(u.lines)
		u.lines = nil
	}
	<-u.ended
	if u.err != nil {
		return u.err
	}
	for id := range u.seen {
		if !u.finished[id] {
			return fmt.Errorf("unpack layer %s: %w", id, errNoResult)
		}
	}
	return nil
}
