package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/elazarl/goproxy"

	"demesne/proxy/policy"
)

// forwarder forwards HTTP requests through goproxy.
type forwarder struct {
	p         *Proxy
	goproxy   *goproxy.ProxyHttpServer
	transport *http.Transport
}

type flowKey struct{}

func newForwarder(p *Proxy) *forwarder {
	f := &forwarder{p: p, goproxy: goproxy.NewProxyHttpServer()}
	f.transport = &http.Transport{
		DialContext:         f.dial,
		TLSClientConfig:     &tls.Config{RootCAs: p.Roots},
		Proxy:               func(r *http.Request) (*url.URL, error) { return r.Context().Value(flowKey{}).(*flow).upstream() },
		DisableCompression:  true,
		MaxIdleConnsPerHost: 8,
		MaxIdleConns:        32,
		IdleConnTimeout:     time.Minute,

		MaxResponseHeaderBytes: 256 << 10,
	}
	g := f.goproxy
	g.Tr = f.transport // goproxy's default skips verification and reads the environment
	g.ConnectDial = func(string, string) (net.Conn, error) { return nil, errors.ErrUnsupported }
	g.Logger = log.New(io.Discard, "", 0)
	g.KeepAcceptEncoding = true
	g.OnResponse().DoFunc(f.answered)
	return f
}

// dial connects for a request, whose flow is in ctx, to its target or to the host's own proxy.
func (f *forwarder) dial(ctx context.Context, _, address string) (net.Conn, error) {
	fl, ok := ctx.Value(flowKey{}).(*flow)
	if !ok {
		return nil, errors.New("dial without a request")
	}
	if up := fl.spareFor(); up != nil {
		return up, nil
	}
	ctx, cancel := context.WithTimeout(ctx, f.p.Limits.Dial)
	defer cancel()
	if via, err := fl.upstream(); err == nil && via != nil {
		return f.p.Dialer.DialContext(ctx, "tcp", address)
	}
	c, _, err := f.p.dial(ctx, fl.d, fl.q)
	switch {
	case err != nil:
	case fl.d.Group != "":
		c = memberConn{c}
	case fl.encrypted:
		c = &ending{Conn: c}
	}
	return c, err
}

// serveExplicit serves requests that a client sends to a proxy.
func (p *Proxy) serveExplicit(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect {
		p.serveCONNECT(w, r)
		return
	}
	q, err := absoluteTarget(r.URL)
	if err != nil {
		f := p.malformed("http", r.RequestURI, err)
		defer f.end()
		http.Error(w, f.message(), http.StatusBadRequest)
		return
	}
	p.web().forward.serve(w, r, q, false)
}

// absoluteTarget parses http://host[:port]/…. It ignores the Host header: net/http has replaced it by the URL's
// host, which is also what is forwarded.
func absoluteTarget(u *url.URL) (policy.Query, error) {
	switch {
	case u.Scheme != "http" || u.Opaque != "":
		return policy.Query{}, fmt.Errorf("this is a proxy: it takes http:// URLs and CONNECT, not scheme %.20q", u.Scheme)
	case u.User != nil:
		return policy.Query{}, errors.New("the URL contains a user name")
	case u.Port() == "" && u.Host != "":
		return splitTarget(u.Host + ":80")
	}
	return splitTarget(u.Host)
}

// serveRequestTo serves a request on a connection to one name. It denies requests for any other name.
func (p *Proxy) serveRequestTo(w http.ResponseWriter, r *http.Request) {
	conn := r.Context().Value(flowKey{}).(*flow)
	if conn.route != nil {
		conn.route(w, r)
		return
	}
	host := r.Host
	if h, port, err := net.SplitHostPort(host); err == nil && port == fmt.Sprint(conn.q.Port) {
		host = h
	}
	name, err := policy.ParseName(host)
	if err != nil || name != conn.q.Name || r.Method == http.MethodConnect || (r.URL.IsAbs() && r.URL.Scheme != "http") {
		p.flows.Add(1)
		f := &flow{p: p, q: conn.q, d: conn.d, rec: conn.rec}
		f.rec.Request = fmt.Sprintf("%s %.500s", r.Method, r.URL.EscapedPath())
		f.deny("HTTP names host %.300q, not %q", r.Host, conn.q.Name)
		defer f.end()
		w.Header().Set("Connection", "close")
		http.Error(w, f.message(), http.StatusForbidden)
		return
	}
	p.web().forward.serve(w, r, conn.q, r.TLS != nil)
}

// serve decides about one request and forwards it, over TLS if encrypted.
func (f *forwarder) serve(w http.ResponseWriter, r *http.Request, q policy.Query, encrypted bool) {
	odd := oddTarget(r)
	q.Method, q.Path = r.Method, r.URL.EscapedPath()
	fl := f.p.ask("http", q)
	defer fl.end()
	if fl.d.Allowed && odd != "" {
		fl.deny("%s", odd)
	}
	if fl.d.Allowed && r.Method == http.MethodConnect {
		fl.deny("CONNECT works only on the proxy's own port")
	}
	if !fl.d.Allowed {
		http.Error(w, fl.message(), http.StatusForbidden)
		return
	}
	if err := f.p.secrets.swap(r, q, encrypted); err != nil {
		fl.deny("%v", err)
		http.Error(w, fl.message(), http.StatusForbidden)
		return
	}
	if fl.encrypted = encrypted; encrypted && f.p.hidden != nil {
		r.Header.Set("Accept-Encoding", "identity") // hide could not read a compressed body
	}
	fl.over, _ = r.Context().Value(flowKey{}).(*flow)
	ctx, cancel := awaitAnswer(r.Context(), f.p.ctx)
	defer cancel()
	ctx = context.WithValue(ctx, flowKey{}, fl)
	if f.serveAged(w, r.WithContext(ctx), fl) {
		return
	}
	r = r.WithContext(fl.traced(ctx, func(c net.Conn) { fl.rec.Address, fl.below = c.RemoteAddr().String(), endingOf(c) }))
	r.URL.Scheme, r.URL.Host = fl.url().Scheme, fl.url().Host
	r.Host = r.URL.Host
	if q.Port == 80 || q.Port == 443 {
		r.Host = hostHeader(q)
	}
	if r.Body != http.NoBody { // without a body, net/http sends a request again if an idle connection turns out closed
		r.Body = &counter{ReadCloser: r.Body, n: &fl.out, b: f.p.spent.of(fl.d.Rule)}
	}
	t := &taken{ResponseWriter: w}
	f.goproxy.ServeHTTP(t, r)
	if t.conn != nil { // goproxy took it for a WebSocket, which has ended
		f.p.releaseHTTP(t.conn)
		fl.sayCut(f.p.spent.of(fl.d.Rule))
	} else if fl.body != nil && fl.body.cut != nil {
		fl.failed(fl.body.cut)
		fl.rec.Error = fmt.Sprintf("the response was cut short: %v", fl.body.cut)
		abort(r)
	}
}

// traced returns the context for a request of f, whose connection got learns. If f may not use a kept connection, it is
// closed, and a request without a body is then sent on a new one.
func (f *flow) traced(ctx context.Context, got func(net.Conn)) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) {
			got(i.Conn)
			if i.Reused && !f.mayUse(i.Conn) {
				i.Conn.Close()
			}
		},
	})
}

// halfClosed is how long a request may continue after its client has ended its sending direction.
const halfClosed = time.Minute

// awaitAnswer returns a context for a request. net/http cancels the request's own context when the client ends its
// sending direction. Such a client may still read the answer (nc -N), and only a write can tell whether it does. So the
// returned context ends halfClosed later, or when the proxy ends.
func awaitAnswer(ctx, proxy context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(halfClosed):
		case <-proxy.Done():
		case <-longer.Done():
		}
		cancel()
	})
	return longer, func() { stop(); cancel() }
}

// taken records that a handler hijacked the connection.
type taken struct {
	http.ResponseWriter
	conn net.Conn
}

func (t *taken) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(t.ResponseWriter).Hijack()
	t.conn = c
	return c, rw, err
}

func (t *taken) Flush() { http.NewResponseController(t.ResponseWriter).Flush() }

// url returns the scheme and host that a flow's requests go to.
func (f *flow) url() *url.URL {
	u := &url.URL{Scheme: "http", Host: net.JoinHostPort(f.q.Host(), fmt.Sprint(f.q.Port))}
	if f.encrypted {
		u.Scheme = "https"
	}
	return u
}

func hostHeader(q policy.Query) string {
	if q.Addr.Is6() {
		return "[" + q.Host() + "]"
	}
	return q.Host()
}

// answered prepares a response: it blanks secrets and counts the body. It turns an error into a response.
func (f *forwarder) answered(resp *http.Response, ctx *goproxy.ProxyCtx) *http.Response {
	fl := ctx.Req.Context().Value(flowKey{}).(*flow)
	if resp != nil {
		fl.hide(resp)
		in := f.bodyOf(resp, fl)
		up, ok := resp.Body.(io.Writer)
		if resp.Body = in; ok && resp.StatusCode == http.StatusSwitchingProtocols {
			resp.Body = &upgraded{in.counter, up, &fl.out}
		}
		return resp
	}
	code := http.StatusBadGateway
	if no, ok := errors.AsType[*deniedError](ctx.Error); ok {
		code = http.StatusForbidden
		fl.refuse(no.d)
	} else {
		fl.failed(ctx.Error)
	}
	return goproxy.NewResponse(ctx.Req, goproxy.ContentTypeText, code, fl.message()+"\n")
}

// upgraded counts both directions of a connection that has switched to another protocol.
type upgraded struct {
	counter
	up  io.Writer
	out *atomic.Int64
}

func (u *upgraded) Write(b []byte) (int, error) {
	if !u.b.take(int64(len(b))) {
		return 0, errSpent
	}
	n, err := u.up.Write(b)
	u.out.Add(int64(n))
	return n, err
}

// counter counts a body's bytes, and fails when the rule's budget is spent.
type counter struct {
	io.ReadCloser
	n *atomic.Int64
	b *budget
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.n.Add(int64(n))
	if !c.b.take(int64(n)) {
		return 0, errSpent
	}
	return n, err
}
