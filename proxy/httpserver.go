package proxy

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// web reads and forwards HTTP requests. One server takes requests sent to the proxy, the other requests sent to a
// name's port. web starts with the first connection that needs it, as most sandboxes send only CONNECT or
// nothing.
type web struct {
	forward          *forwarder
	explicit, byName *http.Server
	toHTTP, toNamed  Handoff // connections for the two servers
}

// startWeb is called once.
func (p *Proxy) startWeb() *web {
	w := &web{
		forward: newForwarder(p), toHTTP: p.Handoff(), toNamed: p.Handoff(),
		explicit: p.server(p.serveExplicit), byName: p.server(p.serveRequestTo),
	}
	w.byName.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		h, _ := heldBy(c) // byName gets only held connections
		return context.WithValue(withConn(ctx, c), flowKey{}, h.flow)
	}
	go w.explicit.Serve(w.toHTTP)
	go w.byName.Serve(w.toNamed)
	p.started.Store(w)
	return w
}

func (p *Proxy) server(h http.HandlerFunc) *http.Server {
	var only http.Protocols
	only.SetHTTP1(true)
	return &http.Server{
		Handler:           h,
		Protocols:         &only,
		ReadHeaderTimeout: p.Limits.Head,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          log.New(io.Discard, "", 0),
		ConnState:         p.connState,
		BaseContext:       func(net.Listener) context.Context { return p.ctx },
		ConnContext:       withConn,
	}
}

// connState releases connections that an HTTP server has closed. A hijacked connection (CONNECT, WebSocket)
// belongs to its handler. After the first request connState closes a spare connection that was not used: until
// another request, the server may close it.
func (o *connections) connState(c net.Conn, s http.ConnState) {
	switch s {
	case http.StateIdle:
		if h, ok := heldBy(c); ok {
			h.flow.closeSpare()
		}
	case http.StateClosed:
		o.releaseHTTP(c)
	}
}

func (o *connections) releaseHTTP(c net.Conn) {
	if h, ok := heldBy(c); ok {
		h.flow.closeSpare()
		c = h.Conn
	}
	o.release(c)
}

// forget closes idle connections that an earlier policy may have allowed. It does nothing before the servers start.
func (w *web) forget() {
	if w != nil {
		w.forward.transport.CloseIdleConnections()
	}
}

// close closes the servers if they have started. A later start finds the proxy's context done.
func (w *web) close() error {
	if w == nil {
		return nil
	}
	w.forget()
	return errors.Join(w.explicit.Close(), w.byName.Close())
}
