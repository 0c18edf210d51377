package supervisor

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds the time for a connection on the loopback, which the kernel makes at once.
const patience = 5 * time.Second

// meetingPoint is a listening socket on the loopback.
type meetingPoint struct {
	fd       int
	at       netip.AddrPort
	patience time.Duration // for one connection
}

func newMeetingPoint() (m meetingPoint, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP)
	if err != nil {
		return m, fmt.Errorf("socket: %w", err)
	}
	err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		err = unix.Listen(fd, 4096)
	}
	if err == nil {
		m.at, err = nameOf(unix.Getsockname(fd))
	}
	if err != nil {
		unix.Close(fd)
		return m, fmt.Errorf("listen on the loopback: %w", err)
	}
	m.fd, m.patience = fd, patience
	return m, nil
}

func (m *meetingPoint) close() { unix.Close(m.fd) }

// rendezvous connects a socket with the meeting point, and returns the accepted end.
func (m *meetingPoint) rendezvous(own socket) (theirs int, err error) {
	m.turnAway() // if other processes have filled the queue, connect would wait
	deadline := time.Now().Add(m.patience)
	err = connectWithin(own, m.at, m.patience)
	if err != nil && err != unix.EINPROGRESS {
		return -1, err
	}
	name, err := nameOf(unix.Getsockname(own.fd))
	if err != nil {
		return -1, err
	}
	for {
		fd, peer, err := m.accept()
		if err == unix.EAGAIN {
			err = m.wait(deadline)
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

// connectWithin connects a socket of the sandbox with an IPv4 address of this machine.
func connectWithin(own socket, at netip.AddrPort, patience time.Duration) error {
	if own.family == unix.AF_INET6 {
		// The sandbox cannot tell: a peer that is an IPv4 address is written as an IPv6 one.
		unix.SetsockoptInt(own.fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
	}
	shut := make(chan struct{})
	// Not by SO_SNDTIMEO or O_NONBLOCK, which the sandbox can change meanwhile.
	bound := time.AfterFunc(patience, func() {
		defer close(shut)
		unix.Shutdown(own.fd, unix.SHUT_RDWR) // makes connect return
	})
	err := unix.Connect(own.fd, sockaddr(own.family, at))
	if !bound.Stop() {
		<-shut
	}
	return err
}

// wait waits for a connection at the meeting point.
func (m *meetingPoint) wait(deadline time.Time) error {
	poll := []unix.PollFd{{Fd: int32(m.fd), Events: unix.POLLIN}}
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
func (m *meetingPoint) accept() (fd int, peer netip.AddrPort, err error) {
	for {
		fd, from, err := unix.Accept4(m.fd, unix.SOCK_CLOEXEC)
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
func (m *meetingPoint) turnAway() {
	for {
		fd, _, err := m.accept()
		if err != nil {
			return
		}
		unix.Close(fd)
	}
}
