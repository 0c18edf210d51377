package proxy

import (
	"net"
	"net/netip"
	"time"

	"demesne/proxy/policy"
)

// serveNamed serves one connection to an address that stands for a name, or to a port of the host's loopback.
func (p *Proxy) serveNamed(c *net.TCPConn) {
	p.serveAddress(c, c.LocalAddr().(*net.TCPAddr).AddrPort())
}

// Arrivals serves connections to addresses that stand for names, which another process accepted. It is not safe for
// concurrent use.
type Arrivals struct {
	p    *Proxy
	full time.Time
}

// Arrivals returns an Arrivals of p.
func (p *Proxy) Arrivals() *Arrivals { return &Arrivals{p: p} }

// Named serves a connection to an address that stands for a name, on a goroutine of its own. It owns c.
func (a *Arrivals) Named(c *net.TCPConn, to netip.AddrPort) {
	a.p.admitted(c, &a.full, func(c *net.TCPConn) { a.p.serveAddress(c, to) })
}

// serveAddress serves a connection to an address that stands for a name.
func (p *Proxy) serveAddress(c *net.TCPConn, to netip.AddrPort) {
	f := p.askNamed(to)
	if !f.d.Allowed {
		reset(c)
		p.release(c)
		f.end()
		return
	}
	f.carry(c, nil, nil)
}

func (p *Proxy) askNamed(local netip.AddrPort) *flow {
	if local.Addr().IsLoopback() { // a port of the host
		return p.ask("host", policy.Query{Addr: local.Addr(), Port: local.Port()})
	}
	name, ok := p.names.name(local.Addr())
	if !ok {
		p.flows.Add(1)
		f := &flow{p: p, d: policy.Decision{Reason: "an address that demesne's DNS assigned to no name"}}
		f.rec = Record{Via: "name", Host: local.Addr().String(), Port: local.Port()}.Decided(f.d)
		return f
	}
	return p.ask("name", policy.Query{Name: name, Port: local.Port()})
}
