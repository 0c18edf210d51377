package code

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"demesne/images"
	"demesne/runner/ipc"
	"demesne/session"
)

// prepared keeps sessions that are started ahead, one of each shape that was asked for lately. A shape is all that a
// session is made of: the sandbox's, the language, the kernel and its directory. Dependencies are installed later.
//
// A prepared session is a whole sandbox of its own with a kernel that has executed nothing. It is handed out once, and
// never comes back. If a new session finds no room, all prepared ones end first: they never refuse real work.
//
// A fork server would be faster to fill, but its children share a sandbox with each other, or need a checkpoint of the
// whole sandbox: see docs/explanation/how-it-works.md.
type prepared struct {
	max   int
	idle  time.Duration
	shape func(context.Context, session.CreateOptions) (string, bool)
	make  func(context.Context, Options) (*Session, error)
	ctx   context.Context
	stop  context.CancelFunc

	mu     sync.Mutex
	shapes []*shape // the one asked for last is the last
	making bool
	closed bool
	expiry *time.Timer
	work   sync.WaitGroup
	busy   []context.Context // of the sessions that are being made or ended, which take room: each ends with that
}

// shape is a kind of session that was asked for.
type shape struct {
	word    string
	options Options
	asked   time.Time
	ready   *Session // nil: none, or one is being made
	failed  bool     // the last attempt to make one; the next request tries again
}

// aheadDelay is the time from a request to the preparation for the next one: the first execution comes first.
const aheadDelay = 100 * time.Millisecond

func newPrepared(l Limits, shape func(context.Context, session.CreateOptions) (string, bool), make func(context.Context, Options) (*Session, error)) *prepared {
	p := &prepared{max: l.Prepared, idle: cmp.Or(l.PreparedIdle, defaultPreparedIdle), shape: shape, make: make}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// wordOf returns the shape of a request. ok is false if nothing can be prepared for it.
func (p *prepared) wordOf(ctx context.Context, o Options) (word string, ok bool) {
	if p.max == 0 {
		return "", false
	}
	word, ok = p.shape(ctx, o.Create)
	return fmt.Sprintf("%q %q %q %s", o.Language.Name, o.Kernel, o.Dir, word), ok
}

// take returns a session that was started in advance, or calls start. It then prepares a session for the next request.
func (p *prepared) take(ctx context.Context, o Options, start func() (*Session, error)) (*Session, error) {
	word, ok := p.wordOf(ctx, o)
	if ok {
		if c := p.ready(word); c != nil {
			p.ask(word, o)
			c.adopt(o)
			return c, nil
		}
	}
	c, err := start()
	switch {
	case err == nil && ok:
		p.ask(word, o)
	case err != nil && noRoom(err) && p.release(ctx):
		return start()
	}
	return c, err
}

// noRoom reports whether a session could be made if others ended.
func noRoom(err error) bool {
	var e *ipc.Error
	return errors.As(err, &e) && (e.Code == ipc.CodeTooMany || e.Code == ipc.CodeTooMuch || e.Code == ipc.CodeNoSpace)
}

// ready hands out the prepared session of a shape, if there is one that lives.
func (p *prepared) ready(word string) *Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.shapes {
		if s.word != word || s.ready == nil {
			continue
		}
		c := s.ready
		s.ready = nil
		if c.Death() == nil {
			return c
		}
		p.end(c)
	}
	return nil
}

// ask records a request, and soon prepares for the next one.
func (p *prepared) ask(word string, o Options) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	o.Create.Pull, o.Dependencies = images.PullNever, nil
	s := &shape{word: word, options: o}
	if at := slices.IndexFunc(p.shapes, func(s *shape) bool { return s.word == word }); at >= 0 {
		s = p.shapes[at]
		p.shapes = slices.Delete(p.shapes, at, at+1)
	}
	s.asked, s.failed = time.Now(), false
	p.shapes = append(p.shapes, s)
	p.keep(func(i int, s *shape) bool { return i >= len(p.shapes)-p.max })
	p.start()
}

// keep ends the prepared sessions of the shapes for which wanted is false, and forgets these. p.mu must be held.
func (p *prepared) keep(wanted func(int, *shape) bool) {
	var rest []*shape
	for i, s := range p.shapes {
		switch {
		case wanted(i, s):
			rest = append(rest, s)
		case s.ready != nil:
			p.end(s.ready)
		}
	}
	p.shapes = rest
	if p.expiry != nil {
		p.expiry.Stop()
	}
	if len(rest) > 0 {
		p.expiry = time.AfterFunc(time.Until(rest[0].asked.Add(p.idle)), p.expire)
	}
}

func (p *prepared) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.keep(func(_ int, s *shape) bool { return time.Since(s.asked) < p.idle })
	}
}

// begin notes that a session is being made or ended. The caller calls done at the end of that. p.mu must be held.
func (p *prepared) begin() (done func()) {
	taken, done := context.WithCancel(context.Background())
	p.busy = append(slices.DeleteFunc(p.busy, func(old context.Context) bool { return old.Err() != nil }), taken)
	return done
}

// end ends a session. p.mu must be held.
func (p *prepared) end(c *Session) {
	done := p.begin()
	p.work.Go(func() {
		defer done()
		c.Close()
	})
}

// release ends all prepared sessions, and waits for that and for one that is being made. It reports whether there were any.
func (p *prepared) release(ctx context.Context) bool {
	p.mu.Lock()
	p.keep(func(int, *shape) bool { return false })
	busy := p.busy
	p.busy = nil
	p.mu.Unlock()
	for _, taken := range busy {
		select {
		case <-taken.Done():
		case <-ctx.Done():
			return false
		}
	}
	return len(busy) > 0
}

// start starts the maker, unless it works already. p.mu must be held.
func (p *prepared) start() {
	if p.making {
		return
	}
	p.making = true
	p.work.Go(func() {
		select {
		case <-time.After(aheadDelay):
			p.fill()
		case <-p.ctx.Done():
		}
	})
}

// fill prepares what is missing, one session after the other.
func (p *prepared) fill() {
	for {
		s, done := p.missing()
		if s == nil {
			return
		}
		c, err := p.make(p.ctx, s.options)
		p.mu.Lock()
		s.failed = err != nil
		unwanted := err == nil && (p.closed || !slices.Contains(p.shapes, s))
		if err == nil && !unwanted {
			s.ready = c
		}
		p.mu.Unlock()
		if unwanted {
			c.Close()
		}
		done()
	}
}

// missing returns the shape to prepare next: the one asked for last comes first. Without one the maker ends.
func (p *prepared) missing() (s *shape, done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range slices.Backward(p.shapes) {
		if s.ready == nil && !s.failed && !p.closed {
			return s, p.begin()
		}
	}
	p.making = false
	return nil, nil
}

// close ends all, and waits for that.
func (p *prepared) close() {
	p.mu.Lock()
	p.closed = true
	p.keep(func(int, *shape) bool { return false })
	p.mu.Unlock()
	p.stop()
	p.work.Wait()
}
