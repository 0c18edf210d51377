package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"
)

// ServeStdio serves one client over in and out. It returns nil when the input has ended and all
// calls are answered. When ctx ends, it reads no more requests, and answers those in flight.
func (s *Server) ServeStdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	t := &draining{inner: newFrames(in, out), stop: ctx.Done(), out: out}
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
	out   io.Writer // where answers go
}

// Connect wraps the inner transport's connection.
func (t *draining) Connect(ctx context.Context) (sdk.Connection, error) {
	inner, err := t.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &drainingConn{Connection: inner, stop: t.stop, out: t.out}
	c.init()
	return c, nil
}

const (
	// maxCalls is the maximum number of tool calls in progress, and of subscriptions. A further one is refused,
	// because messages behind it may be what a call waits for.
	maxCalls = 1000
	// maxUnread is the maximum number of other requests without an answer, and of answers being written. They need
	// nothing but a client that reads, so the connection stops reading until the client does.
	maxUnread = 64
	// goneEvery is the interval between checks whether the client has disconnected.
	goneEvery = 200 * time.Millisecond
)

// A kind of request says how long it may be open.
type kind int

const (
	brief      kind = iota // until the client reads the answer
	running                // as long as the call takes
	subscribed             // until the client ends it
)

// kindOf returns the kind of a method.
func kindOf(method string) kind {
	switch method {
	case "tools/call":
		return running
	case "subscriptions/listen":
		return subscribed
	}
	return brief
}

// drainingConn tracks the requests that are not answered yet.
//
//	Read:  request   → open
//	Write: response  → writing, and then done, even if the write failed
//	Read:  EOF       → returned when nothing but subscriptions is open, or the client has left
type drainingConn struct {
	sdk.Connection
	stop <-chan struct{}
	out  io.Writer

	mu      sync.Mutex
	changed sync.Cond // signalled when an answer is written, and when dead becomes true
	open    map[jsonrpc.ID]kind
	count   [subscribed + 1]int // of each kind in open
	writing int
	dead    bool // no answer can be delivered any more

	reads chan read
	once  sync.Once
	gone  chan struct{} // closed by Close
}

type read struct {
	m   jsonrpc.Message
	err error
}

func (c *drainingConn) init() {
	c.open, c.gone = map[jsonrpc.ID]kind{}, make(chan struct{})
	c.changed.L = &c.mu
}

// Read returns the next message, or io.EOF once all calls are answered.
func (c *drainingConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	c.mu.Lock()
	if c.reads == nil {
		c.reads = make(chan read)
		go c.pump(ctx)
	}
	c.mu.Unlock()
	for {
		select {
		case r := <-c.reads:
			if r.err != nil {
				c.drain()
				return nil, r.err
			}
			if refusal := c.admit(r.m); refusal != nil {
				c.Connection.Write(ctx, refusal)
				continue
			}
			return r.m, nil
		case <-c.stop:
			c.drain()
			return nil, io.EOF
		case <-c.gone:
			return nil, io.EOF
		}
	}
}

// pump reads one message ahead, so that a stop is noticed while the client is silent. It ends
// with the input or the connection. A read that blocks forever ends with the process.
func (c *drainingConn) pump(ctx context.Context) {
	for {
		m, err := c.Connection.Read(ctx)
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

// admit registers a request, or returns its refusal. It waits while the client leaves too many answers unread, and until
// the id is free.
func (c *drainingConn) admit(m jsonrpc.Message) (refusal *jsonrpc.Response) {
	req, ok := m.(*jsonrpc.Request)
	if !ok || !req.IsCall() {
		return nil
	}
	k := kindOf(req.Method)
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.dead {
		other, taken := c.open[req.ID]
		switch {
		case taken && other != brief: // the SDK would not answer
			return &jsonrpc.Response{Error: &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf("id %v is the id of a call in progress", req.ID.Raw())}}
		case k != brief && c.count[k] >= maxCalls:
			return &jsonrpc.Response{ID: req.ID, Error: &jsonrpc.Error{Code: codeBusy, Message: fmt.Sprintf("%d calls are in progress: try again later", maxCalls)}}
		case taken, k == brief && c.count[brief]+c.writing >= maxUnread:
			c.changed.Wait()
			continue
		}
		c.open[req.ID] = k
		c.count[k]++
		return nil
	}
	return nil
}

// codeBusy is the code of the error for a call above maxCalls.
const codeBusy = -32000

// Write sends m and marks the request that it answers as answered. A client can use the id again at once.
func (c *drainingConn) Write(ctx context.Context, m jsonrpc.Message) error {
	r, ok := m.(*jsonrpc.Response)
	if ok {
		c.answer(r.ID)
		defer c.answered()
	}
	err := c.Connection.Write(ctx, m)
	if err != nil && ctx.Err() == nil {
		c.die()
	}
	return err
}

func (c *drainingConn) answer(id jsonrpc.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing++
	if k, open := c.open[id]; open {
		delete(c.open, id)
		c.count[k]--
	}
}

func (c *drainingConn) answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing--
	c.changed.Broadcast()
}

// die stops waiting for answers.
func (c *drainingConn) die() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = true
	c.changed.Broadcast()
}

// Close ends the connection and stops waiting for calls in flight.
func (c *drainingConn) Close() error {
	c.once.Do(func() {
		close(c.gone)
		c.die()
	})
	return c.Connection.Close()
}

// drain returns when the calls are answered or no client is left for their answers.
func (c *drainingConn) drain() {
	drained := make(chan struct{})
	defer close(drained)
	go c.watch(drained)
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.dead && c.count[brief]+c.count[running]+c.writing > 0 {
		c.changed.Wait()
	}
}

// watch calls die when nothing can read c.out any more, because a call may write nothing before its result. It ends
// when drained is closed.
func (c *drainingConn) watch(drained <-chan struct{}) {
	file, ok := c.out.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := file.SyscallConn()
	for err == nil {
		gone := false
		err = raw.Control(func(fd uintptr) { gone = hungUp(int(fd), goneEvery) })
		select {
		case <-drained:
			return
		default:
		}
		if gone {
			c.die()
			return
		}
	}
}

// hungUp waits until the other end of a pipe, socket or terminal is closed, at most for the given time, and reports
// whether it is.
func hungUp(fd int, wait time.Duration) bool {
	p := []unix.PollFd{{Fd: int32(fd)}} // errors and hang-ups need no request
	n, err := unix.Poll(p, int(wait.Milliseconds()))
	return err == nil && n > 0
}
