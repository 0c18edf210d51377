package seccomp

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Server returns a program for a running Go program with the process id pid. From then on that program only
// serves sockets, resolves names and reads files. Unlike [Filter] it is an allow-list: other calls fail with
// EPERM. This excludes most of the kernel: execve, new processes and namespaces, executable memory, ptrace,
// mounts, keys, bpf and io_uring. It also excludes opening files for writing, sockets other than IP and
// rtnetlink, and signals to other processes.
func Server(pid int) ([]unix.SockFilter, error) {
	prog, err := compile(serverRules(pid), errno(unix.EPERM))
	if err != nil {
		return nil, fmt.Errorf("assemble seccomp filter: %w", err)
	}
	return prog, nil
}

func serverRules(pid int) []rule {
	r := []rule{
		{do: allow, calls: serverCalls()},
		{do: allow, when: []cond{is(0, unix.CLONE_THREAD, unix.CLONE_THREAD)}, calls: []uint32{unix.SYS_CLONE}},
		{do: allow, when: []cond{is(0, all, unix.PR_SET_VMA)}, calls: []uint32{unix.SYS_PRCTL}}, // names of memory
		{do: allow, when: []cond{is(0, all, 0)}, calls: []uint32{unix.SYS_PRLIMIT64}},           // its own limits
		{do: allow, when: []cond{is(0, all, uint32(pid))}, calls: []uint32{unix.SYS_TGKILL}},
		{do: allow, when: []cond{is(2, unix.PROT_EXEC, 0)}, calls: []uint32{unix.SYS_MMAP, unix.SYS_MPROTECT}},
	}
	// Files are opened only if they exist, and only for reading.
	r = append(r, rule{do: errno(unix.EPERM), when: []cond{has(2, unix.O_CREAT|tmpfileBit)}, calls: []uint32{unix.SYS_OPENAT}})
	for _, writes := range []uint32{unix.O_WRONLY, unix.O_RDWR, unix.O_ACCMODE} {
		r = append(r, rule{do: errno(unix.EPERM), when: []cond{is(2, unix.O_ACCMODE, writes)}, calls: []uint32{unix.SYS_OPENAT}})
	}
	r = append(r, rule{do: allow, calls: []uint32{unix.SYS_OPENAT}})
	for _, family := range []uint32{unix.AF_INET, unix.AF_INET6} {
		for _, kind := range []uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
			r = append(r, rule{do: allow, when: []cond{is(0, all, family), is(1, sockTypeMask, kind)}, calls: []uint32{unix.SYS_SOCKET}})
		}
	}
	return append(r,
		rule{do: allow, when: []cond{is(0, all, unix.AF_NETLINK), is(2, all, unix.NETLINK_ROUTE)}, calls: []uint32{unix.SYS_SOCKET}})
}

// serverCalls are allowed with any arguments.
func serverCalls() []uint32 {
	return append([]uint32{
		// The Go runtime: memory, threads, time, its own signals.
		unix.SYS_BRK, unix.SYS_MUNMAP, unix.SYS_MREMAP, unix.SYS_MADVISE, unix.SYS_MINCORE,
		unix.SYS_FUTEX, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ,
		unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY, unix.SYS_GETRANDOM,
		unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
		unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID, unix.SYS_UNAME,
		unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
		unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2,

		// Descriptors: files, sockets, pipes for splice.
		unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_PREAD64, unix.SYS_LSEEK, unix.SYS_CLOSE,
		unix.SYS_FSTAT, unix.SYS_STATX, unix.SYS_READLINKAT, unix.SYS_GETDENTS64, unix.SYS_FCNTL, unix.SYS_GETCWD,
		unix.SYS_PIPE2, unix.SYS_SPLICE,
		unix.SYS_BIND, unix.SYS_CONNECT, unix.SYS_ACCEPT4, unix.SYS_SHUTDOWN,
		unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME, unix.SYS_GETSOCKOPT, unix.SYS_SETSOCKOPT,
		unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_RECVFROM, unix.SYS_RECVMSG,
	}, archServer...)
}
