package mcp

import "context"

// Drain returns when no call of a tool is under way, and what follows an answer is done.
func (s *Server) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.calls > 0 {
		s.idle.Wait()
	}
}

// count takes note of a call that begins (1) or ends (-1).
func (s *Server) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resting.Stop()
	if s.calls += n; s.calls == 0 {
		s.idle.Broadcast()
		s.resting.Reset(restAfter)
	}
}

// begin counts a call and has [Server.hangUp] end the context that it returns, until end.
func (s *Server) begin(ctx context.Context, session string) (_ context.Context, end func()) {
	s.count(1)
	if session == "" {
		return ctx, func() { s.count(-1) }
	}
	ctx, cancel := context.WithCancel(ctx)
	forget := s.ending(session, &cancel)
	return ctx, func() {
		forget()
		s.count(-1)
	}
}

// ending has [Server.hangUp] call cancel, until forget.
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

// hangUp ends the calls of an HTTP session whose client ends it: nobody takes their answers.
func (s *Server) hangUp(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for cancel := range s.open[session] {
		(*cancel)()
	}
}

// answering has told called when the answer is written: that is when the SDK ends ctx, the context
// of the call that it answers. Drain waits for it.
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
