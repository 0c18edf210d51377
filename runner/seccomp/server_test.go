package seccomp

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestServer: the calls of a socket server are allowed with their usual arguments. Other arguments and other
// numbers are refused.
func TestServer(t *testing.T) {
	prog, err := Server(42)
	if err != nil {
		t.Fatal(err)
	}
	const threads = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM | unix.CLONE_THREAD
	for _, c := range []struct {
		name string
		call call
		want action
	}{
		{"read", sys(unix.SYS_READ, 3), allow},
		{"splice", sys(unix.SYS_SPLICE), allow},
		{"epoll_pwait", sys(unix.SYS_EPOLL_PWAIT), allow},
		{"a thread", sys(unix.SYS_CLONE, threads), allow},
		{"a process", sys(unix.SYS_CLONE, uint64(unix.SIGCHLD)), eperm},
		{"clone3", sys(unix.SYS_CLONE3), eperm},
		{"a signal to itself", sys(unix.SYS_TGKILL, 42, 43, uint64(unix.SIGURG)), allow},
		{"a signal to another", sys(unix.SYS_TGKILL, 43, 43, uint64(unix.SIGURG)), eperm},
		{"to another, high", sys(unix.SYS_TGKILL, 43|high, 43), eperm},
		{"kill", sys(unix.SYS_KILL, 42), eperm},
		{"memory", sys(unix.SYS_MMAP, 0, 4096, unix.PROT_READ|unix.PROT_WRITE), allow},
		{"memory to execute", sys(unix.SYS_MMAP, 0, 4096, unix.PROT_READ|unix.PROT_EXEC), eperm},
		{"made so", sys(unix.SYS_MPROTECT, 0, 4096, unix.PROT_EXEC), eperm},
		{"open", sys(unix.SYS_OPENAT, 0, 0, unix.O_RDONLY|unix.O_CLOEXEC), allow},
		{"open a directory", sys(unix.SYS_OPENAT, 0, 0, unix.O_RDONLY|unix.O_DIRECTORY), allow},
		{"open to write", sys(unix.SYS_OPENAT, 0, 0, unix.O_WRONLY), eperm},
		{"open for both", sys(unix.SYS_OPENAT, 0, 0, unix.O_RDWR), eperm},
		{"create", sys(unix.SYS_OPENAT, 0, 0, unix.O_RDONLY|unix.O_CREAT), eperm},
		{"a file of no name", sys(unix.SYS_OPENAT, 0, 0, unix.O_RDWR|unix.O_TMPFILE), eperm},
		{"openat2", sys(unix.SYS_OPENAT2), eperm},
		{"TCP", sys(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK), allow},
		{"UDP over IPv6", sys(unix.SYS_SOCKET, unix.AF_INET6, unix.SOCK_DGRAM), allow},
		{"raw", sys(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_RAW), eperm},
		{"packets", sys(unix.SYS_SOCKET, unix.AF_PACKET, unix.SOCK_DGRAM), eperm},
		{"unix", sys(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM), eperm},
		{"interfaces", sys(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE), allow},
		{"nftables", sys(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER), eperm},
		{"execve", sys(unix.SYS_EXECVE), eperm},
		{"ptrace", sys(unix.SYS_PTRACE), eperm},
		{"a name for memory", sys(unix.SYS_PRCTL, unix.PR_SET_VMA), allow},
		{"dumpable", sys(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1), eperm},
		{"its limits", sys(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE), allow},
		{"another's limits", sys(unix.SYS_PRLIMIT64, 1, unix.RLIMIT_NOFILE), eperm},
		{"an unknown number", sys(4000), enosys},
	} {
		if got := run(t, prog, auditArch, c.call); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
	if got := run(t, prog, auditArch^1, sys(unix.SYS_READ)); got != kill {
		t.Errorf("another architecture: %#x", got)
	}
}
