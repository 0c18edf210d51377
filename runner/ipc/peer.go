package ipc

import (
	"context"
	"errors"
	"os"
	"sync"
)

// ErrClosed is returned by a call whose connection ended before the reply.
var ErrClosed = errors.New("connection closed")

// Peer is a Conn on which both sides make calls: it numbers them, matches replies
// to them and hands everything else to Handle, in order of arrival.
type Peer struct {
	conn   *Conn
	handle func(*Message)

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan *Message
	done    chan struct{}
}

// NewPeer wraps conn. handle gets the calls and events of the other side, one at a
// time and on the goroutine of [Peer.Serve]: it starts its own for anything slow.
// It owns each message and closes it.
func NewPeer(conn *Conn, handle func(*Message)) *Peer {
	return &Peer{conn: conn, handle: handle, waiting: map[uint64]chan *Message{}, done: make(chan struct{})}
}

// Serve reads until the connection ends, then fails the calls still open.
func (p *Peer) Serve() error {
	defer close(p.done)
	for {
		m, err := p.conn.Recv()
		switch {
		case m == nil:
			return err
		case err != nil && m.Op == "": // a reply: who waits for it is told
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

// Done is closed when Serve has returned.
func (p *Peer) Done() <-chan struct{} { return p.done }

// Close ends the connection.
func (p *Peer) Close() error { return p.conn.Close() }

// Call sends op and decodes the reply's body into reply, if that is not nil. The
// error is an *Error when the other side gave one. Files of the reply are closed;
// use [Peer.CallMessage] to take them.
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

// CallMessage is Call with the whole reply, which the caller closes. A deadline of ctx bounds the sending too.
func (p *Peer) CallMessage(ctx context.Context, op Op, body any, files Files) (*Message, error) {
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
	if err := p.conn.SendBefore(limit, Message{ID: id, Op: op}, body, files); err != nil {
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
		forget()
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
		return nil, m.Error
	}
	return m, nil
}

// Reply answers the call m.
func (p *Peer) Reply(m *Message, body any, files Files) error {
	return p.conn.Send(Message{ID: m.ID}, body, files)
}

// Fail answers the call m with an error.
func (p *Peer) Fail(m *Message, err error) error {
	return p.conn.Send(Message{ID: m.ID, Error: AsError(err)}, nil, nil)
}

// Event sends op without expecting a reply.
func (p *Peer) Event(op Op, body any) error {
	return p.conn.Send(Message{Op: op}, body, nil)
}
