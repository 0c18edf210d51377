package mcp

import (
	"context"
	"time"
)

// Drain returns when no tool call is in flight and all follow-up work is done.
func (s *Server) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.calls > 0 {
		s.idle.Wait()
	}
}

// count records that a call begins (1) or ends (-1).
func (s *Server) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resting.Stop()
	if s.calls += n; s.calls == 0 {
		s.idle.Broadcast()
		s.resting.Reset(restAfter)
	}
}

// begin counts a call. It returns a context that [Server.hangUp] cancels. The caller must call
// end.
func (s *Server) begin(ctx context.Context, session string) (_ context.Context, end func()) {
	s.count(1)
	request, plain := ctx.Value(plainKey{}).(context.Context)
	if session == "" && !plain {
		return ctx, func() { s.count(-1) }
	}
	ctx, cancel := context.WithCancel(ctx)
	if plain {
		unlink := context.AfterFunc(request, cancel)
		return ctx, func() { unlink(); s.count(-1) }
	}
	forget := s.ending(session, &cancel)
	return ctx, func() {
		forget()
		s.count(-1)
	}
}

// ending registers cancel for [Server.hangUp], until forget is called.
func (s *Server) ending(session string, cancel *context.CancelFunc) (forget func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[session] == nil {
		s.open[session] = map[*context.CancelFunc]bool{}
	}
	s.open[session][cancel] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open[session], cancel)
		if len(s.open[session]) == 0 {
			delete(s.open, session)
		}
	}
}

// hangUp cancels the calls of an HTTP session that its client ends, because no client is left for
// their answers.
func (s *Server) hangUp(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cancelAll(s.open[session])
}

func cancelAll(calls map[*context.CancelFunc]bool) {
	for cancel := range calls {
		(*cancel)()
	}
}

// presence counts the HTTP requests of a session.
type presence struct {
	requests int
	left     time.Time // when the last one ended
}

// attach counts an HTTP request of a session, until detach is called. If its client left before the answer, and does not
// return within replayTime, the calls of the session are cancelled.
func (s *Server) attach(ctx context.Context, session string) (detach func()) {
	if session == "" {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.attached[session]
	if p == nil {
		p = &presence{}
		s.attached[session] = p
	}
	p.requests++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		p.requests--
		p.left = time.Now()
		switch {
		case p.requests > 0:
		case ctx.Err() != nil || len(s.open[session]) > 0:
			time.AfterFunc(replayTime, func() { s.abandon(session, p) })
		default:
			delete(s.attached, session)
		}
	}
}

// abandon cancels the calls of a session whose client did not return.
func (s *Server) abandon(session string, p *presence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attached[session] != p || p.requests > 0 || time.Since(p.left) < replayTime {
		return
	}
	delete(s.attached, session)
	cancelAll(s.open[session])
}

// answering arranges that told is called once the answer is written. The SDK ends ctx, the context
// of the answered call, at that time. Drain waits for told.
func (c *call) answering(ctx context.Context) {
	if c.told == nil {
		return
	}
	c.count(1)
	context.AfterFunc(ctx, func() {
		defer c.count(-1)
		c.told()
	})
}
