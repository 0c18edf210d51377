package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"demesne/proxy/policy"
	"demesne/proxy/redact"
)

// routes are the routes of a proxy.
type routes struct {
	proxy  *Proxy
	byPort map[uint16]*route
	upward *http.Transport // to the servers; nil without routes
	memory memory
}

// parse parses the routes of p's Config. It opens no connection.
func (rs *routes) parse(p *Proxy) error {
	rs.proxy, rs.byPort = p, map[uint16]*route{}
	for _, r := range p.Routes {
		rt, err := r.parse()
		if err != nil {
			return err
		}
		if rs.byPort[r.Port] != nil {
			return fmt.Errorf("route on port %d: another route has this port", r.Port)
		}
		rs.byPort[r.Port] = rt
	}
	if len(p.Routes) == 0 {
		return nil
	}
	rs.upward = &http.Transport{
		DialContext:         rs.dialServer,
		TLSClientConfig:     &tls.Config{RootCAs: p.Roots},
		TLSHandshakeTimeout: p.Limits.Dial,
		Proxy:               func(r *http.Request) (*url.URL, error) { return p.Upstream.forRequest(r.URL) },
		ForceAttemptHTTP2:   true,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: time.Minute, PingTimeout: 30 * time.Second, MaxReceiveBufferPerStream: mostAhead},
		DisableCompression:  true,
		MaxIdleConnsPerHost: 32,
		IdleConnTimeout:     time.Minute,
		ReadBufferSize:      routeBuffer,

		MaxResponseHeaderBytes: 256 << 10,
	}
	return nil
}

// closeIdle closes the unused connections to the servers.
func (rs *routes) closeIdle() {
	if rs.upward != nil {
		rs.upward.CloseIdleConnections()
	}
}

// dialServer connects to the server of a route, or to the host's own proxy. The operator named both, so no policy
// decides about their addresses.
func (rs *routes) dialServer(ctx context.Context, _, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, rs.proxy.Limits.Dial)
	defer cancel()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	addrs := []netip.Addr{}
	if a, err := netip.ParseAddr(host); err == nil {
		addrs = append(addrs, a)
	} else {
		if strings.Contains(host, ".") {
			host = strings.TrimSuffix(host, ".") + "." // absolute: the host's search list is not tried
		}
		if addrs, err = rs.proxy.Resolver.LookupNetIP(ctx, "ip", host); err != nil {
			return nil, err
		}
	}
	var to []netip.AddrPort
	for _, a := range addrs[:min(len(addrs), mostTried)] {
		to = append(to, netip.AddrPortFrom(a.Unmap(), uint16(number)))
	}
	if len(to) == 0 {
		return nil, errors.New("no address")
	}
	c, err := rs.proxy.dialAny(ctx, to)
	if err != nil {
		return nil, err
	}
	return &ending{Conn: c}, nil
}

// ServeRoute serves the route on that port until Close, when it returns nil.
func (rs *routes) ServeRoute(l net.Listener, port uint16) error {
	p, rt := rs.proxy, rs.byPort[port]
	if rt == nil {
		l.Close()
		return fmt.Errorf("serve port %d: it has no route", port)
	}
	serve := func(w http.ResponseWriter, r *http.Request) { rs.serve(rt, w, r) }
	return p.accept(l, func(c *net.TCPConn) {
		p.web().toNamed.Give(&held{Conn: c, flow: &flow{p: p, route: serve}})
	})
}

// SetRouteHeader replaces the header of the route on that port, for later requests.
func (rs *routes) SetRouteHeader(port uint16, header map[string]string) error {
	rt := rs.byPort[port]
	if rt == nil {
		return fmt.Errorf("change route on port %d: no such route", port)
	}
	in, err := parseInsertion(header)
	if err != nil {
		return fmt.Errorf("change route on port %d: %w", port, err)
	}
	if before := rt.insert.Swap(in); !sameHeader(before.header, in.header) {
		rs.proxy.log.write(Record{Via: viaRoute, Host: "127.0.0.1", Port: port, Verdict: Changed, Reason: "the inserted headers of the route were replaced"})
	}
	return nil
}

func sameHeader(a, b http.Header) bool {
	for name := range a {
		if a.Get(name) != b.Get(name) {
			return false
		}
	}
	return len(a) == len(b)
}

// viaRoute is the Via of the requests to routes.
const viaRoute = "route"

// The bounds of a request to a route, in bytes: of its body, and of a body that is read before it is forwarded. The
// transport can send such a body again, if a connection turns out closed.
const (
	mostBody    = 64 << 20
	rewindable  = 1 << 20
	routeBuffer = 32 << 10
	mostAhead   = 256 << 10 // of a response over HTTP/2 that the client has not read yet
)

// serve decides about a request to a route, and forwards it.
func (rs *routes) serve(rt *route, w http.ResponseWriter, r *http.Request) {
	path, query, refused := rt.decide(r)
	fl := rt.ask(rs.proxy, r, refused)
	defer fl.end()
	code := http.StatusForbidden
	switch {
	case fl.d.Allowed && r.ContentLength > rt.longest():
		fl.deny("the body of the request is larger than %d bytes", rt.longest())
		code = http.StatusRequestEntityTooLarge
	case fl.d.Allowed:
		rs.forward(rt, fl, w, r, path, query)
		return
	case errors.Is(refused, errNoToken):
		code = http.StatusUnauthorized
	}
	refuse(w, code, fl.message())
}

// ask begins the flow of a request to a route. refused is why it is denied, or nil.
func (rt *route) ask(p *Proxy, r *http.Request, refused error) *flow {
	p.flows.Add(1)
	d := policy.Decision{Allowed: true, Reason: "route to " + rt.to.Host}
	if refused != nil {
		d = policy.Decision{Reason: refused.Error()}
	}
	q := policy.Query{Addr: netip.AddrFrom4([4]byte{127, 0, 0, 1}), Port: rt.port, Method: r.Method, Path: r.URL.EscapedPath()}
	fl := &flow{p: p, q: q, d: d, encrypted: rt.to.Scheme == "https"}
	fl.rec = Record{Time: time.Now(), Via: viaRoute, Host: q.Host(), Port: q.Port, Request: fmt.Sprintf("%s %.500s", q.Method, q.Path)}
	fl.admit()
	fl.rec = fl.rec.Decided(fl.d)
	return fl
}

// refuse answers in the form that clients of the services' own libraries show to their users.
func refuse(w http.ResponseWriter, code int, message string) {
	kind := map[int]string{http.StatusUnauthorized: "authentication_error", http.StatusForbidden: "permission_error", http.StatusBadRequest: "invalid_request_error"}[code]
	if kind == "" {
		kind = "api_error"
	}
	type detail struct {
		Type    string `json:"type"`
		Message string `json:"message"`
		Code    int    `json:"code"`
	}
	text, _ := json.Marshal(struct { // cannot fail
		Type  string `json:"type"`
		Error detail `json:"error"`
	}{"error", detail{kind, message, code}})
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	w.Write(append(text, '\n'))
}

// forward forwards an allowed request and its response.
func (rs *routes) forward(rt *route, fl *flow, w http.ResponseWriter, r *http.Request, path, query string) {
	in := rt.insert.Load()
	ctx, end := rs.lasting(rt, r, path)
	defer end()
	out, done, err := rs.outgoing(ctx, rt, in, fl, w, r, path, query)
	if err != nil {
		done()
		rt.unreachable(fl, w, err)
		return
	}
	asked, number, err := rt.admit(ctx, r.Context(), r.Method, path, out.request, out.body)
	if err != nil {
		done()
		fl.deny("%v", err)
		refuse(w, http.StatusForbidden, fl.message())
		return
	}
	resp, err := rs.upward.RoundTrip(out.request)
	done()
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body.Close()
		err = errors.New("it switched to another protocol")
	}
	if err != nil {
		rt.lose(fl, r.Method, path, asked, number)
		rt.unreachable(fl, w, err)
		return
	}
	defer resp.Body.Close()
	fl.q.Path = path
	body := rs.proxy.web().forward.bodyOf(resp, fl)
	m := rt.meter(&rs.memory, r.Method, path, resp)
	m.of(asked, number)
	copyHeader(w.Header(), resp.Header, in.hidden)
	w.WriteHeader(resp.StatusCode)
	cut, err := forwardBody(w, body, in.hidden, m)
	if cut && number != 0 {
		cut = m.readOn(body)
	}
	if lost := m.end(cut); lost != nil {
		fl.rec.Error = fmt.Sprintf("record the usage: %v", lost)
	}
	if err != nil {
		fl.rec.Error = fmt.Sprintf("the response was cut short: %v", err)
		abort(r)
	}
}

// lasting returns the context of a request to the server. If a gate decides about the request, it does not end with
// its client: the proxy reads the response for some time, up to the usage.
func (rs *routes) lasting(rt *route, r *http.Request, path string) (context.Context, func()) {
	if !rt.gated || !generates(r.Method, path) {
		return r.Context(), func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	closing := context.AfterFunc(rs.proxy.ctx, cancel)
	leaving := context.AfterFunc(r.Context(), func() {
		late := time.AfterFunc(rs.proxy.Limits.ReadOn, cancel)
		context.AfterFunc(ctx, func() { late.Stop() })
	})
	return ctx, func() { leaving(); closing(); cancel() }
}

// admit asks the gate about a request that may cost something. The number is 0 if no gate was asked. client is the context that
// ends with the client.
func (rt *route) admit(ctx, client context.Context, method, path string, out *http.Request, body []byte) (a Asked, number int64, err error) {
	if rt.format != nil && generates(method, path) {
		a = rt.format.ask(out.Header, path, body)
		a.Sent = max(a.Sent, out.ContentLength)
	}
	switch {
	case !rt.gated || !generates(method, path):
		return a, 0, nil
	case rt.gate == nil:
		return a, 0, errNoGate
	case rt.format == unread || rt.record == nil:
		a.Odd = "nothing reads the usage of this route"
	}
	if number, err = rt.gate.Ask(ctx, a); err == nil && client.Err() != nil { // it disconnected while it waited
		rt.gate.Drop(number)
		err = context.Cause(client)
	}
	return a, number, err
}

var errNoGate = errors.New("what bounds the use of this route cannot be asked")

// lose records a request without a response. If it did not reach the server, it is dropped.
func (rt *route) lose(fl *flow, method, path string, a Asked, number int64) {
	if fl.rec.Address == "" {
		if number != 0 {
			rt.gate.Drop(number)
		}
		return
	}
	m := rt.meter(nil, method, path, &http.Response{})
	m.of(a, number)
	if lost := m.end(true); lost != nil {
		fl.rec.Error = fmt.Sprintf("record the usage: %v", lost)
	}
}

// unreachable answers a request that got no response.
func (rt *route) unreachable(fl *flow, w http.ResponseWriter, err error) {
	if no, ok := errors.AsType[*unfit](err); ok {
		fl.deny("%v", err)
		refuse(w, no.code, fl.message())
		return
	}
	if long, ok := errors.AsType[*http.MaxBytesError](err); ok {
		fl.deny("the body of the request is larger than %d bytes", long.Limit)
		refuse(w, http.StatusRequestEntityTooLarge, fl.message())
		return
	}
	fl.rec.Error = err.Error()
	refuse(w, http.StatusBadGateway, fmt.Sprintf("demesne could not reach %s: %v", rt.to.Host, err))
}

// outgoing is a request to the server.
type outgoing struct {
	request *http.Request
	body    []byte // nil if it was not read
}

// outgoing returns the request to the server. done releases its body.
func (rs *routes) outgoing(ctx context.Context, rt *route, in *insertion, fl *flow, w http.ResponseWriter, r *http.Request, path, query string) (_ outgoing, done func(), err error) {
	to := *rt.to
	to.Path, to.RawPath, to.RawQuery = rt.to.Path+path, "", query
	out := &http.Request{Method: r.Method, URL: &to, Host: to.Host, Header: forwarded(r.Header, in), ContentLength: r.ContentLength}
	if r.ContentLength != 0 {
		r.Body = http.MaxBytesReader(w, r.Body, rt.longest())
		out.Body = &counter{ReadCloser: r.Body, n: &fl.out, b: unbounded}
	}
	if rt.check != nil {
		if err := rt.confine(in, out); err != nil {
			return outgoing{}, func() {}, err
		}
	}
	all := rt.check != nil || rt.gated && generates(r.Method, path)
	b, done, err := rs.readBody(out, all)
	if err != nil {
		return outgoing{}, done, fmt.Errorf("read the request: %w", err)
	}
	if b != nil {
		if rt.check != nil {
			if err := rt.check.closed(b); err != nil {
				return outgoing{}, done, &unfit{http.StatusBadRequest, err}
			}
			out.Header.Set("Content-Type", "application/json")
		}
		if rt.format == formats["chat"] && rt.record != nil {
			b = withUsage(b)
		}
		out.ContentLength = int64(len(b))
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
		out.Body, _ = out.GetBody()
	}
	return outgoing{out.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) {
			fl.rec.Address, fl.below = i.Conn.RemoteAddr().String(), endingOf(i.Conn)
		},
	})), b}, done, nil
}

// readBody reads the body of a request into memory. It returns nil for one that is too large to be sent again, or whose
// length is not known, unless all are read. done returns the memory.
func (rs *routes) readBody(out *http.Request, all bool) (b []byte, done func(), err error) {
	known := out.ContentLength > 0 && out.ContentLength <= rewindable
	if out.Body == nil || !known && !all {
		return nil, func() {}, nil
	}
	taken := int64(0)
	done = func() { rs.memory.put(taken) }
	if known {
		if taken = out.ContentLength; !rs.memory.take(taken) {
			if taken = 0; !all {
				return nil, done, nil
			}
			return nil, done, errNoRoom
		}
		b = make([]byte, out.ContentLength)
		_, err = io.ReadFull(out.Body, b)
		return b, done, err
	}
	buf := routeBuffers.Get().(*[routeBuffer]byte)
	defer routeBuffers.Put(buf)
	for b = []byte{}; ; {
		n, err := out.Body.Read(buf[:])
		if !rs.memory.take(int64(n)) {
			return nil, done, errNoRoom
		}
		taken += int64(n)
		if b = append(b, buf[:n]...); err == io.EOF {
			return b, done, nil
		} else if err != nil {
			return nil, done, err
		}
	}
}

var errNoRoom = &unfit{http.StatusServiceUnavailable, errors.New("too many requests at once have large bodies")}

// forwarded returns the headers that replace a request's headers.
func forwarded(h http.Header, in *insertion) http.Header {
	h = h.Clone()
	dropHops(h)
	for _, name := range credentials {
		h.Del(name)
	}
	h.Del("Expect")
	if h["User-Agent"] == nil {
		h["User-Agent"] = nil // net/http would add its own
	}
	h.Set("Accept-Encoding", "identity") // neither forwardBody nor a meter reads compressed text
	for name, values := range in.header {
		h[name] = values
	}
	return h
}

// dropHops removes the headers of one connection, and those that a Connection header names.
func dropHops(h http.Header) {
	for _, v := range h.Values("Connection") {
		for name := range strings.SplitSeq(v, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		h.Del(name)
	}
}

// copyHeader copies the headers of a response, with the credential blanked. A cookie belongs to the account.
func copyHeader(to, from http.Header, hidden *redact.Values) {
	dropHops(from)
	from.Del("Set-Cookie")
	from.Del("Alt-Svc")
	blankHeader(hidden, from)
	for name, values := range from {
		to[name] = values
	}
}

// routeBuffers are the buffers that forwardBody uses.
var routeBuffers = sync.Pool{New: func() any { return new([routeBuffer]byte) }}

// forwardBody copies a response's body to w, each piece as soon as it arrives. m reads each piece before it is sent, so that
// the usage is recorded before a client can know that the response is complete. cut reports that the end was not read.
func forwardBody(w http.ResponseWriter, body io.Reader, hidden *redact.Values, m *meter) (cut bool, err error) {
	buf := routeBuffers.Get().(*[routeBuffer]byte)
	defer routeBuffers.Put(buf)
	blanked, flush := hidden.Writer(w), http.NewResponseController(w).Flush
	flush() // the head
	for {
		n, err := body.Read(buf[:])
		if n > 0 {
			m.write(buf[:n])
			if _, werr := blanked.Write(buf[:n]); werr != nil {
				return true, werr
			}
			if err == nil {
				flush()
			}
		}
		switch {
		case err == io.EOF:
			return false, blanked.Close() // the server flushes when the handler returns
		case err != nil:
			blanked.Close()
			flush()
			return true, err
		}
	}
}

// readOn reads the rest of a response that has no client any more, up to its usage. cut reports that the end was not
// read.
func (m *meter) readOn(body io.Reader) (cut bool) {
	buf := routeBuffers.Get().(*[routeBuffer]byte)
	defer routeBuffers.Put(buf)
	for m != nil && !m.told {
		n, err := body.Read(buf[:])
		m.write(buf[:n])
		if err != nil {
			return err != io.EOF
		}
	}
	return false
}
