package seccomp

import (
	"golang.org/x/sys/unix"

	"demesne/runner/pid1/pid1api"
)

const (
	setIDBits = unix.S_ISUID | unix.S_ISGID

	// cloneNamespaces are the namespace flags of clone(2). CLONE_NEWTIME overlaps the exit signal there, and
	// only unshare(2) and clone3(2) accept it.
	cloneNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

	// tmpfileBit is O_TMPFILE without O_DIRECTORY, which O_TMPFILE includes and which differs between
	// architectures.
	tmpfileBit = unix.O_TMPFILE &^ unix.O_DIRECTORY

	// Not in x/sys: PER_LINUX32, ADDR_NO_RANDOMIZE.
	perLinux32      = 0x8
	addrNoRandomize = 0x40000

	btrfsSnapshot   = 0x50009401 // BTRFS_IOC_SNAP_CREATE
	btrfsSnapshotV2 = 0x50009417

	fsSetFlags = 0x40086602 // FS_IOC_SETFLAGS
	fsSetXattr = 0x401c5820 // FS_IOC_FSSETXATTR

	sockTypeMask = 0xf // SOCK_TYPE_MASK; the other bits are SOCK_CLOEXEC and SOCK_NONBLOCK
)

// rules returns the whole list for o.
func rules(o pid1api.SeccompOptions) []rule {
	r := make([]rule, 0, 96)
	if o.NoSUID {
		r = append(r, noSUID()...)
	}
	if o.FakeRoot {
		r = append(r, fakeRoot()...)
	}
	r = append(r, arguments()...)
	switch {
	case o.Supervised:
		r = append(r, supervised()...)
	case o.NoSocket:
		r = append(r, pairs()...)
	default:
		r = append(r, sockets()...)
	}
	if !o.Nesting {
		r = append(r, namespaces()...)
	}
	return append(r, kernelParts()...)
}

// namespaces refuses calls that create or enter namespaces, and mounts. A user namespace exposes much of the
// kernel to the process that creates it (P3, F16).
func namespaces() []rule {
	return []rule{
		{do: errno(unix.EPERM), when: []cond{has(0, cloneNamespaces)}, calls: []uint32{unix.SYS_CLONE}},
		{do: errno(unix.EPERM), when: []cond{has(0, cloneNamespaces|unix.CLONE_NEWTIME)}, calls: []uint32{unix.SYS_UNSHARE}},
		// Its flags are behind a pointer; C libraries fall back to clone.
		{do: errno(unix.ENOSYS), calls: []uint32{unix.SYS_CLONE3}},
		{do: errno(unix.EPERM), calls: []uint32{
			unix.SYS_SETNS,
			unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
			unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
			unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR, unix.SYS_MOUNT_SETATTR,
		}},
	}
}

// kernelParts refuses calls completely, with and without nesting.
func kernelParts() []rule {
	return []rule{
		// io_uring is a second way to most system calls, around this filter (P1). After ENOSYS event
		// loops use epoll.
		{do: errno(unix.ENOSYS), calls: []uint32{
			unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
		}},
		// The system call for inode flags, behind a pointer; callers fall back to the ioctl.
		{do: errno(unix.ENOSYS), calls: []uint32{unix.SYS_FILE_SETATTR}},
		// Keyrings are not namespaced (P5). After ENOSYS nested sandbox tools work without their own session
		// keyring.
		{do: errno(unix.ENOSYS), calls: []uint32{unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY}},
		{do: errno(unix.EPERM), calls: append([]uint32{
			unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, // large attack surface, common in exploits (P13)
			unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_REBOOT,
			unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
			unix.SYS_OPEN_BY_HANDLE_AT, // opens a file by inode number, independent of mounts ("shocker")
			unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_SWAPON, unix.SYS_SWAPOFF,
			unix.SYS_ACCT, unix.SYS_SYSLOG, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME,
			unix.SYS_NFSSERVCTL, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_FANOTIFY_INIT, unix.SYS_VHANGUP,
		}, archDenied...)},
	}
}

// arguments lists calls that are harmless only with some arguments.
func arguments() []rule {
	deny := func(request uint32) rule {
		return rule{do: errno(unix.EPERM), when: []cond{is(1, all, request)}, calls: []uint32{unix.SYS_IOCTL}}
	}
	r := []rule{
		deny(unix.TIOCSTI), // inserts input into the terminal
		deny(tiocLinux),    // pastes into a virtual console
		deny(unix.TIOCSETD),
		// Before Linux 6.7 (or a backport of its fix) any file of a btrfs is accepted as the source. Its whole
		// subvolume, such as /home, then appears below a writable directory.
		deny(btrfsSnapshot), deny(btrfsSnapshotV2),
		// Inode flags would remain on the files outside the sandbox (F22).
		deny(fsSetFlags), deny(fsSetXattr),
	}
	for _, request := range loadsModule {
		r = append(r, deny(request))
	}
	// PID 1's limit for core dumps remains, see package pid1. A request to change it returns success and does
	// nothing.
	r = append(r, rule{do: errno(0), when: []cond{is(0, all, unix.RLIMIT_CORE)}, calls: []uint32{unix.SYS_SETRLIMIT}})
	for _, given := range notNil(2) {
		r = append(r, rule{do: errno(0), when: []cond{is(1, all, unix.RLIMIT_CORE), given}, calls: []uint32{unix.SYS_PRLIMIT64}})
	}
	// PER_LINUX, PER_LINUX32, the value of gdb and setarch -R, and the query. Other values have turned off ASLR
	// bits and mmap_min_addr for set-user-ID programs.
	for _, p := range []uint32{0, perLinux32, addrNoRandomize, all} {
		r = append(r, rule{do: allow, when: []cond{is(0, all, p)}, calls: []uint32{unix.SYS_PERSONALITY}})
	}
	return append(r, rule{do: errno(unix.EPERM), calls: []uint32{unix.SYS_PERSONALITY}})
}

// loadsModule are requests for bridges and VLANs. On any socket, for any user, they make the kernel run
// modprobe as root (sock_ioctl in net/socket.c).
var loadsModule = []uint32{unix.SIOCGIFBR, unix.SIOCSIFBR, unix.SIOCBRADDBR, unix.SIOCBRDELBR, unix.SIOCGIFVLAN, unix.SIOCSIFVLAN}

// inetSockets are the allowed types and protocols of AF_INET and AF_INET6. For other protocols (SCTP, L2TP, SMC
// …) and for invalid pairs the kernel runs modprobe as root. For DCCP the type alone is enough.
var inetSockets = []struct {
	kind      uint32
	protocols []uint32
}{
	{unix.SOCK_STREAM, []uint32{0, unix.IPPROTO_TCP, unix.IPPROTO_MPTCP}},
	{unix.SOCK_DGRAM, []uint32{0, unix.IPPROTO_UDP, unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6}},
}

// sockets allows AF_UNIX, AF_INET, AF_INET6 and NETLINK_ROUTE of AF_NETLINK. Other families have led to escapes
// (N30, F20).
func sockets() []rule {
	socket := []uint32{unix.SYS_SOCKET}
	r := []rule{
		{do: allow, when: []cond{is(0, all, unix.AF_UNIX)}, calls: []uint32{unix.SYS_SOCKETPAIR}},
		{do: errno(unix.EAFNOSUPPORT), calls: []uint32{unix.SYS_SOCKETPAIR}},
		{do: allow, when: []cond{is(0, all, unix.AF_UNIX)}, calls: socket},
		{do: allow, when: []cond{is(0, all, unix.AF_NETLINK), is(2, all, unix.NETLINK_ROUTE)}, calls: socket},
		// The error of a kernel without the protocol: programs such as useradd then continue without the audit
		// system.
		{do: errno(unix.EAFNOSUPPORT), when: []cond{is(0, all, unix.AF_NETLINK)}, calls: socket},
		// Also requires a capability.
		{do: errno(unix.EPERM), when: []cond{is(1, sockTypeMask, unix.SOCK_RAW)}, calls: socket},
		{do: errno(unix.EPERM), when: []cond{is(1, sockTypeMask, unix.SOCK_PACKET)}, calls: socket},
	}
	for _, family := range inetFamilies {
		for _, s := range inetSockets {
			for _, p := range s.protocols {
				r = append(r, rule{do: allow, when: []cond{is(0, all, family), is(1, sockTypeMask, s.kind), is(2, all, p)}, calls: socket})
			}
		}
		r = append(r, rule{do: errno(unix.EPROTONOSUPPORT), when: []cond{is(0, all, family)}, calls: socket})
	}
	return append(r, rule{do: errno(unix.EAFNOSUPPORT), calls: socket})
}

var inetFamilies = []uint32{unix.AF_INET, unix.AF_INET6}

// pairs allows only pairs of connected sockets. Without a mount namespace a process can connect to every socket with a
// path, in spite of Landlock before its ABI 9. One of them is the user's session bus (F1). A datagram socket of a pair
// can send to every such socket too.
func pairs() []rule {
	pair := []uint32{unix.SYS_SOCKETPAIR}
	return []rule{
		{do: allow, when: []cond{is(0, all, unix.AF_UNIX), is(1, sockTypeMask, unix.SOCK_STREAM)}, calls: pair},
		{do: allow, when: []cond{is(0, all, unix.AF_UNIX), is(1, sockTypeMask, unix.SOCK_SEQPACKET)}, calls: pair},
		{do: errno(unix.EAFNOSUPPORT), calls: pair},
		{do: errno(unix.EAFNOSUPPORT), calls: []uint32{unix.SYS_SOCKET}},
	}
}

// supervised makes the supervisor of the sandbox perform the calls that make, bind and connect TCP and UDP sockets, in the
// network namespace of the host. No other call connects or binds one: TCP Fast Open is refused, and io_uring always. No socket
// option sends a packet to another address than the one that the supervisor connects the socket to.
func supervised() []rule {
	var r []rule
	for _, family := range inetFamilies {
		for _, s := range inetSockets {
			for _, p := range s.protocols[:2] { // 0, and TCP or UDP
				r = append(r, rule{do: notify, when: []cond{is(0, all, family), is(1, sockTypeMask, s.kind), is(2, all, p)}, calls: []uint32{unix.SYS_SOCKET}})
			}
		}
		r = append(r, rule{do: errno(unix.EPROTONOSUPPORT), when: []cond{is(0, all, family)}, calls: []uint32{unix.SYS_SOCKET}})
	}
	r = append(r, rule{do: notify, calls: []uint32{unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN}})
	for _, send := range []at{{unix.SYS_SENDTO, 3}, {unix.SYS_SENDMSG, 2}, {unix.SYS_SENDMMSG, 3}} {
		r = append(r, rule{do: errno(unix.EOPNOTSUPP), when: []cond{has(send.arg, unix.MSG_FASTOPEN)}, calls: []uint32{send.call}})
	}
	for _, given := range notNil(4) { // a datagram without a connection
		r = append(r, rule{do: errno(unix.ENETUNREACH), when: []cond{given}, calls: []uint32{unix.SYS_SENDTO}})
	}
	for _, o := range socketOptions {
		for _, name := range o.names {
			r = append(r, rule{do: o.do, when: []cond{is(1, all, o.level), is(2, all, name)}, calls: []uint32{unix.SYS_SETSOCKOPT}})
		}
		r = append(r, rule{do: o.others, when: []cond{is(1, all, o.level)}, calls: []uint32{unix.SYS_SETSOCKOPT}})
	}
	r = append(r, rule{do: errno(unix.ENOPROTOOPT), calls: []uint32{unix.SYS_SETSOCKOPT}})
	return append(r, pairs()...)
}

const tcpAOAddKey = 38 // TCP_AO_ADD_KEY, not in x/sys

// socketOptions lists options by level. A source route (IP_OPTIONS, IPV6_RTHDR) would send the first packet of a connection
// to any address, and a device (SO_BINDTODEVICE) to its link. A protocol above TCP (TCP_ULP) replaces the operations of
// the socket. With TCP Fast Open, connect(2) connects later. A filter or a signature (SO_ATTACH_FILTER, TCP_MD5SIG) can
// prevent a connection, for which the supervisor would wait. A signature would also replace the supervisor's, which keeps
// other processes from the sandbox's servers. Options of IP have no effect, but resolvers give up without them.
var socketOptions = []struct {
	level      uint32
	names      []uint32
	do, others action
}{
	{unix.SOL_SOCKET, []uint32{unix.SO_BINDTODEVICE, unix.SO_BINDTOIFINDEX, unix.SO_MARK, unix.SO_ATTACH_FILTER, unix.SO_ATTACH_BPF}, errno(unix.EPERM), allow},
	{unix.IPPROTO_TCP, []uint32{unix.TCP_ULP, unix.TCP_FASTOPEN, unix.TCP_FASTOPEN_CONNECT, unix.TCP_FASTOPEN_NO_COOKIE, unix.TCP_REPAIR, unix.TCP_MD5SIG, unix.TCP_MD5SIG_EXT, tcpAOAddKey}, errno(unix.ENOPROTOOPT), allow},
	{unix.IPPROTO_IP, []uint32{unix.IP_TOS, unix.IP_TTL, unix.IP_MTU_DISCOVER, unix.IP_RECVERR, unix.IP_BIND_ADDRESS_NO_PORT}, errno(0), errno(unix.ENOPROTOOPT)},
	{unix.IPPROTO_IPV6, []uint32{unix.IPV6_V6ONLY, unix.IPV6_TCLASS, unix.IPV6_UNICAST_HOPS, unix.IPV6_MTU_DISCOVER, unix.IPV6_RECVERR}, errno(0), errno(unix.ENOPROTOOPT)},
}

// at is a call and the position of its relevant argument.
type at struct {
	call uint32
	arg  int
}

// noSUID prevents set-user-ID and set-group-ID bits on files that the host will see.
func noSUID() []rule {
	refuse := func(call uint32, when ...cond) rule {
		return rule{do: errno(unix.EPERM), when: when, calls: []uint32{call}}
	}
	var r []rule
	// The mode argument of open is valid only if the call creates a file.
	for _, o := range append([]at{{unix.SYS_OPENAT, 2}}, archOpens...) {
		r = append(r, refuse(o.call, has(o.arg, unix.O_CREAT|tmpfileBit), has(o.arg+1, setIDBits)))
	}
	modes := []at{
		{unix.SYS_FCHMOD, 1}, {unix.SYS_FCHMODAT, 2}, {unix.SYS_FCHMODAT2, 2},
		{unix.SYS_MKDIRAT, 2}, {unix.SYS_MKNODAT, 2},
	}
	for _, m := range append(modes, archModes...) {
		r = append(r, refuse(m.call, has(m.arg, setIDBits)))
	}
	// Flags and mode are behind a pointer; callers fall back to openat.
	return append(r, rule{do: errno(unix.ENOSYS), calls: []uint32{unix.SYS_OPENAT2}})
}

// fakeRoot returns 0 for the calls that a package manager makes as root and that a sandbox with a single id
// cannot perform. The calls have no effect.
func fakeRoot() []rule {
	r := []rule{{do: errno(0), calls: append([]uint32{
		unix.SYS_FCHOWN, unix.SYS_FCHOWNAT,
		unix.SYS_SETUID, unix.SYS_SETGID, unix.SYS_SETREUID, unix.SYS_SETREGID,
		unix.SYS_SETRESUID, unix.SYS_SETRESGID, unix.SYS_SETGROUPS, unix.SYS_SETFSUID, unix.SYS_SETFSGID,
	}, archChowns...)}}
	for _, m := range append([]at{{unix.SYS_MKNODAT, 2}}, archMknods...) {
		for _, kind := range []uint32{unix.S_IFCHR, unix.S_IFBLK} {
			r = append(r, rule{do: errno(0), when: []cond{is(m.arg, unix.S_IFMT, kind)}, calls: []uint32{m.call}})
		}
	}
	return r
}
