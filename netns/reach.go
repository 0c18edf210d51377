package netns

import (
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// reachTime bounds each try of Verify. What arrives does so at once; a first packet that got lost
// is sent again after a second.
const reachTime = 10 * time.Second

// Verify tries from inside whether what a sandbox sends arrives: at the name server's
// socket, at the proxy's, and what is for any port of an address that stands for a name, at
// Named. When only that does not, NamedErr says so and Named is empty. It is for a gateway that
// nobody serves yet, and leaves nothing in its queues.
//
// It tries IPv4. IPv6 has the same rule and the same kind of socket, but for some milliseconds
// after an address was added the kernel may lose a packet, which is sent again after a second.
func (g *Gateway) Verify() error {
	var names error
	err := g.Sandbox.within(func() error {
		if err := arrives(g.DNS, DNSAddr(), unix.SOCK_DGRAM); err != nil {
			return fmt.Errorf("reach the name server: %w", err)
		}
		if err := arrives(g.Proxy, ProxyAddr(), unix.SOCK_STREAM); err != nil {
			return fmt.Errorf("reach the proxy: %w", err)
		}
		if len(g.Named) > 0 {
			names = arrives(g.Named[0], aName(), unix.SOCK_STREAM)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("verify gateway: %w", err)
	}
	if names != nil {
		g.NamedErr = fmt.Errorf("reach an address that stands for a name: %w", names)
		g.closeNamed()
	}
	return nil
}

// aName is an address of a pool that no name gets, with some port.
func aName() netip.AddrPort { return netip.AddrPortFrom(pool4.Addr(), 7) }

// arrives sends from the calling thread's namespace to an address and takes what comes at a
// socket, which has to be that. Nothing in it blocks but the wait: a connect that is interrupted by
// a signal is not begun again (signal(7)), and the Go runtime signals its own threads.
func arrives(at *os.File, to netip.AddrPort, kind int) error {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // leave no TIME_WAIT
	if err := unix.Connect(fd, sockaddr(to)); err != nil && err != unix.EINPROGRESS {
		return fmt.Errorf("connect to %v: %w", to, err)
	}
	if kind == unix.SOCK_DGRAM {
		if _, err := unix.Write(fd, []byte("?")); err != nil {
			return fmt.Errorf("send to %v: %w", to, err)
		}
	}
	return control(at, func(listener int) error {
		if err := arrival(listener, fd); err != nil {
			return fmt.Errorf("wait for what was sent to %v: %w", to, err)
		}
		return take(listener, to, kind)
	})
}

// arrival waits until something is at a socket, or what sent it was told that it will not arrive.
func arrival(listener, sender int) error {
	fds := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}, {Fd: int32(sender)}}
	for {
		n, err := unix.Poll(fds, int(reachTime.Milliseconds()))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return unix.ETIMEDOUT
		case fds[0].Revents != 0:
			return nil
		}
		code, err := unix.GetsockoptInt(sender, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil {
			err = unix.Errno(code)
		}
		return err
	}
}

// take takes what has arrived, and checks where to it was sent.
func take(fd int, to netip.AddrPort, kind int) error {
	if kind == unix.SOCK_DGRAM {
		_, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_DONTWAIT)
		return err
	}
	c, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	defer unix.Close(c)
	local, err := unix.Getsockname(c)
	if err == nil && !same(local, to) {
		err = fmt.Errorf("what was sent to %v arrived as for another", to)
	}
	return err
}

func same(a unix.Sockaddr, b netip.AddrPort) bool {
	in4, ok := a.(*unix.SockaddrInet4)
	return ok && netip.AddrPortFrom(netip.AddrFrom4(in4.Addr), uint16(in4.Port)) == b
}
