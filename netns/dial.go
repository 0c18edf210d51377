package netns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// DialTCP connects to a server in the namespace, for example on its loopback. The caller can thus publish a port
// inside through a listener outside; the sandbox gains no egress from it.
//
// A server that does not accept can make it wait, so only the making of the socket takes a thread.
func (n *NS) DialTCP(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	var f *os.File
	err := n.within(func() (err error) { f, err = connecting(to); return err })
	if err != nil {
		return nil, fmt.Errorf("dial into sandbox: %w", err)
	}
	defer f.Close()
	if err := connected(ctx, f); err != nil {
		return nil, fmt.Errorf("dial %v in sandbox: %w", to, err)
	}
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("dial into sandbox: %w", err)
	}
	return c.(*net.TCPConn), nil
}

// Dup returns an NS for DialTCP, which outlives n and is closed separately.
func (n *NS) Dup() (*NS, error) {
	var fd int
	err := control(n.File, func(own int) (err error) {
		fd, err = unix.FcntlInt(uintptr(own), unix.F_DUPFD_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("duplicate namespace: %w", err)
	}
	return &NS{File: os.NewFile(uintptr(fd), "netns")}, nil
}

// connecting returns a socket of the calling thread's namespace that connects.
func connecting(to netip.AddrPort) (*os.File, error) {
	family := unix.AF_INET
	if to.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	if err := unix.Connect(fd, sockaddr(to)); err != nil && err != unix.EINPROGRESS {
		unix.Close(fd)
		return nil, fmt.Errorf("connect %v: %w", to, err)
	}
	return os.NewFile(uintptr(fd), "connection"), nil
}

// connected waits until f has connected.
func connected(ctx context.Context, f *os.File) error {
	stop := context.AfterFunc(ctx, func() { f.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		e, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && e != 0 {
			err = unix.Errno(e)
		}
		if failed = err; err != nil {
			return true
		}
		_, err = unix.Getpeername(int(fd))
		return err == nil
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	return failed
}
