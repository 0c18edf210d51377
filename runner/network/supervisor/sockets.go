package supervisor

import (
	"encoding/binary"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxSockets bounds the sockets of a sandbox that are not connected. Programs connect a socket as soon as they have it.
const maxSockets = 256

// socket is this process's copy of a socket that the sandbox has not connected, or the peer of one for datagrams.
type socket struct {
	fd, family int
	datagrams  bool
	serial     uint64 // the later it was made, the higher
}

// sockets are the sockets that a sandbox may connect. Only one goroutine uses them.
type sockets struct {
	byInode map[uint64]socket
	made    uint64
}

// add makes room by giving up the oldest socket, which the sandbox has most likely closed: the kernel does not tell. If it is
// still open, the sandbox can no longer connect it.
func (s *sockets) add(inode uint64, own socket) {
	s.drop(inode) // of a closed socket, whose number the kernel has reused
	if len(s.byInode) >= maxSockets {
		s.drop(s.oldest())
	}
	s.made++
	own.serial = s.made
	s.byInode[inode] = own
}

func (s *sockets) oldest() (inode uint64) {
	first := s.made + 1
	for i, own := range s.byInode {
		if own.serial < first {
			inode, first = i, own.serial
		}
	}
	return inode
}

// drop closes this process's copy of a socket.
func (s *sockets) drop(inode uint64) {
	if own, ok := s.byInode[inode]; ok {
		unix.Close(own.fd)
		delete(s.byInode, inode)
	}
}

// dropBound closes the copies of sockets that are bound to an address. Then the address is free if the sandbox has closed
// them: a program that looks for a free port closes its socket and binds another.
func (s *sockets) dropBound(at netip.AddrPort) (dropped bool) {
	for inode, own := range s.byInode {
		if name, err := nameOf(unix.Getsockname(own.fd)); err == nil && name == at {
			s.drop(inode)
			dropped = true
		}
	}
	return dropped
}

func (s *sockets) close() {
	for inode := range s.byInode {
		s.drop(inode)
	}
}

func inodeOf(fd int) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	return st.Ino, nil
}

// inodeAt returns the inode of the socket at a descriptor of a thread.
func inodeAt(tid int, fd int32) (uint64, unix.Errno) {
	if fd < 0 {
		return 0, unix.EBADF
	}
	link, err := os.Readlink("/proc/" + strconv.Itoa(tid) + "/fd/" + strconv.Itoa(int(fd)))
	switch {
	case os.IsNotExist(err):
		return 0, unix.EBADF
	case err != nil: // the process forbids to look at it, see PR_SET_DUMPABLE
		return 0, unix.EPERM
	}
	number, isSocket := strings.CutPrefix(link, "socket:[")
	inode, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 64)
	if !isSocket || err != nil {
		return 0, unix.ENOTSOCK
	}
	return inode, 0
}

// readAddress reads the socket address at a pointer of a thread, once.
func readAddress(tid int, at uint64, length int32) (_ netip.AddrPort, family int, e unix.Errno) {
	if length < 2 || length > unix.SizeofSockaddrAny {
		return netip.AddrPort{}, 0, unix.EINVAL
	}
	var buf [unix.SizeofSockaddrInet6]byte
	want := buf[:min(int(length), len(buf))]
	local := []unix.Iovec{{Base: &want[0]}}
	local[0].SetLen(len(want))
	remote := []unix.RemoteIovec{{Base: uintptr(at), Len: len(want)}}
	n, err := unix.ProcessVMReadv(tid, local, remote, 0)
	if err != nil {
		return netip.AddrPort{}, 0, errnoOf(err)
	}
	return parseAddress(want[:n], int(length))
}

// parseAddress returns the address in a struct sockaddr, as connect(2) understands it. An IPv4 address
// in an IPv6 one is unmapped. It is pure.
func parseAddress(b []byte, length int) (_ netip.AddrPort, family int, e unix.Errno) {
	if len(b) < min(length, unix.SizeofSockaddrInet6) {
		return netip.AddrPort{}, 0, unix.EFAULT
	}
	family = int(binary.NativeEndian.Uint16(b))
	var addr netip.Addr
	switch {
	case family == unix.AF_UNSPEC:
		return netip.AddrPort{}, family, 0
	case family == unix.AF_INET && len(b) >= unix.SizeofSockaddrInet4:
		addr = netip.AddrFrom4([4]byte(b[4:8]))
	case family == unix.AF_INET6 && len(b) >= unix.SizeofSockaddrInet6-4: // without a scope, as in RFC 2133
		addr = netip.AddrFrom16([16]byte(b[8:24])).Unmap()
	case family == unix.AF_INET || family == unix.AF_INET6:
		return netip.AddrPort{}, family, unix.EINVAL
	default:
		return netip.AddrPort{}, family, unix.EAFNOSUPPORT
	}
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(b[2:])), family, 0
}

func errnoOf(err error) unix.Errno {
	if err == nil {
		return 0
	}
	if e, ok := err.(unix.Errno); ok {
		return e
	}
	return unix.EIO
}

// sockaddr returns an address for a socket of a family.
func sockaddr(family int, a netip.AddrPort) unix.Sockaddr {
	if family == unix.AF_INET6 {
		return &unix.SockaddrInet6{Port: int(a.Port()), Addr: netip.AddrFrom16(a.Addr().As16()).As16()}
	}
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
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
