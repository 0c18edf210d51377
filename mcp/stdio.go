package mcp

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// ServeStdio serves one client over in and out. It returns nil when the input has ended and all
// calls are answered. When ctx ends, it reads no more requests, and answers those in flight.
func (s *Server) ServeStdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	t := &draining{inner: newFrames(in, out), stop: ctx.Done()}
	// The session must outlive ctx: closing it would drop the calls in flight.
	session, err := s.sdk.Connect(context.WithoutCancel(ctx), t, nil)
	if err != nil {
		return err
	}
	err = session.Wait()
	s.Drain()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// draining is a transport whose connection ends only when every call is answered. The SDK's own
// transport ends with its input and drops the calls in flight.
type draining struct {
	inner sdk.Transport
	stop  <-chan struct{}
}

// Connect wraps the inner transport's connection.
func (t *draining) Connect(ctx context.Context) (sdk.Connection, error) {
	inner, err := t.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &drainingConn{Connection: inner, open: map[jsonrpc.ID]bool{}, stop: t.stop, gone: make(chan struct{})}
	c.empty.L = &c.mu
	return c, nil
}

// drainingConn tracks the calls that are not answered yet.
//
//	Read:  call      → open
//	Read:  cancelled → no longer open, because the SDK may never answer the call
//	Write: response  → no longer open, even if the write failed
//	Read:  EOF       → returned when no call is open
type drainingConn struct {
	sdk.Connection
	stop <-chan struct{}

	mu    sync.Mutex
	empty sync.Cond
	open  map[jsonrpc.ID]bool
	dead  bool // no answer can be delivered any more

	reads chan read
	once  sync.Once
	gone  chan struct{} // closed by Close
}

type read struct {
	m   jsonrpc.Message
	err error
}

// Read returns the next message, or io.EOF once all calls are answered.
func (c *drainingConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	c.mu.Lock()
	if c.reads == nil {
		c.reads = make(chan read)
		go c.pump(ctx)
	}
	c.mu.Unlock()
	select {
	case r := <-c.reads:
		if r.err != nil {
			c.drain()
			return nil, r.err
		}
		return r.m, nil
	case <-c.stop:
		c.drain()
		return nil, io.EOF
	case <-c.gone:
		return nil, io.EOF
	}
}

// pump reads one message ahead, so that a stop is noticed while the client is silent. It ends
// with the input or the connection. A read that blocks forever ends with the process.
func (c *drainingConn) pump(ctx context.Context) {
	for {
		m, err := c.Connection.Read(ctx)
		if req, ok := m.(*jsonrpc.Request); ok && req.IsCall() {
			c.mark(req.ID, true)
		}
		select {
		case c.reads <- read{m, err}:
		case <-c.gone:
			return
		}
		if err != nil {
			return
		}
	}
}

// Write sends m and marks the call that it answers as no longer open.
func (c *drainingConn) Write(ctx context.Context, m jsonrpc.Message) error {
	err := c.Connection.Write(ctx, m)
	if r, ok := m.(*jsonrpc.Response); ok {
		c.mark(r.ID, false)
	}
	if err != nil && ctx.Err() == nil {
		c.mu.Lock()
		c.dead = true
		c.empty.Broadcast()
		c.mu.Unlock()
	}
	return err
}

// Close ends the connection and stops waiting for calls in flight.
func (c *drainingConn) Close() error {
	c.once.Do(func() {
		close(c.gone)
		c.mu.Lock()
		c.dead = true
		c.empty.Broadcast()
		c.mu.Unlock()
	})
	return c.Connection.Close()
}

func (c *drainingConn) mark(id jsonrpc.ID, open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if open {
		c.open[id] = true
		return
	}
	delete(c.open, id)
	if len(c.open) == 0 {
		c.empty.Broadcast()
	}
}

func (c *drainingConn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.open) > 0 && !c.dead {
		c.empty.Wait()
	}
}
