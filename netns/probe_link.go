package netns

import (
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// addPair makes the veth pair, one end in each namespace.
func (e *egress) addPair() error {
	return e.gateway.nl.LinkAdd(&netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: probeLink},
		PeerName:      probeLink,
		PeerNamespace: netlink.NsFd(e.sandbox.ns.File.Fd()),
	})
}

// addAddresses brings both ends up. The sandbox gets a route to the range and no
// default route.
func (e *egress) addAddresses() error {
	if _, err := setUp(e.gateway.nl, probeGateway.String()); err != nil {
		return err
	}
	sb, err := setUp(e.sandbox.nl, probeSandbox.String())
	if err != nil {
		return err
	}
	if err := e.sandbox.nl.RouteAdd(&netlink.Route{LinkIndex: sb, Dst: probeRange, Gw: probeGateway.IP}); err != nil {
		return err
	}
	return e.waitUp()
}

// setUp gives the probe's link an address and brings it up.
func setUp(h *netlink.Handle, address string) (index int, err error) {
	link, err := h.LinkByName(probeLink)
	if err != nil {
		return 0, err
	}
	addr, err := netlink.ParseAddr(address)
	if err != nil {
		return 0, err
	}
	if err := h.AddrAdd(link, addr); err != nil {
		return 0, err
	}
	return link.Attrs().Index, h.LinkSetUp(link)
}

// waitUp waits until both ends carry packets, which the kernel arranges in the
// background: a packet sent before is lost, and sent again only after a second.
func (e *egress) waitUp() error {
	for _, h := range []*netlink.Handle{e.gateway.nl, e.sandbox.nl} {
		for {
			link, err := h.LinkByName(probeLink)
			if err != nil {
				return err
			}
			if link.Attrs().OperState == netlink.OperUp {
				break
			}
			if time.Now().After(e.deadline) {
				return unix.ETIMEDOUT
			}
			time.Sleep(200 * time.Microsecond)
		}
	}
	return nil
}
