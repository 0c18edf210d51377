package seccomp

import (
	"golang.org/x/sys/unix"

	"demesne/runner/pid1/pid1api"
)

const (
	setIDBits = unix.S_ISUID | unix.S_ISGID

	// cloneNamespaces is what clone(2) takes; CLONE_NEWTIME is in the byte of the
	// exit signal there and exists for unshare(2) and clone3(2) only.
	cloneNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

	// tmpfileBit is O_TMPFILE without the O_DIRECTORY that is part of it and differs
	// between architectures.
	tmpfileBit = unix.O_TMPFILE &^ unix.O_DIRECTORY

	// Not in x/sys: PER_LINUX32, ADDR_NO_RANDOMIZE.
	perLinux32      = 0x8
	addrNoRandomize = 0x40000

	btrfsSnapshot   = 0x50009401 // BTRFS_IOC_SNAP_CREATE
	btrfsSnapshotV2 = 0x50009417

	fsSetFlags = 0x40086602 // FS_IOC_SETFLAGS
	fsSetXattr = 0x401c5820 // FS_IOC_FSSETXATTR

	sockTypeMask = 0xf // SOCK_TYPE_MASK: the rest of the word is SOCK_CLOEXEC, SOCK_NONBLOCK
)

// rules is the whole list for o.
func rules(o pid1api.SeccompOptions) []rule {
	var r []rule
	if o.NoSUID {
		r = append(r, noSUID()...)
	}
	if o.FakeRoot {
		r = append(r, fakeRoot()...)
	}
	r = append(r, arguments()...)
	r = append(r, sockets(o.NoSocket)...)
	if !o.Nesting {
		r = append(r, namespaces()...)
	}
	return append(r, kernelParts()...)
}

// namespaces are the ways to new ones, into others' and to mounts. A user namespace
// opens much of the kernel to whoever makes it (escapes.md P3, F16).
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

// kernelParts are refused whole, nesting or not.
func kernelParts() []rule {
	return []rule{
		// A second way to most system calls, past this filter (escapes.md P1). ENOSYS:
		// event loops then use epoll.
		{do: errno(unix.ENOSYS), calls: []uint32{
			unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
		}},
		// The system call for inode flags, behind a pointer; callers fall back to the ioctl.
		{do: errno(unix.ENOSYS), calls: []uint32{unix.SYS_FILE_SETATTR}},
		// Keyrings are not namespaced (P5). ENOSYS: sandbox makers, nested, then do
		// without a session keyring of their own.
		{do: errno(unix.ENOSYS), calls: []uint32{unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY}},
		{do: errno(unix.EPERM), calls: append([]uint32{
			unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, // large, and what exploits lean on (P13)
			unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_REBOOT,
			unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
			unix.SYS_OPEN_BY_HANDLE_AT, // a file by number, past every mount ("shocker")
			unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_SWAPON, unix.SYS_SWAPOFF,
			unix.SYS_ACCT, unix.SYS_SYSLOG, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME,
			unix.SYS_NFSSERVCTL, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_FANOTIFY_INIT, unix.SYS_VHANGUP,
		}, archDenied...)},
	}
}

// arguments are calls that are harmless with some arguments only.
func arguments() []rule {
	deny := func(request uint32) rule {
		return rule{do: errno(unix.EPERM), when: []cond{is(1, all, request)}, calls: []uint32{unix.SYS_IOCTL}}
	}
	r := []rule{
		deny(unix.TIOCSTI), // types into the terminal it is called on
		deny(tiocLinux),    // pastes into a virtual console
		deny(unix.TIOCSETD),
		// Before Linux 6.7 (and what was mended with it) any file of a btrfs will do as the source: all of its
		// subvolume, such as /home, then shows below a directory that may be written to.
		deny(btrfsSnapshot), deny(btrfsSnapshotV2),
		// Flags of inodes would come out with the files (escapes.md F22).
		deny(fsSetFlags), deny(fsSetXattr),
	}
	for _, request := range loadsModule {
		r = append(r, deny(request))
	}
	// PID 1's limit of core dumps stays, see package guest. Who lowers it is told that it is so.
	r = append(r, rule{do: errno(0), when: []cond{is(0, all, unix.RLIMIT_CORE)}, calls: []uint32{unix.SYS_SETRLIMIT}})
	for _, given := range notNil(2) {
		r = append(r, rule{do: errno(0), when: []cond{is(1, all, unix.RLIMIT_CORE), given}, calls: []uint32{unix.SYS_PRLIMIT64}})
	}
	// PER_LINUX, PER_LINUX32, what gdb and setarch -R ask, and "tell me". The others
	// have turned off ASLR bits and mmap_min_addr for set-user-ID programs.
	for _, p := range []uint32{0, perLinux32, addrNoRandomize, all} {
		r = append(r, rule{do: allow, when: []cond{is(0, all, p)}, calls: []uint32{unix.SYS_PERSONALITY}})
	}
	return append(r, rule{do: errno(unix.EPERM), calls: []uint32{unix.SYS_PERSONALITY}})
}

// loadsModule are requests to any socket for which the kernel runs modprobe, as root and for whoever asks (sock_ioctl
// in net/socket.c): of bridges and of VLANs.
var loadsModule = []uint32{unix.SIOCGIFBR, unix.SIOCSIFBR, unix.SIOCBRADDBR, unix.SIOCBRDELBR, unix.SIOCGIFVLAN, unix.SIOCSIFVLAN}

// inetSockets are what may be asked of AF_INET and AF_INET6: protocols by type. For all others (SCTP, L2TP, SMC …), also for
// pairs that make no sense, and for DCCP by its type alone, the kernel runs modprobe, as root.
var inetSockets = []struct {
	kind      uint32
	protocols []uint32
}{
	{unix.SOCK_STREAM, []uint32{0, unix.IPPROTO_TCP, unix.IPPROTO_MPTCP}},
	{unix.SOCK_DGRAM, []uint32{0, unix.IPPROTO_UDP, unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6}},
}

// sockets lets AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK's NETLINK_ROUTE through:
// escapes.md N30 and F20 are stories of the other families. noSocket leaves socketpair(2):
// without a mount namespace every socket with a path can be connected to, Landlock or not
// (before its ABI 9), and one of them is the user's session bus (F1).
func sockets(noSocket bool) []rule {
	socket := []uint32{unix.SYS_SOCKET}
	r := []rule{
		{do: allow, when: []cond{is(0, all, unix.AF_UNIX)}, calls: []uint32{unix.SYS_SOCKETPAIR}},
		{do: errno(unix.EAFNOSUPPORT), calls: []uint32{unix.SYS_SOCKETPAIR}},
	}
	if noSocket {
		return append(r, rule{do: errno(unix.EAFNOSUPPORT), calls: socket})
	}
	r = append(r,
		rule{do: allow, when: []cond{is(0, all, unix.AF_UNIX)}, calls: socket},
		rule{do: allow, when: []cond{is(0, all, unix.AF_NETLINK), is(2, all, unix.NETLINK_ROUTE)}, calls: socket},
		// What a kernel without the protocol says: useradd and its like then do without
		// the audit system.
		rule{do: errno(unix.EAFNOSUPPORT), when: []cond{is(0, all, unix.AF_NETLINK)}, calls: socket},
		// Bound to a capability as well.
		rule{do: errno(unix.EPERM), when: []cond{is(1, sockTypeMask, unix.SOCK_RAW)}, calls: socket},
		rule{do: errno(unix.EPERM), when: []cond{is(1, sockTypeMask, unix.SOCK_PACKET)}, calls: socket})
	for _, family := range []uint32{unix.AF_INET, unix.AF_INET6} {
		for _, s := range inetSockets {
			for _, p := range s.protocols {
				r = append(r, rule{do: allow, when: []cond{is(0, all, family), is(1, sockTypeMask, s.kind), is(2, all, p)}, calls: socket})
			}
		}
		r = append(r, rule{do: errno(unix.EPROTONOSUPPORT), when: []cond{is(0, all, family)}, calls: socket})
	}
	return append(r, rule{do: errno(unix.EAFNOSUPPORT), calls: socket})
}

// at is a call and the position of the argument that matters.
type at struct {
	call uint32
	arg  int
}

// noSUID keeps set-user-ID and set-group-ID bits off files the host will see.
func noSUID() []rule {
	refuse := func(call uint32, when ...cond) rule {
		return rule{do: errno(unix.EPERM), when: when, calls: []uint32{call}}
	}
	var r []rule
	// Only when they make a file is open's third argument a mode and not garbage.
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

// fakeRoot answers 0 to what a package manager does as root and a sandbox with a
// single id cannot: nothing happens, and nothing checks.
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
