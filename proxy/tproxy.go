package proxy

import (
	"net"
	"net/netip"

	"demesne/proxy/policy"
)

// serveNamed serves one connection to an address that stands for a name.
func (p *Proxy) serveNamed(c *net.TCPConn) {
	local := c.LocalAddr().(*net.TCPAddr).AddrPort()
	f := p.askNamed(local)
	if !f.d.Allowed {
		reset(c)
		p.release(c)
		f.end()
		return
	}
	f.carry(c, nil, nil)
}

func (p *Proxy) askNamed(local netip.AddrPort) *flow {
	name, ok := p.names.name(local.Addr())
	if !ok {
		p.flows.Add(1)
		f := &flow{p: p, d: policy.Decision{Reason: "an address that demesne's DNS assigned to no name"}}
		f.rec = Record{Via: "name", Host: local.Addr().String(), Port: local.Port()}.Decided(f.d)
		return f
	}
	return p.ask("name", policy.Query{Name: name, Port: local.Port()})
}
