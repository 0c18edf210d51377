package supervisor

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxListening bounds the ports at which servers of a sandbox listen.
const maxListening = 1024

// loopback is where the servers of a sandbox listen: addresses of its own in 127.0.0.0/8. The kernel drops segments
// without the sandbox's signature (RFC 2385) at its listening sockets and at its connections to them. Only this process
// has the key, and the filter keeps the sandbox from such options.
type loopback struct {
	v4, v6    netip.Addr // of IPv4 and of IPv6 sockets: programs bind both at one port
	key       [16]byte
	listening map[netip.AddrPort]uint64 // the inodes of sockets that listened when this was last checked
	blocked   error                     // why the kernel cannot sign segments
	patience  time.Duration             // for one connection
}

func newLoopback() (l loopback, err error) {
	var at [3]byte
	if _, err = rand.Read(at[:]); err == nil {
		_, err = rand.Read(l.key[:])
	}
	// Not 127.0.0.0/16, where programs of the machine listen.
	l.v4 = netip.AddrFrom4([4]byte{127, at[0] | 1, at[1], at[2] &^ 1})
	l.v6 = netip.AddrFrom4([4]byte{127, at[0] | 1, at[1], at[2] | 1})
	l.listening = map[netip.AddrPort]uint64{}
	l.blocked, l.patience = CanListen(), patience
	return l, err
}

// CanListen says why servers of a sandbox cannot listen on this machine, or returns nil.
func CanListen() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err == nil {
		defer unix.Close(fd)
		err = sign(fd, unix.AF_INET, netip.PrefixFrom(netip.IPv4Unspecified(), 0), make([]byte, 16))
	}
	if err != nil {
		return fmt.Errorf("sign segments of TCP: %w", err)
	}
	return nil
}

// sign makes a socket of a family send only signed segments to peers, and drop unsigned ones from them.
func sign(fd, family int, peers netip.Prefix, key []byte) error {
	s := struct { // struct tcp_md5sig
		address   [128]byte
		flags     uint8
		prefix    uint8
		keyLength uint16
		device    int32
		key       [80]byte
	}{flags: 1 /* TCP_MD5SIG_FLAG_PREFIX */, prefix: uint8(peers.Bits()), keyLength: uint16(len(key))}
	binary.NativeEndian.PutUint16(s.address[:], uint16(family))
	if at := peers.Addr().As16(); family == unix.AF_INET6 { // the prefix is the mapped address's
		copy(s.address[8:], at[:])
	} else {
		copy(s.address[4:], at[12:])
	}
	copy(s.key[:], key)
	return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_MD5SIG_EXT, unsafe.String((*byte)(unsafe.Pointer(&s)), unsafe.Sizeof(s)))
}

// own returns the address of the sandbox's sockets of a family.
func (l *loopback) own(family int) netip.Addr {
	if family == unix.AF_INET6 {
		return l.v6
	}
	return l.v4
}

func local(a netip.Addr) bool { return a.IsLoopback() || a.IsUnspecified() }

// bind binds a socket to the sandbox's own address instead of the loopback.
func (l *loopback) bind(own socket, at netip.AddrPort) error {
	switch {
	case own.datagrams || l.blocked != nil:
		return unix.EACCES
	case !local(at.Addr()):
		return unix.EADDRNOTAVAIL
	}
	if own.family == unix.AF_INET6 {
		unix.SetsockoptInt(own.fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
	}
	return unix.Bind(own.fd, sockaddr(own.family, netip.AddrPortFrom(l.own(own.family), at.Port())))
}

// listen makes a socket of the sandbox listen.
func (l *loopback) listen(inode uint64, own socket, backlog int) error {
	if own.datagrams || l.blocked != nil {
		return unix.EACCES
	}
	if len(l.listening) >= maxListening {
		l.forget()
	}
	if len(l.listening) >= maxListening {
		return unix.ENOBUFS
	}
	name, err := nameOf(unix.Getsockname(own.fd))
	if err == nil && name.Port() == 0 {
		if err = l.bind(own, netip.AddrPortFrom(netip.IPv4Unspecified(), 0)); err == nil {
			name, err = nameOf(unix.Getsockname(own.fd))
		}
	}
	switch {
	case err != nil:
		return err
	case name.Addr() != l.own(own.family): // connect(2) has failed
		return unix.EINVAL
	}
	// The key holds for peers of any address: a process outside can bind its socket to any address of this machine.
	if err := sign(own.fd, own.family, netip.PrefixFrom(netip.IPv4Unspecified(), 0), l.key[:]); err != nil {
		return unix.EACCES
	}
	unix.SetsockoptInt(own.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) // its connections inherit it, see live
	if err := unix.Listen(own.fd, backlog); err != nil {
		return err
	}
	l.listening[name] = inode
	return nil
}

// listens reports whether the socket has listened.
func (l *loopback) listens(inode uint64) bool {
	for _, i := range l.listening {
		if i == inode {
			return true
		}
	}
	return false
}

// forget forgets the sockets that have been closed.
func (l *loopback) forget() {
	for at := range l.listening {
		l.live(at)
	}
}

// live reports whether a socket listens at an address, if the sandbox has had one there. The kernel does not tell when it
// is closed, and a copy of it would keep it open.
func (l *loopback) live(at netip.AddrPort) bool {
	if _, had := l.listening[at]; !had {
		return false
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) // then only a listening socket prevents bind
	if errors.Is(unix.Bind(fd, sockaddr(unix.AF_INET, at)), unix.EADDRINUSE) {
		return true
	}
	delete(l.listening, at)
	return false
}

// server returns the address of the sandbox's own server at an address of the loopback. A server that listens on all
// addresses of IPv6 has IPv4's too.
func (l *loopback) server(to netip.AddrPort) (at netip.AddrPort, ok bool) {
	var try []netip.Addr
	switch a := to.Addr(); {
	case a == l.v4 || a == l.v6:
		try = []netip.Addr{a}
	case !local(a):
	case a.Is4():
		try = []netip.Addr{l.v4, l.v6}
	default:
		try = []netip.Addr{l.v6}
	}
	for _, a := range try {
		if at = netip.AddrPortFrom(a, to.Port()); l.live(at) {
			return at, true
		}
	}
	return at, false
}

// dial connects a socket with a server of the sandbox. If the server has been closed, and another process listens there,
// the kernel drops the signed segments.
func (l *loopback) dial(own socket, at netip.AddrPort) error {
	if err := sign(own.fd, own.family, netip.PrefixFrom(at.Addr(), 32), l.key[:]); err != nil {
		return unix.ECONNREFUSED
	}
	return connectWithin(own, at, l.patience)
}
