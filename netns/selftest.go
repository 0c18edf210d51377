package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// reachTime bounds each attempt of Verify, and reach6Time those over IPv6. On an idle machine a packet arrives at
// once.
const (
	reachTime  = 10 * time.Second
	reach6Time = time.Second
	again6Time = 5 * time.Millisecond // delay before another packet is sent, as the first one may be lost; doubled each time
)

// Verify tests from inside whether packets of a sandbox reach the name server's socket and the proxy's. It also
// tests whether connections to any port of an address that stands for a name reach Named, over IPv4 and IPv6. If
// only connections to names fail, Verify sets NamedErr and empties Named. If only IPv6 fails, it sets IPv6Err and
// closes the IPv6 socket of Named. Call it before the gateway is served; it leaves nothing in the gateway's queues.
func (g *Gateway) Verify() error {
	var names, six error
	err := g.Sandbox.within(func() error {
		if err := arrives(g.DNS, DNSAddr(), unix.SOCK_DGRAM, reachTime); err != nil {
			return fmt.Errorf("reach the name server: %w", err)
		}
		if err := arrives(g.Proxy, ProxyAddr(), unix.SOCK_STREAM, reachTime); err != nil {
			return fmt.Errorf("reach the proxy: %w", err)
		}
		if len(g.Named) > 0 {
			names = arrives(g.Named[0], aName(pool4), unix.SOCK_STREAM, reachTime)
		}
		if g.IPv6Err == nil {
			six = g.reaches6()
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("verify gateway: %w", err)
	}
	if names != nil {
		g.NamedErr = fmt.Errorf("reach an address assigned to a name: %w", names)
		g.closeNamed()
	}
	if six != nil {
		g.IPv6Err = fmt.Errorf("reach an IPv6 address assigned to a name: %w", six)
		g.closeNamed6()
	}
	return nil
}

// aName returns an address of a pool that no name gets, with an arbitrary port.
func aName(pool netip.Prefix) netip.AddrPort { return netip.AddrPortFrom(pool.Addr(), 7) }

// reaches6 tests IPv6. If Named has no IPv6 listener because the kernel lacks the tproxy rule, a refusal by the
// gateway proves that packets arrive there.
func (g *Gateway) reaches6() error {
	to := aName(pool6)
	for wait := again6Time; ; wait *= 2 {
		var err error
		if len(g.Named) == 2 {
			err = errors.Join(arrives(g.Named[1], to, unix.SOCK_STREAM, wait), drain(g.Named[1]))
		} else {
			err = refuses(to, wait)
		}
		if !errors.Is(err, unix.ETIMEDOUT) || wait > reach6Time {
			return err
		}
	}
}

// drain accepts and closes connections that arrived at a listener after the deadline.
func drain(at *os.File) error {
	return control(at, func(fd int) error {
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			if err == unix.EINTR {
				continue
			}
			if err != nil || n == 0 {
				return err
			}
			c, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
			if err != nil {
				return err
			}
			unix.Close(c)
		}
	})
}

// arrives sends from the calling thread's namespace to an address, and takes the packet or connection that comes at
// a socket, which must match. Only the wait blocks: a connect that a signal interrupts is not restarted
// (signal(7)), and the Go runtime signals its own threads.
func arrives(at *os.File, to netip.AddrPort, kind int, patience time.Duration) error {
	fd, err := send(to, kind)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return control(at, func(listener int) error {
		if err := arrival(listener, fd, patience); err != nil {
			return fmt.Errorf("wait for data sent to %v: %w", to, err)
		}
		return take(listener, to, kind)
	})
}

// refuses connects to an address without a listener, and expects ECONNREFUSED.
func refuses(to netip.AddrPort, patience time.Duration) error {
	fd, err := send(to, unix.SOCK_STREAM)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := arrival(-1, fd, patience); !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("wait for the refusal of a connection to %v: %w", to, err)
	}
	return nil
}

// send connects a new socket, with SO_LINGER set so that it leaves no TIME_WAIT.
func send(to netip.AddrPort, kind int) (fd int, err error) {
	family := unix.AF_INET
	if to.Addr().Is6() {
		family = unix.AF_INET6
	}
	if fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	if err = unix.Connect(fd, sockaddr(to)); err != nil && err != unix.EINPROGRESS {
		err = fmt.Errorf("connect to %v: %w", to, err)
	} else if err = nil; kind == unix.SOCK_DGRAM {
		if _, err = unix.Write(fd, []byte("?")); err != nil {
			err = fmt.Errorf("send to %v: %w", to, err)
		}
	}
	if err != nil {
		unix.Close(fd)
	}
	return fd, err
}

// arrival waits until a packet or connection is at the listener, or the sender gets an error. A listener of -1 is
// ignored.
func arrival(listener, sender int, patience time.Duration) error {
	fds := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}, {Fd: int32(sender)}}
	for {
		n, err := unix.Poll(fds, int(patience.Milliseconds()))
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

// take takes one packet or connection, and checks the destination of a connection.
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
	if err == nil && addrPort(local) != to {
		err = fmt.Errorf("data sent to %v arrived with another destination", to)
	}
	return err
}

func addrPort(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}
