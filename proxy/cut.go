package proxy

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync/atomic"
)

// A server ends a response by a length, a last chunk, or the close_notify of TLS. If a response ends otherwise or
// exhausts the rule's budget, the proxy resets the client's connection. goproxy has no error for that: it would
// end the response in good order, and a truncated download would look complete. Only a response in clear with
// neither length nor chunks ends with its connection.

// body is the body of a response that is being read.
type body struct {
	counter
	below *ending // set for a response over TLS that ends with its connection; or nil
	cut   error   // error that ended the body early
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

// bodyOf returns a body to replace the one in resp, the response to fl.
func (f *forwarder) bodyOf(resp *http.Response, fl *flow) *body {
	b := &body{counter: counter{ReadCloser: resp.Body, n: &fl.in, b: f.p.spent.of(fl.d.Rule)}}
	if resp.TLS != nil && resp.ContentLength < 0 && len(resp.TransferEncoding) == 0 && fl.q.Method != http.MethodHead {
		b.below = fl.below
	}
	fl.body = b
	return b
}

// ending is a connection below TLS. It records an end of the connection that was read, which is an end without
// close_notify: crypto/tls reads no further than that. At a record's end crypto/tls reports it as an ordinary
// end.
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

// withConn stores a client's connection in ctx for abort.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if h, ok := heldBy(c); ok {
		c = h.Conn
	}
	return context.WithValue(ctx, connKey{}, c)
}

// abort resets the connection that carried a request. It does not return. To an HTTP/1.0 client, closing the
// connection or sending close_notify would look like the end of a complete response.
func abort(r *http.Request) {
	reset(r.Context().Value(connKey{}).(net.Conn))
	panic(http.ErrAbortHandler)
}
