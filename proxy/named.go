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
	if f.d.Allowed && f.shape() == httpFor {
		p.toNamed.give(&held{Conn: c, flow: f}) // which asks about each request
		return
	}
	defer f.end()
	defer p.release(c)
	if !f.d.Allowed {
		reset(c)
		return
	}
	var head []byte
	if f.shape() == tlsFor {
		if head = f.checkHello(c, nil); head == nil {
			return
		}
	}
	up, err := f.connect(p.ctx)
	if err != nil {
		reset(c)
		return
	}
	f.tunnel(c, head, up)
}

func (p *Proxy) askNamed(local netip.AddrPort) *flow {
	name, ok := p.names.name(local.Addr())
	if !ok {
		f := &flow{p: p, d: policy.Decision{Reason: "an address that DNS gave for no name"}}
		f.rec = Record{Via: "name", Host: local.Addr().String(), Port: local.Port()}.decided(f.d)
		return f
	}
	return p.ask("name", policy.Query{Name: name, Port: local.Port()})
}
