// Package arrivals passes connections between processes: each is a message on a SOCK_SEQPACKET socket, with the connection
// as its descriptor and the name of a service as its text. demesne-runner sends them, where a sandbox has no network
// namespace and therefore no listening socket in it. It trusts the sender, and reads no data of the connections.
package arrivals

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Next waits for the next connection on a nonblocking socket, and returns it with the name of its service. c is nil if the
// message had none. The error is [net.ErrClosed] when the sender has closed its end.
func Next(socket syscall.RawConn) (service string, c net.Conn, err error) {
	var text [128]byte
	oob := make([]byte, unix.CmsgSpace(4))
	var n, oobn int
	var inner error
	err = socket.Read(func(fd uintptr) bool {
		n, oobn, _, _, inner = unix.Recvmsg(int(fd), text[:], oob, unix.MSG_CMSG_CLOEXEC)
		return inner != unix.EAGAIN && inner != unix.EINTR
	})
	if err = errors.Join(err, inner); err != nil {
		return "", nil, err
	}
	if n == 0 {
		return "", nil, net.ErrClosed
	}
	return string(text[:n]), connection(oob[:oobn]), nil
}

// connection returns the connection in a control message, or nil.
func connection(oob []byte) net.Conn {
	cmsgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(cmsgs) != 1 {
		return nil
	}
	fds, err := unix.ParseUnixRights(&cmsgs[0])
	if err != nil || len(fds) != 1 {
		return nil
	}
	f := os.NewFile(uintptr(fds[0]), "arrival")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil
	}
	return c
}

// Listener returns the listener of a file: a listening socket, or one that brings connections as [Next] reads them. It
// takes a copy of the file.
func Listener(f *os.File, addr net.Addr) (net.Listener, error) {
	listens, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return nil, os.NewSyscallError("getsockopt", err)
	}
	if listens != 0 {
		return net.FileListener(f)
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	l := &listener{file: os.NewFile(uintptr(fd), "arrivals"), addr: addr}
	if l.raw, err = l.file.SyscallConn(); err != nil {
		l.file.Close()
		return nil, err
	}
	return l, nil
}

type listener struct {
	file   *os.File
	raw    syscall.RawConn
	addr   net.Addr
	closed atomic.Bool
}

// Accept returns the next connection.
func (l *listener) Accept() (net.Conn, error) {
	for {
		_, c, err := Next(l.raw)
		if l.closed.Load() {
			err = net.ErrClosed
		}
		if err != nil {
			return nil, &net.OpError{Op: "accept", Net: l.addr.Network(), Addr: l.addr, Err: err}
		}
		if c != nil {
			return c, nil
		}
	}
}

// Close ends Accept. Connections that wait are closed.
func (l *listener) Close() error {
	l.closed.Store(true)
	return l.file.Close()
}

// Addr returns the address that the sandbox connects to.
func (l *listener) Addr() net.Addr { return l.addr }
