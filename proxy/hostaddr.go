package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OwnAddress asks the kernel whether a connection to at would end on this machine. Every route that is not unicast
// counts as own. An address without a route does not: nothing can be sent there.
//
// A machine can have more addresses than its interfaces. A route of type local (AnyIP, virtual addresses of load
// balancers, `ip route add local`) adds any range. So OwnAddress asks what connect(2) would do: it sends
// RTM_GETROUTE for TCP to that address and port, rtnetlink(7). The answer has the type of the route. Only a
// unicast route leads to another machine.
//
// A route lookup does not see a packet filter that redirects later. An address that this machine's NAT rules
// redirect to itself is not recognized.
//
// Each call takes one netlink socket and no privilege. Answers are not cached, since an address may be added at
// any time.
func OwnAddress(at netip.AddrPort) (bool, error) {
	kind, err := routeType(at)
	switch {
	case errors.Is(err, errNoRoute):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("ask for the route to %v: %w", at.Addr(), err)
	}
	return kind != unix.RTN_UNICAST, nil
}

// errNoRoute means that connect(2) would fail.
var errNoRoute = errors.New("no route")

// routeType returns the type (RTN_*) of the route to at.
func routeType(at netip.AddrPort) (kind byte, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, question(at), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	// The kernel has answered when sendto returns. An answer that does not fit loses its end, the attributes of
	// the route.
	answer := make([]byte, 128)
	n, from, err := unix.Recvfrom(fd, answer, unix.MSG_DONTWAIT)
	if err != nil {
		return 0, err
	}
	if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
		return 0, errors.New("an answer that did not come from the kernel")
	}
	return routeOf(answer[:n])
}

// question returns an RTM_GETROUTE message: a header, a struct rtmsg, and attributes.
func question(at netip.AddrPort) []byte {
	a := at.Addr().Unmap().WithZone("")
	family := byte(unix.AF_INET)
	if a.Is6() {
		family = unix.AF_INET6
	}
	b := make([]byte, unix.NLMSG_HDRLEN, 128)
	b = append(b, family, byte(a.BitLen()), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	b = attribute(b, unix.RTA_DST, a.AsSlice())
	b = attribute(b, unix.RTA_IP_PROTO, []byte{unix.IPPROTO_TCP}) // rules (ip-rule) may depend on it and the port
	b = attribute(b, unix.RTA_DPORT, binary.BigEndian.AppendUint16(nil, at.Port()))
	*(*unix.NlMsghdr)(unsafe.Pointer(&b[0])) = unix.NlMsghdr{Len: uint32(len(b)), Type: unix.RTM_GETROUTE, Flags: unix.NLM_F_REQUEST, Seq: sequence}
	return b
}

// sequence is the number of the only question on a socket.
const sequence = 1

func attribute(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	for len(b)%unix.RTA_ALIGNTO != 0 {
		b = append(b, 0)
	}
	return b
}

var errMalformed = errors.New("a malformed answer")

// routeOf parses the answer.
func routeOf(b []byte) (kind byte, err error) {
	if len(b) < unix.NLMSG_HDRLEN {
		return 0, errMalformed
	}
	what, number, body := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint32(b[8:]), b[unix.NLMSG_HDRLEN:]
	switch {
	case number != sequence:
	case what == unix.RTM_NEWROUTE && len(body) >= unix.SizeofRtMsg:
		return (*unix.RtMsg)(unsafe.Pointer(&body[0])).Type, nil
	case what == unix.NLMSG_ERROR && len(body) >= 4:
		return 0, refusal(unix.Errno(-int32(binary.NativeEndian.Uint32(body))))
	}
	return 0, errMalformed
}

// refusal tells errors about the route from errors about the question. The kernel answers EINVAL for a blackhole
// route and for a question that it does not understand. EINVAL therefore stays an error.
func refusal(e unix.Errno) error {
	switch e {
	case unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES:
		return errNoRoute
	case 0:
		return errMalformed
	}
	return e
}
