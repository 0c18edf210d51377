package netns

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// request asks the kernel to change or report something in n, over the socket that was made there. It returns the body
// of the reported object. Package netlink builds messages, but does not send them: it takes a socket and many buffers
// of 64 KiB for each namespace, which costs more than what the kernel does.
func (n *NS) request(kind uint16, flags uint16, parts ...nl.NetlinkRequestData) (body []byte, err error) {
	m := make([]byte, unix.SizeofNlMsghdr)
	for _, p := range parts {
		m = append(m, p.Serialize()...)
	}
	n.sent++
	binary.NativeEndian.PutUint32(m, uint32(len(m)))
	binary.NativeEndian.PutUint16(m[4:], kind)
	binary.NativeEndian.PutUint16(m[6:], flags|unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(m[8:], n.sent)
	buf := buffers.Get().(*[8 << 10]byte)
	defer buffers.Put(buf)
	err = control(n.routes, func(sock int) error {
		if err := unix.Sendto(sock, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return err
		}
		body, err = n.answer(sock, buf)
		return err
	})
	return body, err
}

// buffers are for answers, of which the description of an interface is the longest.
var buffers = sync.Pool{New: func() any { return new([8 << 10]byte) }}

// answer reads the answer to the last request: an object, or the kernel's verdict.
func (n *NS) answer(sock int, buf *[8 << 10]byte) ([]byte, error) {
	for {
		size, _, err := unix.Recvfrom(sock, buf[:], unix.MSG_TRUNC)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN: // SO_RCVTIMEO
			return nil, unix.ETIMEDOUT
		case err != nil:
			return nil, err
		case size > len(buf):
			return nil, unix.EMSGSIZE
		}
		msgs, err := syscall.ParseNetlinkMessage(buf[:size])
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(msgs, func(m syscall.NetlinkMessage) bool { return m.Header.Seq == n.sent })
		switch {
		case i < 0:
		case msgs[i].Header.Type != unix.NLMSG_ERROR:
			return slices.Clone(msgs[i].Data), nil
		default:
			return nil, verdict(msgs[i].Data)
		}
	}
}

// verdict returns the error in the body of an NLMSG_ERROR; 0 is success.
func verdict(body []byte) error {
	if len(body) < 4 {
		return unix.EBADMSG
	}
	if errno := -int32(binary.NativeEndian.Uint32(body)); errno != 0 {
		return unix.Errno(errno)
	}
	return nil
}

// change makes a request that has no answer but success.
func (n *NS) change(kind uint16, flags uint16, parts ...nl.NetlinkRequestData) error {
	_, err := n.request(kind, flags|unix.NLM_F_ACK, parts...)
	return err
}

// add is change for a new object.
func (n *NS) add(kind uint16, parts ...nl.NetlinkRequestData) error {
	return n.change(kind, unix.NLM_F_CREATE|unix.NLM_F_EXCL, parts...)
}

// addVeth makes the pair: one end in n, with the given index, and one in the namespace other.
func (n *NS) addVeth(index int, other uint32) error {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("veth"))
	peer := info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(nl.VETH_INFO_PEER, nil)
	nl.NewIfInfomsgChild(peer, unix.AF_UNSPEC)
	peer.AddRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(pairName))
	peer.AddRtAttr(unix.IFLA_ADDRESS, pairHardware)
	peer.AddRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(other))
	return n.add(unix.RTM_NEWLINK, msg,
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(pairName)),
		nl.NewRtAttr(unix.IFLA_ADDRESS, pairHardware), info)
}

// noLinkLocal keeps an interface from getting a link-local address.
func (n *NS) noLinkLocal(index int) error {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	spec := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	spec.AddRtAttr(unix.AF_INET6, nil).AddRtAttr(unix.IFLA_INET6_ADDR_GEN_MODE, nl.Uint8Attr(nl.IN6_ADDR_GEN_MODE_NONE))
	return n.change(unix.RTM_SETLINK, 0, msg, spec)
}

// isUp reports whether an interface carries packets.
func (n *NS) isUp(index int) (bool, error) {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	body, err := n.request(unix.RTM_GETLINK, 0, msg)
	if err != nil {
		return false, err
	}
	attrs, err := nl.ParseRouteAttr(body[min(len(body), unix.SizeofIfInfomsg):])
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(attrs, func(a syscall.NetlinkRouteAttr) bool {
		return a.Attr.Type == unix.IFLA_OPERSTATE && len(a.Value) == 1 && a.Value[0] == ifOperUp
	}), nil
}

// ifOperUp is IF_OPER_UP of linux/if.h.
const ifOperUp = 6

// addAddress gives an interface an address, and an IPv4 address its broadcast address. Without IFA_F_NODAD an IPv6
// address is unusable for over a second.
func (n *NS) addAddress(index int, at netip.Prefix) error {
	msg := nl.NewIfAddrmsg(family(at.Addr()))
	msg.Index, msg.Prefixlen = uint32(index), uint8(at.Bits())
	own := at.Addr().AsSlice()
	parts := []nl.NetlinkRequestData{msg, nl.NewRtAttr(unix.IFA_LOCAL, own), nl.NewRtAttr(unix.IFA_ADDRESS, own)}
	if at.Addr().Is6() {
		msg.IfAddrmsg.Flags = unix.IFA_F_NODAD
	} else {
		parts = append(parts, nl.NewRtAttr(unix.IFA_BROADCAST, broadcast(at)))
	}
	if err := n.add(unix.RTM_NEWADDR, parts...); err != nil {
		return fmt.Errorf("add %v: %w", at, err)
	}
	return nil
}

// broadcast returns the last address of an IPv4 prefix.
func broadcast(p netip.Prefix) []byte {
	b := p.Addr().As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])|(1<<(32-p.Bits())-1))
	return b[:]
}

// addRoute adds a route over an interface, by way of via unless that is invalid.
func (n *NS) addRoute(index int, to netip.Prefix, via netip.Addr) error {
	return n.newRoute(nl.NewRtMsg(), index, to, via)
}

// addLocal makes every address of a prefix local.
func (n *NS) addLocal(index int, to netip.Prefix) error {
	msg := nl.NewRtMsg()
	msg.Table, msg.Type, msg.Scope = unix.RT_TABLE_LOCAL, unix.RTN_LOCAL, unix.RT_SCOPE_HOST
	return n.newRoute(msg, index, to, netip.Addr{})
}

func (n *NS) newRoute(msg *nl.RtMsg, index int, to netip.Prefix, via netip.Addr) error {
	msg.Family, msg.Dst_len = uint8(family(to.Addr())), uint8(to.Bits())
	parts := []nl.NetlinkRequestData{msg,
		nl.NewRtAttr(unix.RTA_DST, to.Addr().AsSlice()), nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(uint32(index)))}
	if via.IsValid() {
		parts = append(parts, nl.NewRtAttr(unix.RTA_GATEWAY, via.AsSlice()))
	}
	if err := n.add(unix.RTM_NEWROUTE, parts...); err != nil {
		return fmt.Errorf("route %v: %w", to, err)
	}
	return nil
}

// isLocal reports whether n accepts packets for an address.
func (n *NS) isLocal(a netip.Addr) (bool, error) {
	msg := &nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family(a)), Dst_len: uint8(a.BitLen())}}
	body, err := n.request(unix.RTM_GETROUTE, 0, msg, nl.NewRtAttr(unix.RTA_DST, a.AsSlice()))
	if err != nil || len(body) < unix.SizeofRtMsg {
		return false, err
	}
	return body[7] == unix.RTN_LOCAL, nil // of struct rtmsg: rtm_type
}

func family(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
