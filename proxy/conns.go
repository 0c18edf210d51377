package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"demesne/proxy/policy"
)

// connections holds the listeners and connections that Proxy.Close closes.
type connections struct {
	ctx  context.Context // of the proxy
	most int             // connections at once

	mu    sync.Mutex
	held  map[io.Closer]bool // nil after closeAll
	conns int                // number of connections in held
}

// closeAll closes everything that is held, and makes hold fail.
func (s *connections) closeAll() {
	s.mu.Lock()
	held := s.held
	s.held = nil
	s.mu.Unlock()
	for c := range held {
		c.Close()
	}
}

// hold registers c, so that Close closes it. It fails after Close, or when c exceeds Limits.Connections.
func (s *connections) hold(c io.Closer) error {
	_, isConn := c.(net.Conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.held == nil:
		return net.ErrClosed
	case isConn && s.conns >= s.most:
		return fmt.Errorf("more than %d connections at once", s.most)
	}
	if isConn {
		s.conns++
	}
	s.held[c] = true
	return nil
}

// release closes and unregisters c. Calling it twice is safe.
func (s *connections) release(c io.Closer) {
	c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, isConn := c.(net.Conn); s.held[c] && isConn {
		s.conns--
	}
	delete(s.held, c)
}

// unhold unregisters c without closing it.
func (s *connections) unhold(c closer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, c)
}

// accept passes each connection of l to serve, which must release it. It returns nil after Close.
func (p *Proxy) accept(l net.Listener, serve func(*net.TCPConn)) error {
	if err := p.hold(l); err != nil {
		l.Close()
		return nil
	}
	defer p.release(l)
	var full time.Time // when the limit was reached; zero: it is not reached
	for {
		c, err := p.next(l)
		if err != nil {
			return nil
		}
		tcp, ok := c.(*net.TCPConn)
		if !ok {
			c.Close()
			return fmt.Errorf("serve %v: not TCP", l.Addr())
		}
		p.admitted(tcp, &full, serve)
	}
}

// admitted serves a connection on its own goroutine, unless there are too many. full is as for holdSoon.
func (p *Proxy) admitted(c *net.TCPConn, full *time.Time, serve func(*net.TCPConn)) {
	if err := p.holdSoon(c, full); err != nil {
		p.turnAway(c, err)
		return
	}
	go serve(c)
}

// next accepts from l. It returns an error only when l or p is closed.
func (s *connections) next(l net.Listener) (net.Conn, error) {
	for {
		c, err := l.Accept()
		if err == nil || s.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return c, err
		}
		time.Sleep(10 * time.Millisecond) // probably out of descriptors: some will be closed
	}
}

// turnAway resets and logs a connection above the limit. It is never inlined: its stack frame would make up half
// the stack of each waiting listener, and a sandbox has several.
//
//go:noinline
func (p *Proxy) turnAway(c *net.TCPConn, why error) {
	reset(c)
	p.log.write(Record{Via: "accept", Host: c.LocalAddr().String()}.Decided(policy.Decision{Reason: why.Error()}))
}

// patience is how long a connection above the limit waits for others to end. Among many short connections, some
// have ended but are not released yet.
const patience = 100 * time.Millisecond

// holdSoon is hold, but waits for a free place until the limit has been reached for longer than patience. All
// connections share that time: full is when it began.
func (s *connections) holdSoon(c io.Closer, full *time.Time) error {
	for {
		err := s.hold(c)
		switch {
		case err == nil:
			*full = time.Time{}
			return nil
		case full.IsZero():
			*full = time.Now()
		case time.Since(*full) > patience, s.ctx.Err() != nil:
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// reset closes c with a TCP reset, so that its peer sees an error instead of an end.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}

// Handoff is a listener that accepts connections from Give, until its proxy is closed.
type Handoff struct {
	ch   chan net.Conn
	ctx  context.Context
	addr net.Addr
}

// Handoff returns a new Handoff.
func (p *Proxy) Handoff() Handoff { return Handoff{make(chan net.Conn), p.ctx, &net.TCPAddr{}} }

// Give passes c to Accept. It closes c if the proxy is closed.
func (h Handoff) Give(c net.Conn) {
	select {
	case h.ch <- c:
	case <-h.ctx.Done():
		c.Close()
	}
}

func (h Handoff) Accept() (net.Conn, error) {
	select {
	case c := <-h.ch:
		return c, nil
	case <-h.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (h Handoff) Close() error   { return nil }
func (h Handoff) Addr() net.Addr { return h.addr }

// counted is a listener whose connections count against the proxy's limit.
type counted struct {
	net.Listener
	p *Proxy
}

func (l *counted) Accept() (net.Conn, error) {
	for {
		c, err := l.p.next(l.Listener)
		if err != nil {
			return nil, err
		}
		cc := &countedConn{Conn: c, p: l.p}
		if l.p.hold(c) == nil {
			return cc, nil
		}
		c.Close()
	}
}

type countedConn struct {
	net.Conn
	p    *Proxy
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.p.release(c.Conn) })
	return nil
}

// held is a connection on its way to an HTTP server, with the bytes already read from it.
type held struct {
	net.Conn
	head []byte
	flow *flow
}

func (h *held) Read(b []byte) (int, error) {
	if len(h.head) > 0 {
		n := copy(b, h.head)
		h.head = h.head[n:]
		return n, nil
	}
	return h.Conn.Read(b)
}
