package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"demesne/proxy/policy"
)

// answerTTL is how long a client may cache an address, in seconds. The name keeps its address for the life of the
// proxy. The policy decides again when the address is used.
const answerTTL = 60

// maxQueries bounds the queries that are handled at once on a listener.
const maxQueries = 64

func (p *Proxy) serveDNS(c io.Closer, s *dns.Server) error {
	if p.hold(closer{c}) != nil {
		c.Close()
		return nil
	}
	defer p.release(closer{c})
	s.Handler = &resolver{p, make(chan struct{}, maxQueries)}
	s.IdleTimeout = func() time.Duration { return p.Limits.Head }
	err := s.ActivateAndServe()
	if p.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// ServeQueries answers the queries that arrive as packets on c, until it or the proxy is closed. A sandbox can have many
// such sockets: c uses one of its connections.
func (p *Proxy) ServeQueries(c net.Conn) {
	if p.hold(c) != nil {
		c.Close()
		return
	}
	defer p.release(c)
	r := &resolver{p, make(chan struct{}, maxQueries)}
	buf := make([]byte, dns.MaxMsgSize)
	for {
		n, err := c.Read(buf)
		if err != nil || n == 0 {
			return
		}
		m := new(dns.Msg)
		if m.Unpack(buf[:n]) != nil || m.Response {
			continue
		}
		if text, err := r.answer(m).Pack(); err == nil {
			c.Write(text)
		}
	}
}

// closer wraps c without its other methods, because a net.Conn would count against the connection limit.
type closer struct{ io.Closer }

// resolver is a dns.Handler that answers from a proxy.
type resolver struct {
	p     *Proxy
	slots chan struct{}
}

func (r *resolver) ServeDNS(w dns.ResponseWriter, m *dns.Msg) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
		w.WriteMsg(r.answer(m))
	default: // the client asks again
	}
}

// answer returns the reply to any query.
func (r *resolver) answer(m *dns.Msg) *dns.Msg {
	a := new(dns.Msg)
	a.SetReply(m)
	a.RecursionAvailable = true // glibc takes the answer for a failure otherwise
	if opt := m.IsEdns0(); opt != nil {
		a.SetEdns0(dns.MinMsgSize, false)
		if opt.Version() != 0 {
			a.Rcode = dns.RcodeBadVers
			return a
		}
	}
	if m.Opcode != dns.OpcodeQuery || len(m.Question) != 1 || m.Question[0].Qclass != dns.ClassINET {
		a.Rcode = dns.RcodeNotImplemented
		return a
	}
	if r.loopback(a, m.Question[0]) {
		return a
	}
	f := r.askDNS(m.Question[0])
	defer f.end()
	if !f.d.Allowed {
		a.Rcode = dns.RcodeNameError
		return a
	}
	r.fill(a, f, m.Question[0])
	return a
}

// loopback answers a query for one of Config.Localhost.
func (r *resolver) loopback(a *dns.Msg, q dns.Question) bool {
	name, err := policy.ParseName(q.Name)
	if err != nil || !slices.Contains(r.p.Localhost, name.String()) || r.p.resolves(name).Allowed {
		return false
	}
	switch q.Qtype {
	case dns.TypeA:
		a.Answer = append(a.Answer, record(q, netip.AddrFrom4([4]byte{127, 0, 0, 1})))
	case dns.TypeAAAA:
		a.Answer = append(a.Answer, record(q, netip.IPv6Loopback()))
	}
	return true
}

// askDNS decides whether the proxy may answer for a name.
func (r *resolver) askDNS(q dns.Question) *flow {
	name, err := policy.ParseName(q.Name)
	if err != nil {
		return r.p.malformed("dns", q.Name, err)
	}
	r.p.flows.Add(1)
	f := &flow{p: r.p, q: policy.Query{Name: name}, d: r.p.resolves(name)}
	f.rec = Record{Time: time.Now(), Via: "dns", Host: name.String(), Request: dns.TypeToString[q.Qtype]}.Decided(f.d)
	f.admit()
	return f
}

// fill adds the name's address to the answer to an A or AAAA query. All other types get no data. TXT and NULL
// could carry data; HTTPS and SVCB could carry keys that encrypt the server name of a ClientHello (ECH).
func (r *resolver) fill(a *dns.Msg, f *flow, q dns.Question) {
	pool := r.p.V4
	if q.Qtype == dns.TypeAAAA {
		pool = r.p.V6
	}
	if (q.Qtype != dns.TypeA && q.Qtype != dns.TypeAAAA) || !pool.IsValid() {
		return
	}
	if !r.exists(f) {
		a.Rcode, f.rec.Error = dns.RcodeNameError, "no such name"
		return
	}
	addr, err := r.p.names.address(f.q.Name, pool)
	if err != nil {
		a.Rcode, f.rec.Error = dns.RcodeServerFailure, err.Error()
		return
	}
	f.rec.Address = addr.String()
	a.Answer = append(a.Answer, record(q, addr))
}

func record(q dns.Question, a netip.Addr) dns.RR {
	h := dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET, Ttl: answerTTL}
	if a.Is4() {
		return &dns.A{Hdr: h, A: a.AsSlice()}
	}
	return &dns.AAAA{Hdr: h, AAAA: a.AsSlice()}
}

// exists asks the host's resolver whether a name exists that only a wildcard rule allows. Other names count as
// existing, and dialling them reports any error. Only the resolver's "no such name" is believed. Behind an upstream
// proxy exists returns true, as the host may be unable to resolve anything.
func (r *resolver) exists(f *flow) bool {
	if _, exact := f.d.Rule.Name(); exact || f.d.Group != "" || f.d.Unknown || r.p.Upstream != nil {
		return true
	}
	ctx, cancel := context.WithTimeout(r.p.ctx, 5*time.Second)
	defer cancel()
	_, err := r.p.Resolver.LookupNetIP(ctx, "ip", strings.TrimSuffix(f.q.Name.String(), ".")+".")
	var no *net.DNSError
	return !errors.As(err, &no) || !no.IsNotFound
}
