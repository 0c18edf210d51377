package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"demesne/proxy/audit"
	"demesne/proxy/policy"
)

// answerTTL is how long a client may keep an address, in seconds. The name keeps it for
// as long as the proxy lives, and what may be done with it is decided when it is used.
const answerTTL = 60

// maxQueries bounds the queries that wait for the host's resolver.
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

// closer hides that a packet connection is a net.Conn too, which would count.
type closer struct{ io.Closer }

// resolver answers queries.
type resolver struct {
	p     *Proxy
	slots chan struct{}
}

func (r *resolver) ServeDNS(w dns.ResponseWriter, m *dns.Msg) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
		w.WriteMsg(r.p.answer(m))
	default: // the client asks again
	}
}

// answer makes the reply to a query, whatever is in it.
func (p *Proxy) answer(m *dns.Msg) *dns.Msg {
	a := new(dns.Msg)
	a.SetReply(m)
	a.RecursionAvailable = true // or glibc takes the answer for a failure
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
	f := p.askDNS(m.Question[0])
	defer f.end()
	if !f.d.Allowed {
		a.Rcode = dns.RcodeNameError
		return a
	}
	p.fill(a, f, m.Question[0])
	return a
}

// askDNS decides whether anything may be said about a name.
func (p *Proxy) askDNS(q dns.Question) *flow {
	name, err := policy.ParseName(q.Name)
	if err != nil {
		return p.malformed("dns", q.Name, err)
	}
	p.flows.Add(1)
	f := &flow{p: p, q: policy.Query{Name: name}, d: p.resolves(name)}
	f.rec = audit.Record{Time: time.Now(), Via: "dns", Host: name.String(), Request: dns.TypeToString[q.Qtype]}.Decided(f.d)
	f.admit()
	return f
}

// fill gives A and AAAA queries the name's address. Every other type has no data: TXT
// and NULL would carry some, HTTPS and SVCB keys that hide whom a ClientHello is for.
func (p *Proxy) fill(a *dns.Msg, f *flow, q dns.Question) {
	pool := p.V4
	if q.Qtype == dns.TypeAAAA {
		pool = p.V6
	}
	if (q.Qtype != dns.TypeA && q.Qtype != dns.TypeAAAA) || !pool.IsValid() {
		return
	}
	if !p.exists(f) {
		a.Rcode, f.rec.Error = dns.RcodeNameError, "no such name"
		return
	}
	addr, err := p.names.address(f.q.Name, pool)
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

// exists asks the host's resolver about a name that only a wildcard allows: what a rule
// spells out is there, or its dial says why not. Only the resolver's word that there is
// no such name counts, as a host behind an upstream proxy may resolve nothing.
func (p *Proxy) exists(f *flow) bool {
	if _, exact := f.d.Rule.Name(); exact || f.d.Unknown || p.Upstream != nil {
		return true
	}
	ctx, cancel := context.WithTimeout(p.ctx, 5*time.Second)
	defer cancel()
	_, err := p.Resolver.LookupNetIP(ctx, "ip", strings.TrimSuffix(f.q.Name.String(), ".")+".")
	var no *net.DNSError
	return !errors.As(err, &no) || !no.IsNotFound
}
