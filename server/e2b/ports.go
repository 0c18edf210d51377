package e2b

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"

	"demesne/server"
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
			onlyWebSocket(q.Out.Header)
		},
		ModifyResponse: func(p *http.Response) error {
			s.opts.Access.Contain(p.Header, r.Host, s.opts.Domain)
			if to := p.Header.Get("Upgrade"); p.StatusCode == http.StatusSwitchingProtocols && !strings.EqualFold(to, webSocket) {
				return fmt.Errorf("the program switches to protocol %q", to)
			}
			return nil
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
	p.ServeHTTP(contained{w, s.opts.Access, r.Host, s.opts.Domain}, r)
}

// webSocket is the one protocol that a connection to a program may switch to.
const webSocket = "websocket"

// onlyWebSocket removes a request's offer to switch to another protocol than WebSocket. In HTTP/2 without TLS (h2c) a client
// could send requests that no code of the server reads. A program that switches anyway gets no connection: the client
// receives 502.
func onlyWebSocket(h http.Header) {
	h.Del("HTTP2-Settings")
	if all := h.Values("Upgrade"); len(all) != 1 || !strings.EqualFold(all[0], webSocket) {
		h.Del("Upgrade")
		h.Del("Connection")
	}
}

// contained applies [server.Access.Contain] to answers that come before the last one, such as 103.
type contained struct {
	http.ResponseWriter
	access       *server.Access
	host, domain string
}

func (c contained) WriteHeader(status int) {
	c.access.Contain(c.Header(), c.host, c.domain)
	c.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (c contained) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// unfound answers that a sandbox does not exist, or does not run, in the same form.
func unfound(w http.ResponseWriter, id string) { unreachable(w, id, 0, "The sandbox was not found") }

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
	err := e.with(ctx, func(sb server.Sandbox) (err error) {
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
