package netns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrNotAlone is wrapped by Verify's error when the namespace has more than a loopback.
var ErrNotAlone = errors.New("namespace has more than a loopback")

// Verify reads the namespace's interfaces and routes from the kernel. It fails unless lo is the only interface that
// is up and every route ends at lo. The result holds for the moment of the call; a later change needs CAP_NET_ADMIN
// over the owning user namespace. Verify is not safe for concurrent use.
func (n *NS) Verify() error { return n.verify(0) }

// verify does the work of Verify. Unless pair is 0 it also allows that interface, and routes over it to the pools
// and on the link itself.
func (n *NS) verify(pair uint32) error {
	if n.routes == nil {
		return fmt.Errorf("verify: %w", os.ErrClosed)
	}
	return control(n.routes, func(sock int) error {
		if n.ioctls {
			return alone(sock)
		}
		v := &view{socket: sock, pair: pair}
		if err := v.dump(unix.RTM_GETLINK, v.link); err != nil {
			return fmt.Errorf("list interfaces: %w", err)
		}
		if err := v.dump(unix.RTM_GETROUTE, v.route); err != nil {
			return fmt.Errorf("list routes: %w", err)
		}
		return nil
	})
}

// maxIndex bounds the search of alone. A new namespace numbers its interfaces from 1.
const maxIndex = 256

// alone verifies by ioctls that only a loopback is up. Then no route leads anywhere. A program that adds an
// interface needs rtnetlink.
func alone(sock int) error {
	for index := uint32(1); index <= maxIndex; index++ {
		link, err := unix.NewIfreq("lo") // any name
		if err != nil {
			return err
		}
		link.SetUint32(index)
		if unix.IoctlIfreq(sock, unix.SIOCGIFNAME, link) != nil {
			continue // no such interface
		}
		if err := unix.IoctlIfreq(sock, unix.SIOCGIFFLAGS, link); err != nil {
			return fmt.Errorf("read flags of interface %d: %w", index, err)
		}
		if flags := link.Uint16(); flags&unix.IFF_UP != 0 && flags&unix.IFF_LOOPBACK == 0 {
			return fmt.Errorf("interface %d is up: %w", index, ErrNotAlone)
		}
	}
	return nil
}

// view holds what a namespace's rtnetlink socket has reported so far. It does not use package netlink, which would
// decode everything and take five times as long.
type view struct {
	socket int
	lo     uint32 // index of the loopback
	pair   uint32 // index of the other interface that may be up
	buf    [8 << 10]byte
}

// link handles an RTM_NEWLINK and fails if an interface other than a loopback or the pair is up.
func (v *view) link(m syscall.NetlinkMessage) error {
	if m.Header.Type != unix.RTM_NEWLINK || len(m.Data) < unix.SizeofIfInfomsg {
		return nil
	}
	index := binary.NativeEndian.Uint32(m.Data[4:]) // of struct ifinfomsg
	flags := binary.NativeEndian.Uint32(m.Data[8:])
	switch {
	case flags&unix.IFF_LOOPBACK != 0:
		v.lo = index
	case flags&unix.IFF_UP != 0 && index != v.pair:
		return fmt.Errorf("interface %d is up: %w", index, ErrNotAlone)
	}
	return nil
}

// route handles an RTM_NEWROUTE of any table and fails if the route leads beyond lo and the pair.
func (v *view) route(m syscall.NetlinkMessage) error {
	if m.Header.Type != unix.RTM_NEWROUTE || len(m.Data) < unix.SizeofRtMsg {
		return nil
	}
	attrs, err := syscall.ParseNetlinkRouteAttr(&m)
	if err != nil {
		return err
	}
	byPair := v.pair != 0 && isOurs(m.Data[1], attrs)
	for _, a := range attrs {
		switch a.Attr.Type &^ unix.NLA_F_NESTED {
		case unix.RTA_OIF:
			if out := binary.NativeEndian.Uint32(a.Value); out != v.lo && (!byPair || out != v.pair) {
				return fmt.Errorf("route to interface %d: %w", out, ErrNotAlone)
			}
		case unix.RTA_GATEWAY:
			if !byPair || !isGateway(a.Value) {
				return fmt.Errorf("route with a gateway: %w", ErrNotAlone)
			}
		case unix.RTA_VIA, unix.RTA_MULTIPATH:
			return fmt.Errorf("route with a gateway: %w", ErrNotAlone)
		}
	}
	return nil
}

// ourRoutes lists the allowed destinations of a pair's routes: the pools, and its own link with broadcast and
// multicast.
var ourRoutes = []netip.Prefix{pool4, pool6, sandbox4.Masked(), sandbox6.Masked(), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8")}

// isOurs reports whether a route's destination, of prefix length bits, is in ourRoutes. A default route has no
// destination, so isOurs returns false for it.
func isOurs(bits byte, attrs []syscall.NetlinkRouteAttr) bool {
	for _, a := range attrs {
		if dst, ok := netip.AddrFromSlice(a.Value); ok && a.Attr.Type == unix.RTA_DST {
			return slices.ContainsFunc(ourRoutes, func(p netip.Prefix) bool { return int(bits) >= p.Bits() && p.Contains(dst) })
		}
	}
	return false
}

func isGateway(b []byte) bool {
	a, ok := netip.AddrFromSlice(b)
	return ok && (a == gateway4.Addr() || a == gateway6.Addr())
}

// dump requests all objects of one kind, such as RTM_GETLINK, of every address family, and passes them to each.
func (v *view) dump(kind uint16, each func(syscall.NetlinkMessage) error) error {
	req := make([]byte, unix.SizeofNlMsghdr+unix.SizeofRtMsg) // zero: AF_UNSPEC
	binary.NativeEndian.PutUint32(req, uint32(len(req)))
	binary.NativeEndian.PutUint16(req[4:], kind)
	binary.NativeEndian.PutUint16(req[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	if err := unix.Sendto(v.socket, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	var refused error // the first one; the rest of the answer must still be read
	for {
		n, _, err := unix.Recvfrom(v.socket, v.buf[:], unix.MSG_TRUNC)
		switch {
		case err != nil:
			return err
		case n > len(v.buf):
			return unix.EMSGSIZE
		}
		msgs, err := syscall.ParseNetlinkMessage(v.buf[:n])
		if err != nil {
			return err
		}
		for _, m := range msgs {
			switch m.Header.Type {
			case unix.NLMSG_DONE:
				return refused
			case unix.NLMSG_ERROR:
				return unix.Errno(-int32(binary.NativeEndian.Uint32(m.Data)))
			}
			if refused == nil {
				refused = each(m)
			}
		}
	}
}

// control calls f with the file's descriptor, and keeps it open meanwhile.
func control(file *os.File, f func(fd int) error) error {
	c, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := c.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}
