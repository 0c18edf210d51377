package netns

import (
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// backlog is the length of each listener's queue. The kernel caps it at net.core.somaxconn.
const backlog = 4096

// socket makes a socket in the calling thread's namespace that takes only traffic from the pair. It calls socket(2)
// directly, as net.Listen would make an MPTCP socket. The socket is blocking, so that this process does not poll a
// socket that another one serves.
func socket(at netip.AddrPort, kind int) (int, error) {
	family := unix.AF_INET
	if at.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	if err := setUpSocket(fd, at, kind); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// setUpSocket sets SO_REUSEPORT so that a wildcard and the gateway's own address can share a port: the more
// specific one gets the connection.
func setUpSocket(fd int, at netip.AddrPort, kind int) error {
	for _, o := range []struct {
		name              string
		level, opt, value int
		when              bool
	}{
		{"SO_REUSEADDR", unix.SOL_SOCKET, unix.SO_REUSEADDR, 1, true},
		{"SO_REUSEPORT", unix.SOL_SOCKET, unix.SO_REUSEPORT, 1, kind == unix.SOCK_STREAM},
		{"IPV6_V6ONLY", unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1, at.Addr().Is6()},
		{"IP_TRANSPARENT", unix.SOL_IP, unix.IP_TRANSPARENT, 1, at.Addr() == netip.IPv4Unspecified()},
		{"IPV6_TRANSPARENT", unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1, at.Addr() == netip.IPv6Unspecified()},
	} {
		if !o.when {
			continue
		}
		if err := unix.SetsockoptInt(fd, o.level, o.opt, o.value); err != nil {
			return fmt.Errorf("set %s: %w", o.name, err)
		}
	}
	if err := unix.BindToDevice(fd, pairName); err != nil {
		return fmt.Errorf("set SO_BINDTODEVICE: %w", err)
	}
	if err := unix.Bind(fd, sockaddr(at)); err != nil {
		return fmt.Errorf("bind %v: %w", at, err)
	}
	return nil
}

func listenTCP(at netip.AddrPort) (*os.File, error) {
	fd, err := socket(at, unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	if err := unix.Listen(fd, backlog); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("listen %v: %w", at, err)
	}
	return os.NewFile(uintptr(fd), "listener"), nil
}

func listenUDP(at netip.AddrPort) (*os.File, error) {
	fd, err := socket(at, unix.SOCK_DGRAM)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "udp"), nil
}

func anyAddr(six bool, port uint16) netip.AddrPort {
	if six {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), port)
	}
	return netip.AddrPortFrom(netip.IPv4Unspecified(), port)
}

func sockaddr(at netip.AddrPort) unix.Sockaddr {
	if at.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}
	}
	return &unix.SockaddrInet6{Addr: at.Addr().As16(), Port: int(at.Port())}
}
