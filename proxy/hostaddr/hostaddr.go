// Package hostaddr asks the kernel whether an address is this machine's own.
//
//	own, err := hostaddr.Own(netip.MustParseAddrPort("192.0.2.1:443"))
//
// The addresses of interfaces are not all of them: a route of type local (AnyIP, virtual addresses of
// load balancers, `ip route add local`) makes any range one. So the question is what connect(2)
// would do: an RTM_GETROUTE for TCP to that address and port, rtnetlink(7), of which the
// answer says the type of the route. Only a unicast route leads to another machine.
//
// A route lookup does not see what a packet filter turns around later: an address that NAT rules
// of this machine redirect to itself is not known as its own.
//
// The question takes one netlink socket and no privilege. It is asked anew each time: an answer from before
// would be wrong for an address that came since.
package hostaddr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Own says whether a connection to at would end on this machine. An address that no route leads to is not its own: nothing can be
// sent there.
func Own(at netip.AddrPort) (bool, error) {
	kind, err := routeType(at)
	switch {
	case errors.Is(err, errNoRoute):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("ask for the route to %v: %w", at.Addr(), err)
	}
	return kind != unix.RTN_UNICAST, nil
}

// errNoRoute is the kernel's answer that connect(2) would fail.
var errNoRoute = errors.New("no route")

// routeType gives the type (RTN_*) of the route to at.
func routeType(at netip.AddrPort) (kind byte, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, question(at), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	// The kernel has answered when sendto returns. What does not fit is cut off: the attributes of the route.
	answer := make([]byte, 128)
	n, from, err := unix.Recvfrom(fd, answer, unix.MSG_DONTWAIT)
	if err != nil {
		return 0, err
	}
	if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
		return 0, errors.New("an answer that is not the kernel's")
	}
	return understand(answer[:n])
}

// question is a message of type RTM_GETROUTE: a header, a struct rtmsg, and attributes.
func question(at netip.AddrPort) []byte {
	a := at.Addr().Unmap().WithZone("")
	family := byte(unix.AF_INET)
	if a.Is6() {
		family = unix.AF_INET6
	}
	b := make([]byte, unix.NLMSG_HDRLEN, 128)
	b = append(b, family, byte(a.BitLen()), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	b = attribute(b, unix.RTA_DST, a.AsSlice())
	b = attribute(b, unix.RTA_IP_PROTO, []byte{unix.IPPROTO_TCP}) // rules (ip-rule) may go by it and the port
	b = attribute(b, unix.RTA_DPORT, binary.BigEndian.AppendUint16(nil, at.Port()))
	*(*unix.NlMsghdr)(unsafe.Pointer(&b[0])) = unix.NlMsghdr{Len: uint32(len(b)), Type: unix.RTM_GETROUTE, Flags: unix.NLM_F_REQUEST, Seq: sequence}
	return b
}

// sequence is the number of the one question of a socket.
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

var errMalformed = errors.New("an answer that cannot be read")

// understand reads the answer. It is pure.
func understand(b []byte) (kind byte, err error) {
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

// refusal tells the answers that are about the route from those that are about the question. A route of type blackhole is
// EINVAL, which a question that a kernel does not understand is too: it counts as unknown.
func refusal(e unix.Errno) error {
	switch e {
	case unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES:
		return errNoRoute
	case 0:
		return errMalformed
	}
	return e
}
