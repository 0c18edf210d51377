// nons [--hostname | --flock | --splice | --netfilter | --supervised] CMD ARG…: executes CMD under a filter like the one Docker has by
// default: no namespaces, no mounts, no keyrings. clone3 does not exist, so that libc uses
// clone. With --hostname the filter refuses only sethostname, with --flock flock as a file system without locks does,
// with --splice splice as a kernel without it, with --netfilter sockets to nf_tables. With --supervised it refuses nothing,
// but calls have a supervisor, which is a process that answers none.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOAD(off) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, off)
#define NR offsetof(struct seccomp_data, nr)
#define ARG0 offsetof(struct seccomp_data, args[0])
#define ARG2 offsetof(struct seccomp_data, args[2])
#define RET(v) BPF_STMT(BPF_RET | BPF_K, v)
#define DENY(n, e) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, n, 0, 1), RET(SECCOMP_RET_ERRNO | e)
#define FLAGS 0x7e020080 // CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET, TIME

int main(int argc, char **argv) {
	struct sock_filter f[] = {
		LOAD(NR),
		DENY(435, ENOSYS),
		DENY(SYS_unshare, EPERM), DENY(SYS_setns, EPERM), DENY(SYS_mount, EPERM), DENY(SYS_umount2, EPERM),
		DENY(SYS_pivot_root, EPERM), DENY(428, EPERM), DENY(429, EPERM), DENY(430, EPERM), DENY(442, EPERM),
		DENY(SYS_keyctl, EPERM), DENY(SYS_add_key, EPERM), DENY(SYS_bpf, EPERM), DENY(SYS_perf_event_open, EPERM),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4),
		LOAD(ARG0),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, FLAGS, 0, 1), RET(SECCOMP_RET_ERRNO | EPERM), RET(SECCOMP_RET_ALLOW),
		RET(SECCOMP_RET_ALLOW)};
	struct { char *name; int nr, err; } ones[] = {
		{"--hostname", SYS_sethostname, EPERM}, {"--flock", SYS_flock, ENOLCK}, {"--splice", SYS_splice, ENOSYS}};
	struct sock_filter netfilter[] = {
		LOAD(NR), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 5),
		LOAD(ARG0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 16, 0, 3),  // AF_NETLINK
		LOAD(ARG2), DENY(12, EPROTONOSUPPORT), RET(SECCOMP_RET_ALLOW)}; // NETLINK_NETFILTER
	struct sock_fprog p = {sizeof f / sizeof *f, f};
	for (int i = 0; i < 3; i++) {
		if (argc < 3 || strcmp(argv[1], ones[i].name))
			continue;
		struct sock_filter one[] = {LOAD(NR), DENY(ones[i].nr, ones[i].err), RET(SECCOMP_RET_ALLOW)};
		p.len = sizeof one / sizeof *one;
		p.filter = memcpy(f, one, sizeof one);
		argv++;
		argc--;
		break;
	}
	if (argc > 2 && !strcmp(argv[1], "--netfilter")) {
		p.len = sizeof netfilter / sizeof *netfilter;
		p.filter = netfilter;
		argv++;
	}
	if (argc > 2 && !strcmp(argv[1], "--supervised")) {
		struct sock_filter none[] = {RET(SECCOMP_RET_ALLOW)};
		p.len = 1;
		p.filter = none;
		long fd = -1; // stays open
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
			(fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &p)) < 0 || fcntl(fd, F_SETFD, 0)) {
			perror("nons");
			return 125;
		}
		execv(argv[2], argv + 2);
	}
	if (argc < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p)) {
		perror("nons");
		return 125;
	}
	execv(argv[1], argv + 1);
	perror(argv[1]);
	return 127;
}
