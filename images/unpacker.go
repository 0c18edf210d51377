package images

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"demesne/images/events"
	"demesne/images/oci"
)

// An unpacker is one run of `demesne-images unpack`, started with the first layer.
type unpacker struct {
	c      *Client
	ctx    context.Context
	cancel context.CancelCauseFunc // cancels the pull when its layers are no longer wanted
	seen   map[oci.Digest]bool     // layers passed on, by DiffID
	lines  chan string             // has capacity for every layer an image may have
	ended  chan struct{}           // closed when the run has ended; nil before it started
	err    error

	mu       sync.Mutex
	progress func(events.Event)
	blobs    map[oci.Digest]oci.Digest // the blob of each DiffID
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

// pulled handles an event of the pull. It passes a layer on as soon as it is downloaded.
func (u *unpacker) pulled(e events.Event) {
	u.mu.Lock()
	u.progress(e)
	u.mu.Unlock()
	if e.Layer != nil && (e.State == events.Pulled || e.State == events.Present) && len(u.seen) < oci.MaxLayers {
		u.add(*e.Layer)
	}
}

// add passes a layer to the unpacker once. It never blocks.
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
	line, _ := json.Marshal(l) // cannot fail: strings and a number
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

// unpacked handles an event of the unpacker, and adds the digest of the layer's blob.
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

// finish ends the list of layers and waits until all of them are unpacked. It may be called twice.
func (u *unpacker) finish() error {
	if u.ended == nil {
		return nil // nothing to unpack
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
