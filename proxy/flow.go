package proxy

import (
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"demesne/proxy/policy"
)

// flow is one request of the sandbox (a connection, HTTP request or DNS query), from the decision to the end.
type flow struct {
	p   *Proxy
	q   policy.Query
	d   policy.Decision
	rec Record

	encrypted bool             // its requests are forwarded over TLS
	route     http.HandlerFunc // handler set by ServeGo; nil: route by name
	admitted  bool             // the log has reserved space for its line
	in, out   atomic.Int64     // bytes to and from the sandbox
	below     *ending          // the connection that carried an encrypted request
	body      *body            // of the response to a request
	over      *flow            // the flow of the connection that carried a request; or nil

	spare atomic.Pointer[net.Conn]
}

// ask decides about q and charges the rule's budget for a connection or a request. It may block while a person is
// asked.
func (p *Proxy) ask(via string, q policy.Query) *flow {
	p.flows.Add(1)
	q.Later = q.Method == "" && p.shapeOf(q).readable()
	d := p.decide(q)
	if q.Later && d.Raw() && p.aging.registry(q) == "" { // its requests cannot be read
		q.Later = false
		d = p.decide(q)
	}
	f := &flow{p: p, q: q, d: d}
	if d.Allowed && p.aging.registry(q) != "" && q.Port != 80 && q.Port != 443 {
		f.d = policy.Decision{Rule: d.Rule, Reason: fmt.Sprintf("--package-age cannot read port %d of a package registry", q.Port)}
	}
	f.rec = Record{Time: time.Now(), Via: via, Host: q.Host(), Port: q.Port}
	if q.Method != "" {
		f.rec.Request = fmt.Sprintf("%s %.500s", q.Method, q.Path)
	}
	if f.admit(); f.d.Allowed {
		if why := p.spent.charge(f.d.Rule, q.Method != ""); why != "" {
			f.deny("%s", why)
		}
	}
	f.rec = f.rec.Decided(f.d)
	return f
}

// admit reserves space in the log for an allowed flow. It denies the flow when the log refuses.
func (f *flow) admit() {
	if !f.d.Allowed {
		return
	}
	if err := f.p.log.admit(); err != nil {
		f.deny("%v", err)
		return
	}
	f.admitted = true
}

// handOver ends a flow without a record, because each of its requests becomes a flow.
func (f *flow) handOver() {
	f.dismiss()
	f.p.flows.Add(-1)
}

func (f *flow) dismiss() {
	if f.admitted {
		f.p.log.release()
	}
	f.admitted = false
}

// malformed returns a denied flow for input that could not be parsed.
func (p *Proxy) malformed(via, host string, err error) *flow {
	p.flows.Add(1)
	f := &flow{p: p, d: policy.Decision{Reason: err.Error()}}
	f.rec = Record{Time: time.Now(), Via: via, Host: fmt.Sprintf("%.300q", host)}.Decided(f.d)
	return f
}

func (f *flow) deny(format string, args ...any) {
	f.refuse(policy.Decision{Rule: f.d.Rule, Reason: fmt.Sprintf(format, args...)})
}

func (f *flow) refuse(d policy.Decision) {
	f.d = d
	f.rec = f.rec.Decided(d)
}

// end writes the record. It must be called exactly once.
func (f *flow) end() {
	f.rec.In, f.rec.Out = f.in.Load(), f.out.Load()
	f.p.log.write(f.rec)
	f.dismiss()
	f.p.flows.Add(-1)
}

// settle waits up to one second until every flow has ended. Flows end soon after their connections close, and the
// log then has all that clients were told.
func (p *Proxy) settle() {
	for late := time.Now().Add(time.Second); p.flows.Load() > 0 && time.Now().Before(late); {
		time.Sleep(100 * time.Microsecond)
	}
}

// message returns the error text that the client shows to its user.
func (f *flow) message() string {
	if f.d.Allowed {
		return fmt.Sprintf("demesne could not reach %s: %s", f.target(), f.rec.Error)
	}
	return fmt.Sprintf("blocked by demesne: %s: %s", f.target(), f.d.Reason)
}

func (f *flow) target() string {
	if f.q.Port == 0 {
		return f.rec.Host
	}
	return net.JoinHostPort(f.q.Host(), fmt.Sprint(f.q.Port))
}

// shape is the protocol that a flow must speak.
type shape int

const (
	anything  shape = iota
	tlsFor          // TLS, with the name as server name
	httpFor         // HTTP, with the name as Host
	httpsFor        // both: the proxy ends the TLS
	firstSays       // the client's first bytes decide: TLS or HTTP as above, or any other protocol
)

// shape depends on the port, because clients choose the protocol by it.
func (f *flow) shape() shape {
	if f.d.Raw() && f.p.aging.registry(f.q) == "" {
		return anything
	}
	return f.p.shapeOf(f.q)
}

func (p *Proxy) shapeOf(q policy.Query) shape {
	switch {
	case q.Name.IsZero():
		return anything
	case p.secrets.has(q):
		return httpsFor
	case q.Port == 443 && p.aging.registry(q) != "":
		return httpsFor
	case q.Port == 443:
		return tlsFor
	case q.Port == 80:
		return httpFor
	}
	return firstSays
}

// readable reports whether the proxy reads each request.
func (s shape) readable() bool { return s == httpFor || s == httpsFor }

// tunnel copies both ways between c and up, where head was already read from c. It returns when both directions
// have ended, and closes up.
func (f *flow) tunnel(c *net.TCPConn, head []byte, up net.Conn) {
	// Without this, a silent server would keep the tunnel open after the client has ended and Close was called.
	if f.p.hold(closer{up}) != nil {
		up.Close()
		return
	}
	defer f.p.release(closer{up})
	bytes := f.p.spent.of(f.d.Rule)
	if !f.send(up, head, bytes) {
		return
	}
	out := make(chan int64, 1)
	go func() { out <- pump(up, c, bytes) }()
	f.in.Add(pump(c, up, bytes))
	f.out.Add(<-out)
	f.sayCut(bytes)
}

// sayCut records that a budget ended the connection.
func (f *flow) sayCut(b *budget) {
	if b.exhausted() {
		f.rec.Error = "cut: the rule's byte budget is used up"
		f.rec = f.rec.unmetBy(false, "%s", b.usedUp())
	}
}

// checkHello reads a ClientHello for the flow's name and returns all the bytes read. Otherwise it denies the flow
// and sends the client a TLS alert.
func (f *flow) checkHello(c net.Conn, head []byte) (read []byte, ok bool) {
	c.SetReadDeadline(time.Now().Add(f.p.Limits.Head))
	defer c.SetReadDeadline(time.Time{})
	h, read, err := readHello(c, head)
	switch {
	case err != nil:
		f.deny("port %d needs TLS with a server name: %v", f.q.Port, err)
	case h.encrypted && f.shape() != httpsFor && !f.d.ECH(): // TLS that ends in the proxy can only use the outer name
		f.deny("TLS with an encrypted ClientHello: its server name is hidden, and no rule has ech = true")
	case h.name != f.q.Name:
		f.deny("TLS names server %q, not %q", h.name, f.q.Name)
	default:
		return read, true
	}
	c.Write(unrecognizedName)
	return nil, false
}
