package e2b

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"time"

	"demesne/server/backend"
)

// forward passes a request to a program in the sandbox. The connection is made inside, so a program that listens on the
// sandbox's loopback is reached, and no socket of the host is one of the sandbox.
func (s *Server) forward(w http.ResponseWriter, r *http.Request, e *entry, port uint16) {
	p := httputil.ReverseProxy{
		Rewrite: func(q *httputil.ProxyRequest) {
			q.Out.URL.Scheme, q.Out.URL.Host = "http", q.In.Host
			q.Out.Host = q.In.Host
			rec := e.snap()
			if mask := rec.Network.maskedHost(port); mask != "" {
				q.Out.Host = mask
			}
			for _, secret := range []string{"X-Access-Token", "E2b-Traffic-Access-Token"} {
				q.Out.Header.Del(secret)
			}
			s.opts.Access.Strip(q.Out.Header)
		},
		Transport: &http.Transport{
			DisableKeepAlives:     true,
			DialContext:           func(ctx context.Context, _, _ string) (net.Conn, error) { return e.dial(ctx, port) },
			ResponseHeaderTimeout: time.Minute,
		},
		FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			unreachable(w, e.rec.ID, port, "The sandbox is running but the port does not answer: "+err.Error())
		},
		ErrorLog: s.opts.Log,
	}
	p.ServeHTTP(w, r)
}

// unreachable answers that a sandbox does not run, or that a port of it does not answer, in the form of E2B's proxy. The
// SDKs recognize a sandbox that does not run by status 502.
func unreachable(w http.ResponseWriter, id string, port uint16, text string) {
	answer(w, http.StatusBadGateway, struct {
		ID      string `json:"sandboxId"`
		Message string `json:"message"`
		Port    uint16 `json:"port,omitempty"`
		Code    int    `json:"code"`
	}{id, text, port, http.StatusBadGateway})
}

// dial connects to a port of the sandbox.
func (e *entry) dial(ctx context.Context, port uint16) (net.Conn, error) {
	var c io.ReadWriteCloser
	err := e.with(ctx, func(sb backend.Sandbox) (err error) {
		c, err = sb.Dial(ctx, port)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &conn{ReadWriteCloser: c}, nil
}

// conn is a stream as a connection. It has no deadlines: the transport has its own times.
type conn struct{ io.ReadWriteCloser }

func (*conn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*conn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*conn) SetDeadline(time.Time) error      { return nil }
func (*conn) SetReadDeadline(time.Time) error  { return nil }
func (*conn) SetWriteDeadline(time.Time) error { return nil }
