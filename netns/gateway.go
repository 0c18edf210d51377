package netns

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"demesne/internal/procself"
)

// Gateway is the egress of one sandbox: the sandbox's namespace, a second namespace joined to it by a veth pair,
// and sockets in the second one. The second namespace has no other link and forwards nothing, so a sandbox can
// reach only these sockets. The accepting socket identifies the sandbox.
type Gateway struct {
	Sandbox *NS // to start the sandbox in

	// Sockets, which listen already. Pass them to another process, or to net.FileListener and net.FilePacketConn,
	// which copy them.
	Proxy  *os.File   // at ProxyAddr
	DNS    *os.File   // UDP, at DNSAddr
	DNSTCP *os.File   // at DNSAddr
	Named  []*os.File // every other TCP port of every address in the pools; the local address of a connection is its original destination

	NamedErr error // why Named is empty: no nft_tproxy. [Gateway.Listen] opens single ports instead
	IPv6Err  error // why IPv6 is missing

	namespace *os.File
}

// making serializes gateway creation. The kernel does most of the work under one lock (rtnl): a hundred concurrent
// creations take twice as long as a hundred sequential ones.
var making sync.Mutex

// NewGateway makes a gateway in namespaces owned by the caller's user namespace, over which it needs CAP_SYS_ADMIN
// and CAP_NET_ADMIN. It verifies the sandbox's side: one interface other than lo, routes to the two pools, and no
// other route.
func NewGateway() (*Gateway, error) {
	g := &Gateway{}
	making.Lock()
	defer making.Unlock()
	err := procself.OnDisposableThread(func() error {
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

// open moves the namespaces of w into g, and opens the sockets.
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

// openNamed opens all sockets of Named or, on an error, sets NamedErr and leaves Named empty.
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

// Listen opens listeners for one port of every address in the pools, for IPv4 and, where available, for IPv6. Named
// does the same for all ports.
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

// Close closes this process's descriptors of the sockets and releases the namespaces. Accepted connections live
// until they are closed. Close can be called twice.
func (g *Gateway) Close() error {
	g.closeNamed()
	err := closeAll(&g.Proxy, &g.DNS, &g.DNSTCP, &g.namespace)
	if g.Sandbox != nil {
		err = errors.Join(err, g.Sandbox.Close())
		g.Sandbox = nil
	}
	return err
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
