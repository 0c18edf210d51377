package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"demesne/proxy/audit"
	"demesne/proxy/policy"
)

// hold keeps c for Close. It says no when it is too late, or a connection too many.
func (p *Proxy) hold(c io.Closer) error {
	_, isConn := c.(net.Conn)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.held == nil:
		return net.ErrClosed
	case isConn && p.conns >= p.Limits.Connections:
		return fmt.Errorf("more than %d connections at once", p.Limits.Connections)
	}
	if isConn {
		p.conns++
	}
	p.held[c] = true
	return nil
}

// release closes c and forgets it. It can be called twice.
func (p *Proxy) release(c io.Closer) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, isConn := c.(net.Conn); p.held[c] && isConn {
		p.conns--
	}
	delete(p.held, c)
}

// unhold forgets c, which stays open.
func (p *Proxy) unhold(c closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.held, c)
}

// accept hands each connection to serve, which releases it.
func (p *Proxy) accept(l net.Listener, serve func(*net.TCPConn)) error {
	if err := p.hold(l); err != nil {
		l.Close()
		return nil
	}
	defer p.release(l)
	var full time.Time // since when, zero: it is not
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
		if err := p.holdSoon(tcp, &full); err != nil {
			p.turnAway(tcp, err)
			continue
		}
		go serve(tcp)
	}
}

// next accepts from l. An error is the end of l or of p.
func (p *Proxy) next(l net.Listener) (net.Conn, error) {
	for {
		c, err := l.Accept()
		if err == nil || p.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return c, err
		}
		time.Sleep(10 * time.Millisecond) // out of descriptors, most likely: others will be closed
	}
}

// turnAway is a function of its own, never inlined: what it has on the stack would be that of each listener that
// waits, of which a sandbox has several, and half of all it takes.
//
//go:noinline
func (p *Proxy) turnAway(c *net.TCPConn, why error) {
	reset(c)
	p.log.write(audit.Record{Via: "accept", Host: c.LocalAddr().String()}.Decided(policy.Decision{Reason: why.Error()}))
}

// patience is how long a connection too many waits for others to end: of many short ones
// some have ended that nobody has come to yet.
const patience = 100 * time.Millisecond

// holdSoon is hold, and waits for a place if there has been none for less than patience. That
// time is one for all that come meanwhile: full is since when.
func (p *Proxy) holdSoon(c io.Closer, full *time.Time) error {
	for {
		err := p.hold(c)
		switch {
		case err == nil:
			*full = time.Time{}
			return nil
		case full.IsZero():
			*full = time.Now()
		case time.Since(*full) > patience, p.ctx.Err() != nil:
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// reset closes c so that its peer hears of an error, not of an end.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}

// handoff is a listener whose connections come from us.
type handoff struct {
	ch   chan net.Conn
	ctx  context.Context
	addr net.Addr
}

func newHandoff(ctx context.Context) handoff {
	return handoff{make(chan net.Conn), ctx, &net.TCPAddr{}}
}

// give hands c to whoever accepts.
func (h handoff) give(c net.Conn) {
	select {
	case h.ch <- c:
	case <-h.ctx.Done():
		c.Close()
	}
}

func (h handoff) Accept() (net.Conn, error) {
	select {
	case c := <-h.ch:
		return c, nil
	case <-h.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (h handoff) Close() error   { return nil }
func (h handoff) Addr() net.Addr { return h.addr }

// counted is a listener whose connections count as the proxy's.
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

// held is a connection with what was read of it already, on its way to an HTTP server.
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
