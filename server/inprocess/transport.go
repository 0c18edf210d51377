package inprocess

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
)

// transport passes requests to a handler in this process. What the handler writes is read as it is written: there is no
// buffer between them.
type transport struct{ handler http.Handler }

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	in := r.Clone(ctx)
	in.RequestURI, in.RemoteAddr, in.Host = in.URL.RequestURI(), "in-process", in.URL.Host
	if in.Body == nil {
		in.Body = http.NoBody
	}
	body, to := io.Pipe()
	a := &answer{request: r, header: http.Header{}, body: body, to: to, cancel: cancel, begun: make(chan *http.Response, 1)}
	go a.serve(t.handler, in)
	select {
	case resp := <-a.begun:
		return resp, nil
	case <-ctx.Done():
		if r.Context().Err() == nil { // the handler has ended, and its answer may be there too
			select {
			case resp := <-a.begun:
				return resp, nil
			default:
			}
		}
		a.give(context.Cause(ctx))
		return nil, context.Cause(ctx)
	}
}

// answer is an [http.ResponseWriter] whose body is read at the other end.
type answer struct {
	request *http.Request
	header  http.Header
	body    *io.PipeReader
	to      *io.PipeWriter
	cancel  context.CancelFunc
	begun   chan *http.Response

	mu     sync.Mutex
	status int
	taken  bool // begun has a response, or the client has left
}

// serve calls the handler. Its panic ends the answer, as net/http ends the connection.
func (a *answer) serve(h http.Handler, r *http.Request) {
	defer a.cancel()
	defer r.Body.Close()
	defer context.AfterFunc(r.Context(), func() { a.to.CloseWithError(context.Cause(r.Context())) })()
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			a.to.CloseWithError(io.ErrUnexpectedEOF)
		default:
			a.to.CloseWithError(fmt.Errorf("the handler panicked: %v", p))
		}
		a.WriteHeader(http.StatusInternalServerError) // unless it has answered
	}()
	h.ServeHTTP(a, r)
	a.WriteHeader(http.StatusOK)
	a.to.CloseWithError(context.Cause(r.Context())) // nil is the end of the body; a client that cancelled has only a part of it
}

// Header implements [http.ResponseWriter].
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements [http.ResponseWriter]. A switch of protocols is answered by Hijack.
func (a *answer) WriteHeader(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.status != 0 || status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	if a.status = status; status != http.StatusSwitchingProtocols {
		a.respond(&leaving{a.body, a.cancel})
	}
}

// respond passes on the status and the header. a.mu is held.
func (a *answer) respond(body io.ReadCloser) {
	if a.taken {
		return
	}
	a.taken = true
	a.begun <- &http.Response{
		Status: fmt.Sprintf("%d %s", a.status, http.StatusText(a.status)), StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.header.Clone(), Body: body, ContentLength: -1, Request: a.request,
	}
}

// give ends an answer whose client has left.
func (a *answer) give(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.taken {
		(<-a.begun).Body.Close()
	}
	a.taken = true
	a.body.CloseWithError(err)
	a.cancel()
}

// Write implements [http.ResponseWriter].
func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.to.Write(b)
}

// Flush implements [http.Flusher]. Nothing is kept back.
func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }

// Hijack implements [http.Hijacker], for WebSockets.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.status != http.StatusSwitchingProtocols || a.taken {
		return nil, nil, http.ErrHijacked
	}
	theirs, ours := net.Pipe()
	a.respond(both{ours, a.cancel})
	return theirs, bufio.NewReadWriter(bufio.NewReader(theirs), bufio.NewWriter(theirs)), nil
}

// leaving ends the request when its answer is closed.
type leaving struct {
	*io.PipeReader
	cancel context.CancelFunc
}

// Close implements [io.Closer].
func (l *leaving) Close() error {
	defer l.cancel()
	return l.PipeReader.Close()
}

// both is a connection in both directions, whose close ends the request.
type both struct {
	net.Conn
	cancel context.CancelFunc
}

// Close implements [io.Closer].
func (b both) Close() error {
	defer b.cancel()
	return b.Conn.Close()
}
