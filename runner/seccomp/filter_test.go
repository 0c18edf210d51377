package seccomp

import (
	"encoding/binary"
	"testing"

	"demesne/runner/pid1/pid1api"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// call is a system call as seccomp sees it.
type call struct {
	nr   uint32
	args [6]uint64
}

func sys(nr uint32, args ...uint64) call {
	c := call{nr: nr}
	copy(c.args[:], args)
	return c
}

// answer returns the filter's action for c.
func answer(t *testing.T, o pid1api.SeccompOptions, arch uint32, c call) action {
	t.Helper()
	prog, err := Filter(o)
	if err != nil {
		t.Fatal(err)
	}
	return run(t, prog, arch, c)
}

// run interprets prog for c and returns its action.
func run(t *testing.T, prog []unix.SockFilter, arch uint32, c call) action {
	t.Helper()
	var ins []bpf.Instruction
	for _, f := range prog {
		ins = append(ins, bpf.RawInstruction{Op: f.Code, Jt: f.Jt, Jf: f.Jf, K: f.K}.Disassemble())
	}
	vm, err := bpf.NewVM(ins)
	if err != nil {
		t.Fatal(err)
	}
	// struct seccomp_data, with big-endian words because the interpreter reads packets.
	words := []uint32{c.nr, arch, 0, 0}
	for _, a := range c.args {
		words = append(words, uint32(a), uint32(a>>32))
	}
	var data []byte
	for _, w := range words {
		data = binary.BigEndian.AppendUint32(data, w)
	}
	got, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return action(uint32(got))
}

const high = 1 << 32 // bits that the kernel ignores

var (
	eperm  = errno(unix.EPERM)
	enosys = errno(unix.ENOSYS)
	noFam  = errno(unix.EAFNOSUPPORT)
	noProt = errno(unix.EPROTONOSUPPORT)
	faked  = errno(0)
)

func TestFilter(t *testing.T) {
	const cloneThread = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD
	var (
		plain    = pid1api.SeccompOptions{}
		nesting  = pid1api.SeccompOptions{Nesting: true}
		noSUID   = pid1api.SeccompOptions{NoSUID: true}
		noSocket = pid1api.SeccompOptions{NoSocket: true}
		fake     = pid1api.SeccompOptions{FakeRoot: true}
		watched  = pid1api.SeccompOptions{Supervised: true}
		both     = pid1api.SeccompOptions{FakeRoot: true, NoSUID: true}
	)
	for _, tt := range []struct {
		name string
		o    pid1api.SeccompOptions
		call call
		want action
	}{
		{"read", plain, sys(unix.SYS_READ), allow},
		{"execve", plain, sys(unix.SYS_EXECVE), allow},
		{"ptrace", plain, sys(unix.SYS_PTRACE), allow},

		{"fork", plain, sys(unix.SYS_CLONE, uint64(unix.SIGCHLD)), allow},
		{"thread", plain, sys(unix.SYS_CLONE, cloneThread), allow},
		{"clone newuser", plain, sys(unix.SYS_CLONE, unix.CLONE_NEWUSER|uint64(unix.SIGCHLD)), eperm},
		{"clone newnet high", plain, sys(unix.SYS_CLONE, unix.CLONE_NEWNET|high), eperm},
		{"clone newcgroup", plain, sys(unix.SYS_CLONE, unix.CLONE_NEWCGROUP), eperm},
		{"clone3", plain, sys(unix.SYS_CLONE3), enosys},
		{"unshare files", plain, sys(unix.SYS_UNSHARE, unix.CLONE_FILES), allow},
		{"unshare newtime", plain, sys(unix.SYS_UNSHARE, unix.CLONE_NEWTIME), eperm},
		{"unshare newuser", plain, sys(unix.SYS_UNSHARE, unix.CLONE_NEWUSER), eperm},
		{"setns", plain, sys(unix.SYS_SETNS), eperm},
		{"mount", plain, sys(unix.SYS_MOUNT), eperm},
		{"open_tree_attr", plain, sys(unix.SYS_OPEN_TREE_ATTR), eperm},
		{"statmount", plain, sys(unix.SYS_STATMOUNT), allow},

		{"nesting clone newuser", nesting, sys(unix.SYS_CLONE, unix.CLONE_NEWUSER), allow},
		{"nesting clone3", nesting, sys(unix.SYS_CLONE3), allow},
		{"nesting unshare", nesting, sys(unix.SYS_UNSHARE, unix.CLONE_NEWUSER), allow},
		{"nesting mount", nesting, sys(unix.SYS_MOUNT), allow},
		{"nesting bpf", nesting, sys(unix.SYS_BPF), eperm},
		{"nesting keyctl", nesting, sys(unix.SYS_KEYCTL), enosys},

		{"bpf", plain, sys(unix.SYS_BPF), eperm},
		{"keyctl", plain, sys(unix.SYS_KEYCTL), enosys},
		{"perf", plain, sys(unix.SYS_PERF_EVENT_OPEN), eperm},
		{"userfaultfd", plain, sys(unix.SYS_USERFAULTFD), eperm},
		{"open_by_handle_at", plain, sys(unix.SYS_OPEN_BY_HANDLE_AT), eperm},
		{"name_to_handle_at", plain, sys(unix.SYS_NAME_TO_HANDLE_AT), allow},
		{"kexec", plain, sys(unix.SYS_KEXEC_FILE_LOAD), eperm},
		{"module", plain, sys(unix.SYS_FINIT_MODULE), eperm},
		{"io_uring", plain, sys(unix.SYS_IO_URING_SETUP), enosys},
		{"io_uring enter", plain, sys(unix.SYS_IO_URING_ENTER), enosys},
		{"io_uring register", plain, sys(unix.SYS_IO_URING_REGISTER), enosys},
		{"request_key", plain, sys(unix.SYS_REQUEST_KEY), enosys},
		{"add_key", plain, sys(unix.SYS_ADD_KEY), enosys},
		{"fanotify", plain, sys(unix.SYS_FANOTIFY_INIT), eperm},
		{"quotactl", plain, sys(unix.SYS_QUOTACTL), eperm},
		{"quotactl_fd", plain, sys(unix.SYS_QUOTACTL_FD), eperm},
		{"swapon", plain, sys(unix.SYS_SWAPON), eperm},
		{"acct", plain, sys(unix.SYS_ACCT), eperm},
		{"syslog", plain, sys(unix.SYS_SYSLOG), eperm},
		{"settimeofday", plain, sys(unix.SYS_SETTIMEOFDAY), eperm},
		{"clock_settime", plain, sys(unix.SYS_CLOCK_SETTIME), eperm},
		{"reboot", plain, sys(unix.SYS_REBOOT), eperm},
		{"vhangup", plain, sys(unix.SYS_VHANGUP), eperm},

		{"ioctl tcgets", plain, sys(unix.SYS_IOCTL, 0, unix.TCGETS), allow},
		{"ioctl sctty", plain, sys(unix.SYS_IOCTL, 0, unix.TIOCSCTTY), allow},
		{"ioctl sti", plain, sys(unix.SYS_IOCTL, 0, unix.TIOCSTI), eperm},
		{"ioctl sti high", plain, sys(unix.SYS_IOCTL, 0, unix.TIOCSTI|high), eperm},
		{"ioctl sti top", plain, sys(unix.SYS_IOCTL, 0, unix.TIOCSTI|1<<63), eperm},
		{"ioctl linux high", plain, sys(unix.SYS_IOCTL, 0, tiocLinux|high), eperm},
		{"ioctl setd", plain, sys(unix.SYS_IOCTL, 0, unix.TIOCSETD), eperm},
		{"ioctl bridges", plain, sys(unix.SYS_IOCTL, 0, unix.SIOCGIFBR), eperm},
		{"ioctl vlans", nesting, sys(unix.SYS_IOCTL, 0, unix.SIOCSIFVLAN), eperm},
		{"ioctl interfaces", plain, sys(unix.SYS_IOCTL, 0, unix.SIOCGIFCONF), allow},
		{"ioctl btrfs snapshot", plain, sys(unix.SYS_IOCTL, 0, btrfsSnapshotV2), eperm},
		{"ioctl clone of a file", plain, sys(unix.SYS_IOCTL, 0, unix.FICLONE), allow},

		{"setrlimit core", plain, sys(unix.SYS_SETRLIMIT, unix.RLIMIT_CORE, 1<<20), faked},
		{"setrlimit files", plain, sys(unix.SYS_SETRLIMIT, unix.RLIMIT_NOFILE, 1<<20), allow},
		{"prlimit core", plain, sys(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE|high, 1<<20, 0), faked},
		{"prlimit core, by a pointer of high bits", nesting, sys(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, 1<<32, 0), faked},
		{"prlimit core, asked", plain, sys(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, 0, 1<<20), allow},
		{"prlimit files", plain, sys(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, 1<<20, 0), allow},

		{"personality ask", plain, sys(unix.SYS_PERSONALITY, 0xffffffff), allow},
		{"personality linux", plain, sys(unix.SYS_PERSONALITY, 0), allow},
		{"personality norandomize", plain, sys(unix.SYS_PERSONALITY, addrNoRandomize), allow},
		{"personality read-implies-exec", plain, sys(unix.SYS_PERSONALITY, 0x400000), eperm},

		{"unix", plain, sys(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC), allow},
		{"tcp", plain, sys(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK), allow},
		{"udp6", plain, sys(unix.SYS_SOCKET, unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP), allow},
		{"mptcp", plain, sys(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP), allow},
		{"tcp by name, high type", plain, sys(unix.SYS_SOCKET, unix.AF_INET6, unix.SOCK_STREAM|high, unix.IPPROTO_TCP), allow},
		{"ping", plain, sys(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP), allow},
		{"dccp by type", plain, sys(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DCCP), noProt},
		{"dccp6 by type", plain, sys(unix.SYS_SOCKET, unix.AF_INET6, unix.SOCK_DCCP|unix.SOCK_CLOEXEC), noProt},
		{"packets in order", plain, sys(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_SEQPACKET), noProt},
		{"udp as a stream", plain, sys(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_UDP), noProt},
		{"no type", plain, sys(unix.SYS_SOCKET, unix.AF_INET, 0), noProt},
		{"sctp", plain, sys(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP), noProt},
		{"raw", plain, sys(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP), eperm},
		{"raw cloexec high", plain, sys(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK|high), eperm},
		{"old packet", plain, sys(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_PACKET), eperm},
		{"route", plain, sys(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE), allow},
		{"netfilter", plain, sys(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_NETFILTER), noFam},
		{"af_alg", plain, sys(unix.SYS_SOCKET, unix.AF_ALG, unix.SOCK_SEQPACKET), noFam},
		{"vsock high", plain, sys(unix.SYS_SOCKET, unix.AF_VSOCK|high, unix.SOCK_STREAM), noFam},
		{"packet", plain, sys(unix.SYS_SOCKET, unix.AF_PACKET, unix.SOCK_DGRAM), noFam},
		{"pair", plain, sys(unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_DGRAM), allow},
		{"pair tipc", plain, sys(unix.SYS_SOCKETPAIR, unix.AF_TIPC, unix.SOCK_DGRAM), noFam},
		{"nosocket unix", noSocket, sys(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM), noFam},
		{"nosocket pair", noSocket, sys(unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM), allow},
		{"nosocket pair flags", noSocket, sys(unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC), allow},
		{"nosocket pair of datagrams", noSocket, sys(unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_DGRAM), noFam},
		{"nosocket pair of datagrams, another word", noSocket, sys(unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_RAW), noFam},
		{"supervised tcp", watched, sys(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM), notify},
		{"supervised tcp by name", watched, sys(unix.SYS_SOCKET, unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP), notify},
		{"supervised udp", watched, sys(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM), notify},
		{"supervised udp by name", watched, sys(unix.SYS_SOCKET, unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP), notify},
		{"supervised ping", watched, sys(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP), noProt},
		{"supervised datagram to an address", watched, sys(unix.SYS_SENDTO, 3, 0, 0, 0, 1<<40, 16), errno(unix.ENETUNREACH)},
		{"supervised mptcp", watched, sys(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP), noProt},
		{"supervised unix", watched, sys(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM), noFam},
		{"supervised pair", watched, sys(unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM), allow},
		{"supervised pair of datagrams", watched, sys(unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_DGRAM), noFam},
		{"supervised connect", watched, sys(unix.SYS_CONNECT), notify},
		{"supervised bind", watched, sys(unix.SYS_BIND), notify},
		{"supervised listen", watched, sys(unix.SYS_LISTEN), notify},
		{"supervised send", watched, sys(unix.SYS_SENDTO, 3, 0, 0, unix.MSG_NOSIGNAL), allow},
		{"supervised fast open", watched, sys(unix.SYS_SENDTO, 3, 0, 0, unix.MSG_FASTOPEN|high), errno(unix.EOPNOTSUPP)},
		{"supervised fast open by sendmsg", watched, sys(unix.SYS_SENDMSG, 3, 0, unix.MSG_FASTOPEN|unix.MSG_NOSIGNAL), errno(unix.EOPNOTSUPP)},
		{"supervised fast open by sendmmsg", watched, sys(unix.SYS_SENDMMSG, 3, 0, 1, unix.MSG_FASTOPEN), errno(unix.EOPNOTSUPP)},
		{"supervised no delay", watched, sys(unix.SYS_SETSOCKOPT, 3, unix.IPPROTO_TCP, unix.TCP_NODELAY), allow},
		{"supervised errors", watched, sys(unix.SYS_SETSOCKOPT, 3, unix.IPPROTO_IP, unix.IP_RECVERR), faked},
		{"supervised source route", watched, sys(unix.SYS_SETSOCKOPT, 3, unix.IPPROTO_IP, unix.IP_OPTIONS), errno(unix.ENOPROTOOPT)},
		{"supervised source route high", watched, sys(unix.SYS_SETSOCKOPT, 3, unix.IPPROTO_IP|high, unix.IP_OPTIONS|high), errno(unix.ENOPROTOOPT)},
		{"supervised routing header", watched, sys(unix.SYS_SETSOCKOPT, 3, unix.IPPROTO_IPV6, unix.IPV6_RTHDR), errno(unix.ENOPROTOOPT)},
		{"supervised device", watched, sys(unix.SYS_SETSOCKOPT, 3, unix.SOL_SOCKET, unix.SO_BINDTODEVICE), eperm},
		{"supervised filter", watched, sys(unix.SYS_SETSOCKOPT, 3, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER), eperm},
		{"supervised signature", watched, sys(unix.SYS_SETSOCKOPT, 3, unix.IPPROTO_TCP, unix.TCP_MD5SIG), errno(unix.ENOPROTOOPT)},
		{"supervised io_uring", watched, sys(unix.SYS_IO_URING_SETUP), enosys},

		{"nosocket tcp", noSocket, sys(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM), noFam},
		{"nosocket route", noSocket, sys(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW), noFam},

		{"fchmod suid, allowed", plain, sys(unix.SYS_FCHMOD, 3, 0o4755), allow},
		{"fchmod", noSUID, sys(unix.SYS_FCHMOD, 3, 0o1755), allow},
		{"fchmod suid", noSUID, sys(unix.SYS_FCHMOD, 3, 0o4755), eperm},
		{"fchmod sgid high", noSUID, sys(unix.SYS_FCHMOD, 3, 0o2755|high), eperm},
		{"fchmodat suid", noSUID, sys(unix.SYS_FCHMODAT, 3, 0, 0o4755), eperm},
		{"fchmodat2 suid", noSUID, sys(unix.SYS_FCHMODAT2, 3, 0, 0o4755), eperm},
		{"openat", noSUID, sys(unix.SYS_OPENAT, 3, 0, unix.O_RDWR|unix.O_CREAT, 0o644), allow},
		{"openat garbage mode", noSUID, sys(unix.SYS_OPENAT, 3, 0, unix.O_RDWR, 0o7777), allow},
		{"openat directory", noSUID, sys(unix.SYS_OPENAT, 3, 0, unix.O_DIRECTORY, 0o7777), allow},
		{"openat suid", noSUID, sys(unix.SYS_OPENAT, 3, 0, unix.O_RDWR|unix.O_CREAT, 0o4755), eperm},
		{"openat tmpfile suid", noSUID, sys(unix.SYS_OPENAT, 3, 0, unix.O_RDWR|unix.O_TMPFILE, 0o4755), eperm},
		{"openat2", noSUID, sys(unix.SYS_OPENAT2), enosys},
		{"openat2, allowed", plain, sys(unix.SYS_OPENAT2), allow},
		{"mkdirat sgid", noSUID, sys(unix.SYS_MKDIRAT, 3, 0, 0o2755), eperm},
		{"mknodat suid", noSUID, sys(unix.SYS_MKNODAT, 3, 0, unix.S_IFREG|0o4755), eperm},

		{"fchownat, real", plain, sys(unix.SYS_FCHOWNAT), allow},
		{"fchownat", fake, sys(unix.SYS_FCHOWNAT), faked},
		{"setgroups", fake, sys(unix.SYS_SETGROUPS), faked},
		{"setresuid", fake, sys(unix.SYS_SETRESUID, 33, 33, 33), faked},
		{"mknodat char", fake, sys(unix.SYS_MKNODAT, 3, 0, unix.S_IFCHR|0o666), faked},
		{"mknodat block", fake, sys(unix.SYS_MKNODAT, 3, 0, unix.S_IFBLK|0o666), faked},
		{"mknodat fifo", fake, sys(unix.SYS_MKNODAT, 3, 0, unix.S_IFIFO|0o666), allow},
		{"mknodat char suid", both, sys(unix.SYS_MKNODAT, 3, 0, unix.S_IFCHR|0o4666), eperm},
		{"mknodat char both", both, sys(unix.SYS_MKNODAT, 3, 0, unix.S_IFCHR|0o666), faked},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := answer(t, tt.o, auditArch, tt.call); got != tt.want {
				t.Errorf("answer %#x, want %#x", got, tt.want)
			}
		})
	}
}

func TestForeignArchitecture(t *testing.T) {
	for _, arch := range []uint32{unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, 0} {
		if got := answer(t, pid1api.SeccompOptions{Nesting: true}, arch, sys(unix.SYS_READ)); got != kill {
			t.Errorf("architecture %#x: answer %#x, want kill", arch, got)
		}
	}
}

// TestNoDeadRules checks that calls without conditions have a single action. If a number appears in two lists,
// the first decides and the second is dead.
func TestNoDeadRules(t *testing.T) {
	for _, o := range []pid1api.SeccompOptions{{}, {Nesting: true}, {NoSUID: true}, {FakeRoot: true}, {NoSocket: true}, {Supervised: true}} {
		final := map[uint32]bool{}
		for _, r := range rules(o) {
			for _, nr := range r.calls {
				if final[nr] {
					t.Errorf("%+v: a rule for call %d comes after one without conditions", o, nr)
				}
				if len(r.when) == 0 {
					final[nr] = true
				}
			}
		}
	}
}

func TestDigest(t *testing.T) {
	a, _ := Filter(pid1api.SeccompOptions{})
	b, _ := Filter(pid1api.SeccompOptions{NoSUID: true})
	again, _ := Filter(pid1api.SeccompOptions{})
	if Digest(a) != Digest(again) || Digest(a) == Digest(b) || len(Digest(a)) != 64 {
		t.Errorf("digests %s, %s, %s", Digest(a), Digest(again), Digest(b))
	}
	all, err := Filter(pid1api.SeccompOptions{NoSUID: true, FakeRoot: true})
	if err != nil || len(all) > unix.BPF_MAXINSNS {
		t.Errorf("longest filter: %d instructions, %v", len(all), err)
	}
	t.Logf("%d instructions, at most %d", len(a), len(all))
}
