// Package peeruser finds the user at the other end of a connection within this machine.
//
//	uid, err := peeruser.Of(conn)
//
// For TCP it asks the kernel by sock_diag(7), which names the user of each socket; for a unix socket SO_PEERCRED says it. It
// decides nothing.
package peeruser

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Sizes and offsets of sock_diag(7)'s messages for one TCP socket.
const (
	diagRequest  = unix.SizeofNlMsghdr + 56 // struct inet_diag_req_v2
	diagUser     = unix.SizeofNlMsghdr + 64 // idiag_uid in struct inet_diag_msg
	diagState    = unix.SizeofNlMsghdr + 1  // idiag_state
	established  = 1                        // the state; root is said to own a socket that is being closed
	diagByFamily = 20                       // SOCK_DIAG_BY_FAMILY
)

// ErrNone means that the other end of a connection is closed, in part at least. The kernel then names no user of it.
var ErrNone = errors.New("no such socket is connected")

// Of returns the user whose process has the other end of a connection within this machine.
func Of(c net.Conn) (uid int, err error) {
	if outer, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = outer.NetConn()
	}
	if c, ok := c.(*net.UnixConn); ok {
		return unixPeer(c)
	}
	ours, okA := c.LocalAddr().(*net.TCPAddr)
	theirs, okB := c.RemoteAddr().(*net.TCPAddr)
	if !okA || !okB {
		return 0, errors.New("not a TCP connection")
	}
	uid, state, err := socketUser(theirs.AddrPort(), ours.AddrPort())
	if err == nil && state == established {
		return uid, nil
	}
	if _, state, _ := socketUser(ours.AddrPort(), theirs.AddrPort()); err == nil && state == 0 {
		return 0, errors.New("sock_diag: the kernel lacks it") // our end does exist
	}
	return 0, cmp.Or(err, ErrNone)
}

// unixPeer does that for a unix socket. It fails for a process of this user in another user namespace, such as a sandbox's.
// Root is root of this namespace, whose processes need no socket to control this one.
func unixPeer(c *net.UnixConn) (uid int, err error) {
	rc, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	if cerr := rc.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cerr != nil || err != nil {
		return 0, fmt.Errorf("find the user of a client: %w", errors.Join(cerr, err))
	}
	if uid = int(cred.Uid); uid != os.Getuid() {
		return uid, nil
	}
	mine, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		return 0, err
	}
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", cred.Pid))
	if err == nil && theirs != mine {
		err = errors.New("is another one")
	}
	if err != nil {
		return 0, fmt.Errorf("check the user namespace of process %d: %w", cred.Pid, err)
	}
	return uid, nil
}

// socketUser returns the user and the state of the socket that is bound to from and connected to to. State 0: no socket.
func socketUser(from, to netip.AddrPort) (uid int, state byte, err error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, 0, fmt.Errorf("open sock_diag: %w", err)
	}
	defer unix.Close(s)
	unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1})
	if err := unix.Sendto(s, diagQuery(from, to), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, 0, fmt.Errorf("ask sock_diag: %w", err)
	}
	buf := make([]byte, 4096)
	n, _, err := unix.Recvfrom(s, buf, 0)
	if err != nil {
		return 0, 0, fmt.Errorf("read sock_diag: %w", err)
	}
	if n < diagUser+4 || binary.NativeEndian.Uint16(buf[4:]) != diagByFamily {
		return 0, 0, nil
	}
	return int(binary.NativeEndian.Uint32(buf[diagUser:])), buf[diagState], nil
}

// diagQuery returns the message that asks for one socket.
func diagQuery(from, to netip.AddrPort) []byte {
	q := make([]byte, diagRequest)
	native := binary.NativeEndian
	native.PutUint32(q[0:], diagRequest)
	native.PutUint16(q[4:], diagByFamily)
	native.PutUint16(q[6:], unix.NLM_F_REQUEST)
	r := q[unix.SizeofNlMsghdr:]
	r[0], r[1] = unix.AF_INET6, unix.IPPROTO_TCP
	if from.Addr().Unmap().Is4() {
		r[0] = unix.AF_INET
	}
	native.PutUint32(r[4:], ^uint32(0)) // any state
	binary.BigEndian.PutUint16(r[8:], from.Port())
	binary.BigEndian.PutUint16(r[10:], to.Port())
	copy(r[12:28], from.Addr().Unmap().AsSlice())
	copy(r[28:44], to.Addr().Unmap().AsSlice())
	native.PutUint64(r[48:], ^uint64(0)) // any cookie
	return q
}
