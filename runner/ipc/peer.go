package ipc

import (
	"context"
	"errors"
	"os"
	"sync"
)

// ErrClosed is returned by a call whose connection ended before the reply.
var ErrClosed = errors.New("connection closed")

// Peer is a Conn on which both sides make calls. It numbers outgoing calls and matches replies to them. It passes
// everything else to the handler, in order of arrival.
type Peer struct {
	conn   *Conn
	handle func(*Message)

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan *Message
	done    chan struct{}
}

// NewPeer wraps conn. Serve passes the calls and events of the other side to handle, one at a time and on its own
// goroutine. So handle must start a goroutine for anything slow. handle owns each message and closes it.
func NewPeer(conn *Conn, handle func(*Message)) *Peer {
	return &Peer{conn: conn, handle: handle, waiting: map[uint64]chan *Message{}, done: make(chan struct{})}
}

// Serve reads until the connection ends. Open calls then fail with [ErrClosed].
func (p *Peer) Serve() error {
	defer close(p.done)
	for {
		m, err := p.conn.Recv()
		switch {
		case m == nil:
			return err
		case err != nil && m.Op == "": // a reply: its caller gets the error
			m.Error = AsError(err)
		case err != nil && m.ID == 0:
			return err
		case err != nil:
			if err := p.Fail(m, err); err != nil {
				return err
			}
			continue
		}
		if m.Op != "" {
			p.handle(m)
			continue
		}
		p.mu.Lock()
		ch := p.waiting[m.ID]
		delete(p.waiting, m.ID)
		p.mu.Unlock()
		if ch == nil {
			m.Close()
			continue
		}
		ch <- m
	}
}

// Done returns a channel that is closed when Serve has returned.
func (p *Peer) Done() <-chan struct{} { return p.done }

// Close closes the connection.
func (p *Peer) Close() error { return p.conn.Close() }

// Call sends op and decodes the body of the reply into reply, unless reply is nil. The error is an *Error if the
// other side returned one. Call closes the reply's descriptors; use [Peer.CallMessage] to keep them.
func (p *Peer) Call(ctx context.Context, op Op, body any, files Files, reply any) error {
	m, err := p.CallMessage(ctx, op, body, files)
	if err != nil {
		return err
	}
	defer m.Close()
	if reply == nil {
		return nil
	}
	return m.Decode(reply)
}

// CallMessage is like Call but returns the whole reply, which the caller closes. A deadline in ctx also bounds
// sending.
func (p *Peer) CallMessage(ctx context.Context, op Op, body any, files Files) (*Message, error) {
	return p.CallUndone(ctx, op, body, files, nil)
}

// CallUndone is like CallMessage, for a call that makes something. If ctx ends first and the call succeeds later, undo gets
// the reply, on a goroutine of its own, and closes it.
func (p *Peer) CallUndone(ctx context.Context, op Op, body any, files Files, undo func(*Message)) (*Message, error) {
	ch := make(chan *Message, 1)
	p.mu.Lock()
	p.next++
	id := p.next
	p.waiting[id] = ch
	p.mu.Unlock()
	forget := func() {
		p.mu.Lock()
		delete(p.waiting, id)
		p.mu.Unlock()
	}
	limit, _ := ctx.Deadline()
	if err := p.conn.sendBefore(limit, Message{ID: id, Op: op}, body, files); err != nil {
		forget()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, context.DeadlineExceeded
		}
		return nil, err
	}
	var m *Message
	select {
	case m = <-ch:
	case <-ctx.Done():
		if undo == nil {
			forget()
			return nil, ctx.Err()
		}
		go func() {
			select {
			case m := <-ch:
				if m.Error == nil {
					undo(m)
				}
			case <-p.done:
				forget()
			}
		}()
		return nil, ctx.Err()
	case <-p.done:
		select {
		case m = <-ch:
		default:
			forget()
			return nil, ErrClosed
		}
	}
	if m.Error != nil {
		m.Close()
		return nil, m.Error.bounded() // the other side may be a PID 1 that a workload took over
	}
	return m, nil
}

// Reply answers the call m. If that answer cannot be sent, the caller gets the reason, because it would wait forever
// otherwise: the answer is too long, or this user has too many descriptors on their way (unix(7), ETOOMANYREFS).
func (p *Peer) Reply(m *Message, body any, files Files) error {
	err := p.conn.Send(Message{ID: m.ID}, body, files)
	if err != nil {
		p.Fail(m, err)
	}
	return err
}

// Fail answers the call m with an error.
func (p *Peer) Fail(m *Message, err error) error {
	return p.conn.Send(Message{ID: m.ID, Error: AsError(err)}, nil, nil)
}

// Event sends op and expects no reply.
func (p *Peer) Event(op Op, body any) error {
	return p.conn.Send(Message{Op: op}, body, nil)
}
