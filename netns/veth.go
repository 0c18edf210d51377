package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// wiringTime bounds every wait for the kernel. On an idle machine the whole setup takes a few milliseconds.
const wiringTime = 10 * time.Second

// wiring is a gateway under construction. One thread builds it all: it enters the sandbox's namespace first and
// then stays in the gateway's, where the sockets must be made. Later work in the sandbox's namespace goes through a
// socket made there.
type wiring struct {
	sandbox, gateway side
	ipv6Err          error
}

// side is a namespace, the rtnetlink socket that configures it, and its end of the pair.
type side struct {
	ns   *NS
	nl   *netlink.Handle
	link netlink.Link
}

func (w *wiring) close() {
	w.sandbox.close()
	w.gateway.close()
}

func (s side) close() {
	if s.nl != nil {
		s.nl.Close()
	}
	if s.ns != nil {
		s.ns.Close()
	}
}

// steps returns the steps of build, in order.
func (w *wiring) steps() []step {
	return []step{
		{StepNamespace, w.enterSandbox},
		{StepNamespace, w.enterGateway},
		{StepVeth, w.addPair},
		{StepAddress, w.addAddresses},
		{StepAnyIP, w.routeAnyIP},
		{StepVeth, w.waitUp},
		{StepAddress, w.waitOwn},
	}
}

type step struct {
	name Step
	do   func() error
}

func (w *wiring) build() error { return run(w.steps()) }

func run(steps []step) error {
	for _, s := range steps {
		if err := s.do(); err != nil {
			return &StepError{s.name, err}
		}
	}
	return nil
}

func (w *wiring) enterSandbox() error {
	if err := w.sandbox.enter(); err != nil {
		return err
	}
	writeSysctls(sandboxSysctls)
	writeSysctls(linkSysctls)
	w.sandbox.ns.Sysfs, w.sandbox.ns.SysfsErr = mountSysfs()
	return nil
}

func (w *wiring) enterGateway() error {
	if err := w.gateway.enter(); err != nil {
		return err
	}
	writeSysctls(gatewaySysctls)
	return nil
}

func (s *side) enter() (err error) {
	if s.ns, err = enter(); err != nil {
		return err
	}
	if s.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return fmt.Errorf("open rtnetlink: %w", err)
	}
	return s.nl.SetSocketTimeout(wiringTime)
}

// pairIndex is the index of the gateway's end, which must differ from the other end's: in two new namespaces both
// would be 2. The kernel then treats the device as stacked, and reports its state at once. Otherwise it reports it
// up to a second later.
const pairIndex = 1000

// pairHardware is the hardware address of both ends. The pair resolves no addresses (IFF_NOARP): the kernel then
// sends to the other end with its own hardware address, which is the same. Otherwise a sandbox, which may send to
// any address by naming the interface, could fill the neighbour table with unanswered requests. That table is
// shared by the whole machine, so no namespace could add a neighbour.
var pairHardware = net.HardwareAddr{0x02, 'd', 'e', 'm', 'e', 's'}

// addPair makes the veth pair, one end in each namespace, and brings both up.
func (w *wiring) addPair() error {
	err := w.gateway.nl.LinkAdd(&netlink.Veth{
		LinkAttrs:        netlink.LinkAttrs{Name: pairName, Index: pairIndex, HardwareAddr: pairHardware},
		PeerName:         pairName,
		PeerHardwareAddr: pairHardware,
		PeerNamespace:    netlink.NsFd(w.sandbox.ns.File.Fd()),
	})
	if err != nil {
		return err
	}
	for _, s := range []*side{&w.sandbox, &w.gateway} {
		if err := s.findPair(); err != nil {
			return err
		}
		// The pair needs no link-local address. Without IPv6 in the kernel this call fails, and there is no such
		// address anyway.
		s.nl.LinkSetIP6AddrGenMode(s.link, nl.IN6_ADDR_GEN_MODE_NONE)
		err := control(s.ns.routes, func(fd int) error { return setUp(fd, pairName, unix.IFF_NOARP|unix.IFF_MULTICAST) })
		if err != nil {
			return err
		}
	}
	return nil
}

// findPair asks for the index only: package netlink would decode the whole link.
func (s *side) findPair() error {
	index, err := s.index(pairName)
	if err != nil {
		return fmt.Errorf("find interface: %w", err)
	}
	s.link = &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: pairName, Index: index}}
	return nil
}

func (s *side) index(name string) (int, error) {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	err = control(s.ns.routes, func(fd int) error { return unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, ifr) })
	return int(ifr.Uint32()), err
}

// addAddresses gives both ends their addresses, and the sandbox the routes to the pools. The sandbox gets no
// default route: the kernel refuses other destinations without sending a packet.
func (w *wiring) addAddresses() error {
	if err := w.addFamily(gateway4, sandbox4, pool4); err != nil {
		return err
	}
	w.ipv6Err = w.addFamily(gateway6, sandbox6, pool6)
	return nil
}

func (w *wiring) addFamily(gateway, sandbox, to netip.Prefix) error {
	for s, a := range map[*side]netip.Prefix{&w.gateway: gateway, &w.sandbox: sandbox} {
		// Without IFA_F_NODAD an IPv6 address is unusable for over a second.
		addr := &netlink.Addr{IPNet: ipNet(a)}
		if a.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := s.nl.AddrAdd(s.link, addr); err != nil {
			return fmt.Errorf("add %v: %w", a, err)
		}
	}
	return w.sandbox.nl.RouteAdd(&netlink.Route{
		LinkIndex: w.sandbox.link.Attrs().Index, Dst: ipNet(to), Gw: gateway.Addr().AsSlice(),
	})
}

// routeAnyIP makes every address of the pools local to the gateway. The kernel itself then refuses traffic that has
// no socket: TCP with a reset, UDP with port unreachable, other protocols with protocol unreachable.
func (w *wiring) routeAnyIP() error {
	lo, err := w.gateway.index("lo")
	if err != nil {
		return err
	}
	pools := []netip.Prefix{pool4}
	if w.ipv6Err == nil {
		pools = append(pools, pool6)
	}
	for _, r := range pools {
		err := w.gateway.nl.RouteAdd(&netlink.Route{
			LinkIndex: lo, Dst: ipNet(r), Table: unix.RT_TABLE_LOCAL,
			Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST,
		})
		if err != nil {
			return fmt.Errorf("route %v: %w", r, err)
		}
	}
	return nil
}

// waitUp waits until both ends carry packets. The kernel enables that in the background: a packet sent before is
// lost, and retransmitted only after a second. Newer kernels (6.8) enable it at once when asked for the link. The
// flag IFF_RUNNING is no substitute: it is set too early.
func (w *wiring) waitUp() error {
	deadline := time.Now().Add(wiringTime)
	for _, s := range []*side{&w.sandbox, &w.gateway} {
		for {
			link, err := s.nl.LinkByIndex(s.link.Attrs().Index)
			if err != nil {
				return err
			}
			if link.Attrs().OperState == netlink.OperUp {
				break
			}
			if time.Now().After(deadline) {
				return unix.ETIMEDOUT
			}
			time.Sleep(50 * time.Microsecond)
		}
	}
	return nil
}

// waitOwn waits until both ends accept packets for their own IPv6 addresses. The kernel adds the route for that,
// and joins the solicited-node group of the address, in the background, even without duplicate address detection. A
// packet sent before is lost, and retransmitted only after a second. The kernel joins the group first
// (addrconf_dad_begin), so waiting for the route is enough.
func (w *wiring) waitOwn() error {
	if w.ipv6Err != nil {
		return nil
	}
	deadline := time.Now().Add(wiringTime)
	for s, own := range map[*side]netip.Prefix{&w.gateway: gateway6, &w.sandbox: sandbox6} {
		for {
			routes, err := s.nl.RouteGet(own.Addr().AsSlice())
			if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
				break
			}
			if time.Now().After(deadline) {
				w.ipv6Err = fmt.Errorf("wait for %v: %w", own.Addr(), errors.Join(unix.ETIMEDOUT, err))
				return nil
			}
			time.Sleep(50 * time.Microsecond)
		}
	}
	return nil
}
