package daemon

import (
	"net"
	"net/netip"
	"os"
	"strings"

	"demesne/internal/arrivals"
	"demesne/proxy"
	"demesne/runner/network/proxyclient"
)

// arrivals serves the connections that arrive as messages on f, until the sandbox ends.
func (b *sandbox) arrivals(f *os.File) {
	defer f.Close()
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return
	}
	b.arriving = f
	b.mu.Unlock()
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	a := &arriving{b: b, named: b.proxy.Arrivals(), served: map[string]proxy.Handoff{}}
	for {
		service, c, err := arrivals.Next(raw)
		if err != nil {
			return
		}
		if c != nil {
			a.deliver(service, c)
		}
	}
}

// arriving passes connections to the services of a sandbox.
type arriving struct {
	b      *sandbox
	named  *proxy.Arrivals
	served map[string]proxy.Handoff // by service, for those that had a connection
}

func (a *arriving) deliver(service string, arrived net.Conn) {
	c, ok := arrived.(*net.TCPConn)
	switch {
	case ok:
	case service == proxyclient.FileDNS:
		go a.b.proxy.ServeQueries(arrived)
		return
	default:
		arrived.Close()
		return
	}
	if at, ok := strings.CutPrefix(service, proxyclient.FileNamed); ok {
		to, err := netip.ParseAddrPort(at)
		if err != nil {
			c.Close()
			return
		}
		a.named.Named(c, to)
		return
	}
	l, ok := a.served[service]
	if !ok {
		serve := a.b.service(service)
		if serve == nil {
			c.Close()
			return
		}
		l = a.b.proxy.Handoff()
		a.served[service] = l
		go serve(l)
	}
	l.Give(c)
}

// service returns what serves the connections of a service, or nil.
func (b *sandbox) service(name string) func(net.Listener) error {
	switch name {
	case proxyclient.FileProxy:
		return b.proxy.ServeProxy
	case proxyclient.FileDNSTCP:
		return b.proxy.ServeDNSTCP
	case proxyclient.FileGo:
		return b.proxy.ServeGo
	}
	for _, r := range b.proxy.Routes {
		if name == proxyclient.FileRoute(r.Port) {
			return func(l net.Listener) error { return b.proxy.ServeRoute(l, r.Port) }
		}
	}
	return nil
}
