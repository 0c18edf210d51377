package proxy

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync/atomic"
)

// An answer ends as its server says: by a length, a last chunk, or the close_notify of TLS. When it ends otherwise, or the
// rule's budget is spent, the connection to the client is reset: goproxy has no error for that and would end
// what it sends on in good order, so that a cut download looks complete. Only an answer in clear that has neither a length nor
// chunks ends with its connection.

// body is the body of an answer, as it is read.
type body struct {
	counter
	below *ending // of an answer over TLS that ends with its connection; or nil
	cut   error   // that ended it before its end
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.counter.Read(p)
	if err == io.EOF && b.below != nil && b.below.seen.Load() {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && err != io.EOF {
		b.cut = err
	}
	return n, err
}

// bodyOf puts a body in the place of that of resp, an answer to fl.
func (f *forwarder) bodyOf(resp *http.Response, fl *flow) *body {
	b := &body{counter: counter{ReadCloser: resp.Body, n: &fl.in, b: f.p.spent.of(fl.d.Rule)}}
	if resp.TLS != nil && resp.ContentLength < 0 && len(resp.TransferEncoding) == 0 {
		b.below = fl.below
	}
	fl.body = b
	return b
}

// ending is a connection below TLS. It notes an end that TLS did not announce: crypto/tls reads no further than
// close_notify and takes an end without one for an end.
type ending struct {
	net.Conn
	seen atomic.Bool
}

func (e *ending) Read(b []byte) (int, error) {
	n, err := e.Conn.Read(b)
	if err == io.EOF {
		e.seen.Store(true)
	}
	return n, err
}

// endingOf returns the ending below TLS, or nil.
func endingOf(c net.Conn) *ending {
	for {
		switch below := c.(type) {
		case *tls.Conn:
			c = below.NetConn()
		case *ending:
			return below
		default:
			return nil
		}
	}
}

type connKey struct{}

// withConn keeps a client's connection for abort.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if h, ok := heldBy(c); ok {
		c = h.Conn
	}
	return context.WithValue(ctx, connKey{}, c)
}

// abort resets the connection that a request came by. It does not return. A reset, as the end of the connection, or a close_notify,
// would be the end of an answer to an HTTP/1.0 client.
func abort(r *http.Request) {
	reset(r.Context().Value(connKey{}).(net.Conn))
	panic(http.ErrAbortHandler)
}
