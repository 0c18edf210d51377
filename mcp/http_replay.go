package mcp

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// replayTime is how long a client whose connection broke can be away. Until then its calls go on and the events
	// that it missed are kept. Clients try again for less than a minute.
	replayTime = 5 * time.Minute
	// maxReplay is the maximum size of the events that are kept for all clients, in bytes. The newest event is kept
	// in any case.
	maxReplay = 16 << 20
)

// replay keeps the latest events of the HTTP sessions of protocols before 2026-07-28, for clients that return with
// Last-Event-ID. It is an [sdk.EventStore].
type replay struct {
	mu      sync.Mutex
	streams map[streamKey]*stream
	queue   []queued // all kept events of all streams, the oldest first
	bytes   int
	sweep   *time.Timer // nil: not running
}

type streamKey struct{ session, stream string }

// stream holds the events of a stream with the indices from first on.
type stream struct {
	first  int
	events [][]byte
	last   time.Time // of the last change
}

type queued struct {
	key streamKey
	at  time.Time
}

var errNoStream = errors.New("no such stream")

func newReplay() *replay { return &replay{streams: map[streamKey]*stream{}} }

// Open begins a stream.
func (p *replay) Open(_ context.Context, session, id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stream(streamKey{session, id})
	return nil
}

// stream returns a stream, which it begins if necessary. p.mu is held.
func (p *replay) stream(key streamKey) *stream {
	s := p.streams[key]
	if s == nil {
		s = &stream{}
		p.streams[key] = s
	}
	s.last = time.Now()
	if p.sweep == nil {
		p.sweep = time.AfterFunc(replayTime, p.forget)
	}
	return s
}

// Append adds an event to a stream.
func (p *replay) Append(_ context.Context, session, id string, data []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := streamKey{session, id}
	s := p.stream(key)
	s.events = append(s.events, data)
	p.queue = append(p.queue, queued{key, s.last})
	p.bytes += len(data)
	for p.bytes > maxReplay && len(p.queue) > 1 {
		p.drop()
	}
	return nil
}

// drop drops the oldest event. p.mu is held.
func (p *replay) drop() {
	s := p.streams[p.queue[0].key]
	p.queue[0], p.queue = queued{}, p.queue[1:]
	p.bytes -= len(s.events[0])
	s.events[0], s.events = nil, s.events[1:]
	s.first++
}

// forget drops what is too old, and runs again while anything is kept. A stream is dropped when it has been silent for
// the whole time; the heartbeats of a call keep its stream.
func (p *replay) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for len(p.queue) > 0 && now.Sub(p.queue[0].at) >= replayTime {
		p.drop()
	}
	for key, s := range p.streams {
		if len(s.events) == 0 && key.stream != "" && now.Sub(s.last) >= replayTime {
			delete(p.streams, key)
		}
	}
	p.sweep = nil
	if len(p.queue) > 0 || len(p.streams) > 0 {
		p.sweep = time.AfterFunc(replayTime/2, p.forget)
	}
}

// After returns the events behind index, or an error if one of them is not kept any more.
func (p *replay) After(_ context.Context, session, id string, index int) iter.Seq2[[]byte, error] {
	events, err := p.after(streamKey{session, id}, index)
	return func(yield func([]byte, error) bool) {
		if err != nil {
			yield(nil, err)
			return
		}
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (p *replay) after(key streamKey, index int) ([][]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.streams[key]
	if s == nil {
		return nil, errNoStream
	}
	from := index + 1 - s.first
	if from < 0 {
		return nil, sdk.ErrEventsPurged
	}
	return slices.Clone(s.events[min(from, len(s.events)):]), nil
}

// SessionClosed drops the streams of a session.
func (p *replay) SessionClosed(_ context.Context, session string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = slices.DeleteFunc(p.queue, func(q queued) bool { return q.key.session == session })
	for key, s := range p.streams {
		if key.session == session {
			for _, e := range s.events {
				p.bytes -= len(e)
			}
			delete(p.streams, key)
		}
	}
	return nil
}
