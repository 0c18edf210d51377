// Package supervisor makes the connections of a sandbox that shares the host's network namespace, on a machine that
// forbids namespaces.
//
//	s, err := supervisor.New(listener, where, to) // listener: from seccomp.LoadSupervised, in the sandbox
//	defer s.Close()
//
// A filter makes socket(2), connect(2), bind(2) and listen(2) of the sandbox's processes wait, see seccomp_unotify(2). The
// package performs them in the caller's place:
//
//	socket    it makes the socket, keeps a copy, and gives the sandbox the other
//	connect   it reads the address, asks where, and connects the copy to a listener of its own
//	          ─▶ the accepted end and the name that where returned go to the process at the socket of to
//	bind      it binds the copy to an address of the sandbox's own in 127.0.0.0/8
//	listen    it makes the copy listen, and gives it up
//
// connect(2) to a port of the loopback where the sandbox itself listens connects the copy with that.
//
// A UDP socket is one end of a pair of unix sockets, and only its peer hears it: so a resolver asks for names. Both copies
// of a TCP socket are one socket: its options, and the epoll(7) sets that have it, stay as they are. It has a peer in this
// process before the sandbox's call returns, so no packet of the sandbox ever leaves the machine.
//
// # What the claims rest on
//
//   - The kernel never continues a call. A thread that changes the address, or exchanges the descriptor by dup2(2), while
//     the call waits, changes nothing: the address is read once, and what is connected is a socket that this package made
//     for this sandbox. The inode in /proc/TID/fd identifies it. All other sockets of the sandbox stay unconnected,
//     inherited ones too.
//   - What was read from a process is used only if the call still waits after the reading. Otherwise the thread id may
//     belong to another process.
//   - The accepted end is matched with the socket by the address of its peer. Connections of other processes of the
//     machine to the listener are closed.
//   - The kernel drops each segment to a server of the sandbox, or from one, that is not signed with a key of this process.
//     Other processes of the machine cannot connect to it, and its clients reach no server of the machine at its port.
//   - If this process ends, the calls fail with ENOSYS.
//
// The package decides nothing and reads no data of the connections. It needs no capability, and neither ptrace(2) nor
// pidfd_getfd(2), which Docker's default profile refuses. The calls must not be restarted by signals (Linux 5.19), or
// programs that receive many may be slow.
package supervisor

import (
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner/pid1/pid1api"
	"demesne/runner/seccomp"
)

// Where returns the name of the service at an address, or the error that connect(2) returns there.
type Where func(to netip.AddrPort, datagrams bool) (service string, e unix.Errno)

// Supervisor serves one sandbox.
type Supervisor struct {
	listener *os.File
	calls    seccomp.Listener
	where    Where
	to       func(service string) (socket int)
	meet     meetingPoint
	loopback loopback
	sockets  sockets
	done     chan struct{}
	closing  sync.Once
}

// New starts serving. It owns listener, but not the sockets that to returns: SOCK_SEQPACKET sockets that get a message for
// each connection, and that must remain open until Close. Its text is the service, and its descriptor the connection.
func New(listener *os.File, where Where, to func(service string) (socket int)) (*Supervisor, error) {
	// A second File, which the runtime polls.
	fd, err := unix.FcntlInt(listener.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	listener.Close()
	if err != nil {
		return nil, fmt.Errorf("supervise calls: %w", err)
	}
	s := &Supervisor{where: where, to: to, done: make(chan struct{}), sockets: sockets{byInode: map[uint64]socket{}}}
	err = unix.SetNonblock(fd, true)
	if err == nil {
		s.loopback, err = newLoopback()
	}
	if err == nil {
		s.meet, err = newMeetingPoint()
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("supervise calls: %w", err)
	}
	s.listener, s.calls = os.NewFile(uintptr(fd), "seccomp listener"), seccomp.NewListener(fd)
	go s.serve()
	return s, nil
}

// Close ends the service. Connections that were delivered stay. The listener is closed after the last answer:
// otherwise another file with its number could get that.
func (s *Supervisor) Close() {
	s.closing.Do(func() {
		s.listener.SetReadDeadline(time.Unix(1, 0))
		<-s.done
		s.sockets.close()
		s.meet.close()
	})
}

// serve answers calls until Close, or until the last process that could make one has ended.
func (s *Supervisor) serve() {
	defer close(s.done)
	defer s.listener.Close() // calls fail from now on
	raw, err := s.listener.SyscallConn()
	for err == nil {
		var c seccomp.Call
		var ok bool
		var failed error
		err = raw.Read(func(uintptr) bool {
			c, ok, failed = s.calls.Receive()
			return ok || failed != nil
		})
		if failed != nil {
			return
		}
		if ok {
			s.answer(c)
		}
	}
}

func (s *Supervisor) answer(c seccomp.Call) {
	switch c.Nr {
	case unix.SYS_SOCKET:
		s.makeSocket(c)
	case unix.SYS_CONNECT:
		if e, waits := s.connect(c); waits {
			s.calls.Answer(c, e)
		}
	case unix.SYS_BIND:
		if e, waits := s.bind(c); waits {
			s.calls.Answer(c, e)
		}
	case unix.SYS_LISTEN:
		if e, waits := s.listen(c); waits {
			s.calls.Answer(c, e)
		}
	default:
		s.calls.Answer(c, unix.ENOSYS)
	}
}

// makeSocket performs socket(2). The filter has checked family, type and protocol.
func (s *Supervisor) makeSocket(c seccomp.Call) {
	family, kind := int(int32(c.Args[0])), int(int32(c.Args[1]))
	own := socket{family: family}
	theirs, err := -1, error(unix.EAFNOSUPPORT)
	switch flags := kind & (unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK); {
	case family != unix.AF_INET && family != unix.AF_INET6:
	case kind == unix.SOCK_STREAM|flags:
		own.fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|flags, unix.IPPROTO_TCP)
		theirs = own.fd
	case kind == unix.SOCK_DGRAM|flags:
		own.datagrams = true
		var pair [2]int
		// Not of datagrams: those can be sent to any other unix socket.
		if pair, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|flags, 0); err == nil {
			own.fd, theirs = pair[0], pair[1]
			defer unix.Close(theirs)
		}
	}
	if err != nil {
		s.calls.Answer(c, errnoOf(err))
		return
	}
	inode, err := inodeOf(theirs)
	if err != nil {
		unix.Close(own.fd)
		s.calls.Answer(c, errnoOf(err))
		return
	}
	s.sockets.add(inode, own)
	if e := s.calls.AnswerFile(c, theirs, kind&unix.SOCK_CLOEXEC != 0); e != 0 {
		s.sockets.drop(inode)
		s.calls.Answer(c, e) // the sandbox has too many descriptors, or the caller was killed
	}
}

// connect performs connect(2). waits is false if the caller was killed meanwhile.
func (s *Supervisor) connect(c seccomp.Call) (e unix.Errno, waits bool) {
	if uint32(c.Args[2]) == 0 {
		return pid1api.Probed, true
	}
	n, e, waits := s.named(c)
	switch {
	case !waits || e != 0:
		return e, waits
	case !n.known: // a connected one, one of a pair, or one that the sandbox did not make
		return unix.EISCONN, true
	case n.family == unix.AF_UNSPEC:
		return 0, true
	case n.family != n.own.family:
		return unix.EAFNOSUPPORT, true
	}
	if e = s.reach(n.own, n.address); e == 0 || e == unix.EINPROGRESS {
		s.sockets.drop(n.inode)
	}
	return e, true
}

// named is the socket and the address that connect(2) or bind(2) names.
type named struct {
	inode   uint64
	own     socket
	known   bool // own is the socket's copy
	address netip.AddrPort
	family  int // of address
}

// named reads the socket and the address of a call, once. waits is false if the caller was killed meanwhile.
func (s *Supervisor) named(c seccomp.Call) (n named, e unix.Errno, waits bool) {
	var linkErr unix.Errno
	n.address, n.family, e = readAddress(c.TID, c.Args[1], int32(c.Args[2]))
	n.inode, linkErr = inodeAt(c.TID, int32(c.Args[0]))
	if e == 0 {
		e = linkErr
	}
	n.own, n.known = s.sockets.byInode[n.inode]
	return n, e, s.calls.Waits(c)
}

// reach connects a socket of the sandbox with the service at an address, or with the sandbox's own server.
func (s *Supervisor) reach(own socket, to netip.AddrPort) unix.Errno {
	service, e := s.where(to, own.datagrams)
	if e == 0 {
		return s.join(own, service)
	}
	if at, ok := s.loopback.server(to); ok && !own.datagrams {
		return errnoOf(s.loopback.dial(own, at))
	}
	return e
}

// bind performs bind(2). waits is false if the caller was killed meanwhile.
func (s *Supervisor) bind(c seccomp.Call) (e unix.Errno, waits bool) {
	n, e, waits := s.named(c)
	switch {
	case !waits || e != 0:
		return e, waits
	case !n.known:
		return unix.EACCES, true
	case n.family != n.own.family:
		return unix.EAFNOSUPPORT, true
	}
	err := s.loopback.bind(n.own, n.address)
	if err == unix.EADDRINUSE && s.sockets.dropBound(netip.AddrPortFrom(s.loopback.own(n.family), n.address.Port())) {
		err = s.loopback.bind(n.own, n.address)
	}
	return errnoOf(err), true
}

// listen performs listen(2). waits is false if the caller was killed meanwhile.
func (s *Supervisor) listen(c seccomp.Call) (e unix.Errno, waits bool) {
	inode, e := inodeAt(c.TID, int32(c.Args[0]))
	if !s.calls.Waits(c) {
		return 0, false
	}
	own, known := s.sockets.byInode[inode]
	switch {
	case e != 0:
		return e, true
	case !known && s.loopback.listens(inode): // its backlog stays
		return 0, true
	case !known:
		return unix.EACCES, true
	}
	if e = errnoOf(s.loopback.listen(inode, own, int(int32(c.Args[1])))); e == 0 {
		s.sockets.drop(inode) // a copy would keep the socket open
	}
	return e, true
}

// join connects a socket of the sandbox with the service.
func (s *Supervisor) join(own socket, service string) unix.Errno {
	theirs := own.fd
	if !own.datagrams {
		var err error
		if theirs, err = s.meet.rendezvous(own); err != nil {
			return errnoOf(err)
		}
		defer unix.Close(theirs)
	}
	// MSG_DONTWAIT: the sandbox's other calls are not answered while this one is.
	err := unix.Sendmsg(s.to(service), []byte(service), unix.UnixRights(theirs), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	if err != nil { // its peer is closed now, as if no service listened
		return unix.ECONNREFUSED
	}
	return 0
}
