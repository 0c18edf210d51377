package supervisor

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds the time for a connection on the loopback, which the kernel makes at once.
const patience = 5 * time.Second

// meetingPoint returns a listening socket on the loopback.
func meetingPoint() (fd int, at netip.AddrPort, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP)
	if err != nil {
		return -1, at, fmt.Errorf("socket: %w", err)
	}
	err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		err = unix.Listen(fd, 4096)
	}
	if err == nil {
		at, err = nameOf(unix.Getsockname(fd))
	}
	if err != nil {
		unix.Close(fd)
		return -1, at, fmt.Errorf("listen on the loopback: %w", err)
	}
	return fd, at, nil
}

// rendezvous connects a socket with the meeting point, and returns the accepted end.
func (s *Supervisor) rendezvous(own socket) (theirs int, err error) {
	s.turnAway() // if other processes have filled the queue, connect would wait
	to := unix.Sockaddr(&unix.SockaddrInet4{Port: int(s.meetAt.Port()), Addr: s.meetAt.Addr().As4()})
	if own.family == unix.AF_INET6 {
		// The sandbox cannot tell: a peer that is an IPv4 address is written as an IPv6 one.
		unix.SetsockoptInt(own.fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
		to = &unix.SockaddrInet6{Port: int(s.meetAt.Port()), Addr: netip.AddrFrom16(s.meetAt.Addr().As16()).As16()}
	}
	deadline, shut := time.Now().Add(s.patience), make(chan struct{})
	// Not by SO_SNDTIMEO or O_NONBLOCK, which the sandbox can change meanwhile.
	bound := time.AfterFunc(s.patience, func() {
		defer close(shut)
		unix.Shutdown(own.fd, unix.SHUT_RDWR) // makes connect return
	})
	err = unix.Connect(own.fd, to)
	if !bound.Stop() {
		<-shut
	}
	if err != nil && err != unix.EINPROGRESS {
		return -1, err
	}
	name, err := nameOf(unix.Getsockname(own.fd))
	if err != nil {
		return -1, err
	}
	for {
		fd, peer, err := s.accept()
		if err == unix.EAGAIN {
			err = s.wait(deadline)
			if err == nil {
				continue
			}
		}
		if err != nil {
			return -1, err
		}
		if peer == name {
			return fd, nil
		}
		unix.Close(fd)
	}
}

// wait waits for a connection at the meeting point.
func (s *Supervisor) wait(deadline time.Time) error {
	poll := []unix.PollFd{{Fd: int32(s.meet), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, max(0, int(time.Until(deadline).Milliseconds())))
	if err == unix.EINTR {
		return nil
	}
	if err == nil && n == 0 {
		return unix.ETIMEDOUT
	}
	return err
}

// accept returns the next connection, and the address of its peer.
func (s *Supervisor) accept() (fd int, peer netip.AddrPort, err error) {
	for {
		fd, from, err := unix.Accept4(s.meet, unix.SOCK_CLOEXEC)
		if err == unix.EINTR || err == unix.ECONNABORTED {
			continue
		}
		if err != nil {
			return -1, peer, err
		}
		peer, err = nameOf(from, nil)
		return fd, peer, err
	}
}

// turnAway closes the connections that other processes of the machine have made.
func (s *Supervisor) turnAway() {
	for {
		fd, _, err := s.accept()
		if err != nil {
			return
		}
		unix.Close(fd)
	}
}

// nameOf returns an address without the form that an IPv4 one has in IPv6.
func nameOf(a unix.Sockaddr, err error) (netip.AddrPort, error) {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)), err
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port)), err
	}
	if err == nil {
		err = unix.EAFNOSUPPORT
	}
	return netip.AddrPort{}, err
}
