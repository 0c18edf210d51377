package netns

import (
	"demesne/internal/lockedthread"
	"errors"
	"fmt"
	"os"
	"sync"
)

// Gateway is the way out of one sandbox: its namespace, joined by a veth pair to
// another that has no way out itself, and sockets in that one. Nothing is forwarded; what
// arrives at the sockets is all that a sandbox can reach. Which socket accepted says
// which sandbox it is.
type Gateway struct {
	Sandbox *NS // to start the sandbox in

	// Sockets, which listen already; for another process, or net.FileListener and
	// net.FilePacketConn, which copy them.
	Proxy  *os.File   // at ProxyAddr
	DNS    *os.File   // UDP, at DNSAddr
	DNSTCP *os.File   // at DNSAddr
	Named  []*os.File // every other TCP port of every address in the pools; the local address of a connection is the one it was made to

	NamedErr error // why Named is empty: no nft_tproxy. [Gateway.Listen] does for single ports
	IPv6Err  error // why there is no IPv6

	namespace *os.File
}

// making lets one gateway be made at a time. The kernel does most of it under one lock
// (rtnl): a hundred that contend for it take twice as long as a hundred in turn.
var making sync.Mutex

// NewGateway makes a gateway in namespaces owned by the caller's user namespace, over
// which it needs CAP_SYS_ADMIN and CAP_NET_ADMIN. The sandbox's side was verified: an
// interface besides lo, routes to the two pools, and no other route.
func NewGateway() (*Gateway, error) {
	g := &Gateway{}
	making.Lock()
	defer making.Unlock()
	err := lockedthread.Run(func() error {
		w := &wiring{}
		defer w.close()
		err := w.build()
		if err == nil {
			err = w.open(g)
		}
		if err != nil {
			return errors.Join(err, g.Close())
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("make gateway: %w", err)
	}
	return g, nil
}

// open moves what w made into g, and the sockets.
func (w *wiring) open(g *Gateway) (err error) {
	g.Sandbox, w.sandbox.ns = w.sandbox.ns, nil
	g.namespace, w.gateway.ns.File = w.gateway.ns.File, nil
	g.IPv6Err = w.ipv6Err
	if g.Proxy, err = listenTCP(ProxyAddr()); err != nil {
		return fmt.Errorf("listen for the proxy: %w", err)
	}
	if g.DNSTCP, err = listenTCP(DNSAddr()); err != nil {
		return fmt.Errorf("listen for DNS: %w", err)
	}
	if g.DNS, err = listenUDP(DNSAddr()); err != nil {
		return fmt.Errorf("listen for DNS: %w", err)
	}
	g.openNamed(w.ipv6Err == nil)
	return g.Sandbox.verify(uint32(w.sandbox.link.Attrs().Index))
}

// openNamed leaves all or nothing in Named.
func (g *Gateway) openNamed(with6 bool) {
	families := []bool{false, true}[:1]
	if with6 {
		families = []bool{false, true}
	}
	for _, six := range families {
		l, err := listenTCP(anyAddr(six, namedPort))
		if err != nil {
			g.NamedErr = fmt.Errorf("listen for names: %w", err)
			break
		}
		g.Named = append(g.Named, l)
	}
	if g.NamedErr == nil {
		g.NamedErr = addTProxy(with6)
	}
	if g.NamedErr != nil {
		g.closeNamed()
	}
}

// Listen opens listeners for one port of every address in the pools, IPv4 and, where
// there is any, IPv6: what Named does for all ports.
func (g *Gateway) Listen(port uint16) ([]*os.File, error) {
	var all []*os.File
	err := (&NS{File: g.namespace}).within(func() error {
		for _, six := range []bool{false, true} {
			if six && g.IPv6Err != nil {
				continue
			}
			l, err := listenTCP(anyAddr(six, port))
			if err != nil {
				return err
			}
			all = append(all, l)
		}
		return nil
	})
	if err != nil {
		for _, l := range all {
			l.Close()
		}
		return nil, fmt.Errorf("listen on port %d of gateway: %w", port, err)
	}
	return all, nil
}

// Close closes our descriptors of the sockets and gives up the namespaces. Connections that
// were accepted stay until they are closed. Close can be called twice.
func (g *Gateway) Close() error {
	var errs []error
	g.closeNamed()
	for _, f := range []**os.File{&g.Proxy, &g.DNS, &g.DNSTCP, &g.namespace} {
		if *f != nil {
			errs = append(errs, (*f).Close())
			*f = nil
		}
	}
	if g.Sandbox != nil {
		errs = append(errs, g.Sandbox.Close())
		g.Sandbox = nil
	}
	return errors.Join(errs...)
}

func (g *Gateway) closeNamed() {
	for _, l := range g.Named {
		l.Close()
	}
	g.Named = nil
}

func (g *Gateway) closeNamed6() {
	if len(g.Named) == 2 {
		g.Named[1].Close()
		g.Named = g.Named[:1]
	}
}
