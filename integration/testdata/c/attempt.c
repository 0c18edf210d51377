// attempt NAME…: tries each thing a sandboxed program must not be able to do, in a
// child of its own, and prints "NAME OK", "NAME ERRNO" or "NAME signal N".
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup 425
#define SYS_io_uring_enter 426
#define SYS_io_uring_register 427
#endif
#ifndef SYS_open_tree
#define SYS_open_tree 428
#define SYS_move_mount 429
#define SYS_fsopen 430
#define SYS_fsconfig 431
#define SYS_fsmount 432
#define SYS_fspick 433
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

static char page[4096];

#define TRY(name, call) static long try_##name(void) { return (call); }
TRY(unshare_user, unshare(CLONE_NEWUSER))
TRY(unshare_mount, unshare(CLONE_NEWNS))
TRY(unshare_net, unshare(CLONE_NEWNET))
TRY(unshare_pid, unshare(CLONE_NEWPID))
TRY(unshare_ipc, unshare(CLONE_NEWIPC))
TRY(unshare_uts, unshare(CLONE_NEWUTS))
TRY(unshare_cgroup, unshare(CLONE_NEWCGROUP))
TRY(unshare_time, unshare(0x80))
TRY(unshare_many, unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_FILES))
static long try_clone_user(void) {
	long r = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
	if (r == 0) _exit(0);
	return r;
}
static long try_clone_user_high(void) { // garbage in the upper half of a 32-bit flag word
	long r = syscall(SYS_clone, (1UL << 40) | CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
	if (r == 0) _exit(0);
	return r;
}
static long try_clone3_user(void) {
	uint64_t args[11] = {CLONE_NEWUSER, 0, 0, 0, SIGCHLD};
	long r = syscall(435, args, 64);
	if (r == 0) _exit(0);
	return r;
}
TRY(setns, syscall(SYS_setns, open("/proc/self/ns/user", O_RDONLY), CLONE_NEWUSER))
TRY(setns_pidfd, syscall(SYS_setns, syscall(SYS_pidfd_open, 1, 0), CLONE_NEWNS))
TRY(mount, mount("none", "/tmp", "tmpfs", 0, 0))
TRY(bind, mount("/usr", "/tmp", 0, MS_BIND, 0))
TRY(remount_in, mount("none", "/in/attempt", 0, MS_REMOUNT | MS_BIND, 0))
TRY(remount_usr, mount("none", "/usr", 0, MS_REMOUNT | MS_BIND, 0))
TRY(remount_sys, mount("none", "/sys", 0, MS_REMOUNT | MS_BIND, 0))
TRY(propagate, mount("none", "/", 0, MS_SHARED | MS_REC, 0))
TRY(umount_in, umount2("/in/attempt", MNT_DETACH))
TRY(umount_proc, umount2("/proc", MNT_DETACH))
TRY(umount_kcore, umount2("/proc/kcore", MNT_DETACH))
TRY(umount_firmware, umount2("/sys/firmware", MNT_DETACH))
TRY(pivot_root, syscall(SYS_pivot_root, "/tmp", "/tmp"))
TRY(chroot, chroot("/tmp"))
TRY(open_tree, syscall(SYS_open_tree, AT_FDCWD, "/in/attempt", 1))
TRY(move_mount, syscall(SYS_move_mount, open("/usr", O_PATH), "", AT_FDCWD, "/tmp", 4))
TRY(fsopen, syscall(SYS_fsopen, "tmpfs", 0))
TRY(fsconfig, syscall(SYS_fsconfig, 0, 0, 0, 0, 0))
TRY(fsmount, syscall(SYS_fsmount, 0, 0, 0))
TRY(fspick, syscall(SYS_fspick, AT_FDCWD, "/", 0))
TRY(mount_setattr, (memset(page, 0, 32), syscall(SYS_mount_setattr, AT_FDCWD, "/usr", 0, page, 32)))
TRY(mount_cgroup, mount("c", "/tmp", "cgroup", 0, "memory"))
TRY(mount_cgroup2, mount("c", "/tmp", "cgroup2", 0, 0))
TRY(mount_proc, mount("p", "/tmp", "proc", 0, 0))
TRY(mount_sysfs, mount("s", "/tmp", "sysfs", 0, 0))
TRY(io_uring_setup, (memset(page, 0, 120), syscall(SYS_io_uring_setup, 1, page)))
TRY(io_uring_enter, syscall(SYS_io_uring_enter, -1, 0, 0, 0, 0, 0))
TRY(io_uring_register, syscall(SYS_io_uring_register, -1, 0, 0, 0))
TRY(add_key, syscall(SYS_add_key, "user", "x", "y", 1, KEY_SPEC_SESSION_KEYRING))
TRY(request_key, syscall(SYS_request_key, "user", "x", 0, 0))
TRY(keyctl, syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0))
TRY(keyctl_user, syscall(SYS_keyctl, KEYCTL_DESCRIBE, KEY_SPEC_USER_KEYRING, page, sizeof page))
TRY(ptrace_init, ptrace(PTRACE_SEIZE, 1, 0, 0))
TRY(ptrace_attach_init, ptrace(PTRACE_ATTACH, 1, 0, 0))
static long try_vm_readv_init(void) {
	struct iovec l = {page, 8}, r = {(void *)0x400000, 8};
	return process_vm_readv(1, &l, 1, &r, 1, 0);
}
static long try_vm_writev_init(void) {
	struct iovec l = {page, 8}, r = {(void *)0x400000, 8};
	return process_vm_writev(1, &l, 1, &r, 1, 0);
}
static long try_pidfd_getfd_init(void) {
	int fd = syscall(SYS_pidfd_open, 1, 0), n;
	for (n = 0; fd >= 0 && n < 20; n++)
		if (syscall(SYS_pidfd_getfd, fd, n, 0) >= 0) return 0;
	return -1;
}
static struct rlimit one = {64, 64};
static struct sched_param idle_param;
static uint32_t attributes[12] = {48, 5}; // SCHED_IDLE
static long first_cpu = 1;
TRY(prlimit_init, prlimit(1, RLIMIT_NOFILE, &one, 0))
TRY(setpriority_init, setpriority(PRIO_PROCESS, 1, 19))
TRY(setpriority_init_group, setpriority(PRIO_PGRP, 1, 19))
TRY(setpriority_user, setpriority(PRIO_USER, 0, 19))
TRY(affinity_init, syscall(SYS_sched_setaffinity, 1, sizeof first_cpu, &first_cpu))
TRY(scheduler_init, syscall(SYS_sched_setscheduler, 1, 5, &idle_param))
TRY(param_init, syscall(SYS_sched_setparam, 1, &idle_param))
TRY(attr_init, syscall(SYS_sched_setattr, 1, attributes, 0))
TRY(ioprio_init, syscall(SYS_ioprio_set, 1, 1, 3 << 13))
TRY(ioprio_user, syscall(SYS_ioprio_set, 3, 0, 3 << 13))
static long each_thread_of_init(long (*try)(int)) { // of those that are not the first
	int refused = ESRCH, tid;
	for (tid = 2; tid < 300; tid++) {
		if (syscall(SYS_tgkill, 1, tid, 0) < 0 && errno == ESRCH) continue;
		if (try(tid) >= 0) return 0;
		refused = errno;
	}
	errno = refused;
	return -1;
}
static long prlimit_of(int tid) { return prlimit(tid, RLIMIT_NOFILE, &one, 0); }
static long affinity_of(int tid) { return syscall(SYS_sched_setaffinity, tid, sizeof first_cpu, &first_cpu); }
TRY(prlimit_init_threads, each_thread_of_init(prlimit_of))
TRY(affinity_init_threads, each_thread_of_init(affinity_of))
TRY(prlimit_self, prlimit(getpid(), RLIMIT_NOFILE, &one, 0))
TRY(prlimit_zero, prlimit(0, RLIMIT_NOFILE, &one, 0))
TRY(prlimit_init_read, prlimit(1, RLIMIT_NOFILE, 0, &one))
TRY(affinity_self, affinity_of(getpid()))
TRY(setpriority_self, setpriority(PRIO_PROCESS, getpid(), 19))
TRY(setpriority_group, setpriority(PRIO_PGRP, 0, 19))
TRY(mem_init, open("/proc/1/mem", O_RDWR))
TRY(mem_init_ro, open("/proc/1/mem", O_RDONLY))
TRY(environ_init, open("/proc/1/environ", O_RDONLY))
TRY(maps_init, open("/proc/1/maps", O_RDONLY))
TRY(fd_init, readlink("/proc/1/fd/3", page, sizeof page))
// Ways out of a chroot. Stdin is a directory outside of it.
TRY(chroot_dots, (mkdir("/tmp/c", 0700), chroot("/tmp/c") ?: (chdir("../../../../../.."), chroot("."))))
TRY(fchdir_outside, fchdir(0) ?: open("etc/passwd", O_RDONLY))
TRY(openat_outside, openat(0, "etc/passwd", O_RDONLY))
TRY(dots_outside, fchdir(0) ?: open("../../../../etc/passwd", O_RDONLY))
TRY(list_outside, open("/proc/self/fd/0/.", O_RDONLY | O_DIRECTORY))
TRY(link_outside, linkat(0, "etc/passwd", AT_FDCWD, "/tmp/passwd", 0))
TRY(make_outside, openat(0, "tmp/demesne-mark", O_WRONLY | O_CREAT, 0600))
TRY(rename_outside, (mkdir("/tmp/moved", 0700), renameat(AT_FDCWD, "/tmp/moved", 0, "tmp/demesne-moved")))
TRY(exec_outside, syscall(SYS_execveat, 0, "bin/true", (char *[]){"true", 0}, 0, 0))
TRY(root_init, open("/proc/1/root/etc", O_RDONLY))
TRY(cwd_init, open("/proc/1/cwd", O_RDONLY))
TRY(exe_init, open("/proc/1/exe", O_RDONLY))
TRY(bpf, (memset(page, 0, 128), syscall(SYS_bpf, 5, page, 128)))
TRY(perf_event_open, (memset(page, 0, 128), page[0] = 1, page[4] = 112, syscall(SYS_perf_event_open, page, 0, -1, -1, 0)))
TRY(userfaultfd, syscall(SYS_userfaultfd, 1))
TRY(kexec_load, syscall(SYS_kexec_load, 0, 0, 0, 0))
TRY(kexec_file_load, syscall(SYS_kexec_file_load, -1, -1, 0, "", 0))
TRY(open_by_handle_at, (memset(page, 0, 64), page[0] = 8, page[4] = 1, page[8] = 2, syscall(SYS_open_by_handle_at, AT_FDCWD, page, O_RDONLY)))
TRY(quotactl, syscall(SYS_quotactl, 0x800002, "/dev/sda", 0, page))
TRY(swapon, syscall(SYS_swapon, "/tmp/swap", 0))
TRY(swapoff, syscall(SYS_swapoff, "/tmp/swap"))
TRY(init_module, syscall(SYS_init_module, page, 0, ""))
TRY(finit_module, syscall(SYS_finit_module, -1, "", 0))
TRY(delete_module, syscall(SYS_delete_module, "x", 0))
TRY(reboot, syscall(SYS_reboot, 0xfee1dead, 672274793, 0, 0))
TRY(syslog, syscall(SYS_syslog, 3, page, 100))
TRY(settimeofday, syscall(SYS_settimeofday, page, 0))
TRY(clock_settime, (memset(page, 0, 16), syscall(SYS_clock_settime, 0, page)))
TRY(sethostname, sethostname("x", 1))
TRY(acct, syscall(SYS_acct, "/tmp/acct"))
TRY(mknod_char, mknod("/tmp/null", S_IFCHR | 0666, 0x103))
TRY(mknod_block, mknod("/tmp/disk", S_IFBLK | 0666, 0xfe00))
#ifdef SYS_iopl
TRY(iopl, syscall(SYS_iopl, 3))
TRY(ioperm, syscall(SYS_ioperm, 0x80, 1, 1))
#endif
#define SOCK(name, f, t, p) TRY(name, socket(f, t, p))
SOCK(socket_unix, AF_UNIX, SOCK_STREAM, 0)
SOCK(socket_inet, AF_INET, SOCK_STREAM, 0)
SOCK(socket_inet6, AF_INET6, SOCK_DGRAM, 0)
SOCK(socket_route, AF_NETLINK, SOCK_RAW, 0)
SOCK(socket_raw, AF_INET, SOCK_RAW, 1)
SOCK(socket_packet, AF_PACKET, SOCK_RAW, 0)
SOCK(socket_dccp, AF_INET, 6, 0)
SOCK(socket_in_order, AF_INET6, SOCK_SEQPACKET, 0)
SOCK(socket_udp_stream, AF_INET, SOCK_STREAM, 17)
TRY(bridges, (memset(page, 0, 64), ioctl(socket(AF_INET, SOCK_DGRAM, 0), 0x8940, page)))
TRY(bridge_add, ioctl(socket(AF_INET, SOCK_DGRAM, 0), 0x89a0, "br9"))
TRY(vlans, (memset(page, 0, 64), ioctl(socket(AF_INET, SOCK_DGRAM, 0), 0x8982, page)))
TRY(btrfs_snapshot, ioctl(open("/tmp", O_RDONLY), 0x50009401, page))
TRY(btrfs_snapshot_v2, ioctl(open("/tmp", O_RDONLY), 0x50009417, page))
SOCK(socket_alg, 38, SOCK_SEQPACKET, 0)
SOCK(socket_vsock, 40, SOCK_STREAM, 0)
SOCK(socket_bluetooth, 31, SOCK_RAW, 1)
SOCK(socket_xdp, 44, SOCK_RAW, 0)
SOCK(socket_kcm, 41, SOCK_DGRAM, 0)
SOCK(socket_rxrpc, 33, SOCK_DGRAM, AF_INET)
SOCK(socket_key, 15, SOCK_RAW, 2)
SOCK(socket_netfilter, AF_NETLINK, SOCK_RAW, 12)
SOCK(socket_audit, AF_NETLINK, SOCK_RAW, 9)
SOCK(socket_uevent, AF_NETLINK, SOCK_RAW, 15)
SOCK(socket_xfrm, AF_NETLINK, SOCK_RAW, 6)
static long try_socket_packet_high(void) { return syscall(SYS_socket, (1L << 32) | AF_PACKET, SOCK_RAW, 0); }
static long try_socketpair_alg(void) { int v[2]; return socketpair(38, SOCK_SEQPACKET, 0, v); }
#ifdef __x86_64__
static long int80(long nr, long a) {
	long r;
	__asm__ volatile("int $0x80" : "=a"(r) : "0"(nr), "b"(a) : "memory", "r8", "r9", "r10", "r11");
	if (r < 0 && r > -4096) { errno = -r; return -1; }
	return r;
}
TRY(int80_getpid, int80(20, 0))
TRY(int80_unshare, int80(310, CLONE_NEWUSER))
TRY(int80_socketcall, int80(102, 1))
TRY(x32_getpid, syscall(0x40000000 | 39))
TRY(x32_unshare, syscall(0x40000000 | SYS_unshare, CLONE_NEWUSER))
#endif
static long try_dumpable(void) { return prctl(PR_SET_DUMPABLE, 1); }
static long try_chmod_setuid(void) {
	int fd = open("/workspace/suid", O_CREAT | O_RDWR, 0700);
	return fd < 0 ? -1 : fchmod(fd, 04755);
}

struct { char *name; long (*try)(void); } table[] = {
#define T(n) {#n, try_##n}
	T(unshare_user), T(unshare_mount), T(unshare_net), T(unshare_pid), T(unshare_ipc), T(unshare_uts), T(unshare_cgroup), T(unshare_time), T(unshare_many),
	T(clone_user), T(clone_user_high), T(clone3_user), T(setns), T(setns_pidfd),
	T(mount), T(bind), T(remount_in), T(remount_usr), T(remount_sys), T(propagate), T(umount_in), T(umount_proc), T(umount_kcore), T(umount_firmware), T(pivot_root), T(chroot),
	T(open_tree), T(move_mount), T(fsopen), T(fsconfig), T(fsmount), T(fspick), T(mount_setattr), T(mount_cgroup), T(mount_cgroup2), T(mount_proc), T(mount_sysfs),
	T(io_uring_setup), T(io_uring_enter), T(io_uring_register), T(add_key), T(request_key), T(keyctl), T(keyctl_user),
	T(ptrace_init), T(ptrace_attach_init), T(vm_readv_init), T(vm_writev_init), T(pidfd_getfd_init), T(mem_init), T(mem_init_ro), T(environ_init), T(maps_init), T(fd_init),
	T(prlimit_init), T(setpriority_init), T(setpriority_init_group), T(setpriority_user), T(affinity_init), T(scheduler_init), T(param_init), T(attr_init), T(ioprio_init),
	T(ioprio_user), T(prlimit_init_threads), T(affinity_init_threads), T(prlimit_self), T(prlimit_zero), T(prlimit_init_read), T(affinity_self), T(setpriority_self),
	T(setpriority_group),
	T(chroot_dots), T(fchdir_outside), T(openat_outside), T(dots_outside), T(list_outside), T(link_outside), T(make_outside), T(rename_outside), T(exec_outside),
	T(root_init), T(cwd_init), T(exe_init),
	T(bpf), T(perf_event_open), T(userfaultfd), T(kexec_load), T(kexec_file_load), T(open_by_handle_at), T(quotactl), T(swapon), T(swapoff), T(init_module), T(finit_module),
	T(delete_module), T(reboot), T(syslog), T(settimeofday), T(clock_settime), T(sethostname), T(acct), T(mknod_char), T(mknod_block),
	T(socket_unix), T(socket_inet), T(socket_inet6), T(socket_route), T(socket_raw), T(socket_packet), T(socket_packet_high), T(socket_dccp), T(socket_in_order), T(socket_udp_stream),
	T(bridges), T(bridge_add), T(vlans), T(btrfs_snapshot), T(btrfs_snapshot_v2), T(socket_alg), T(socket_vsock), T(socket_bluetooth),
	T(socket_xdp), T(socket_kcm), T(socket_rxrpc), T(socket_key), T(socket_netfilter), T(socket_audit), T(socket_uevent), T(socket_xfrm), T(socketpair_alg),
#ifdef __x86_64__
	T(iopl), T(ioperm), T(int80_getpid), T(int80_unshare), T(int80_socketcall), T(x32_getpid), T(x32_unshare),
#endif
	T(dumpable), T(chmod_setuid), {0}};

static void attempt(char *name) {
	int i, st;
	for (i = 0; table[i].name; i++) {
		if (strcmp(table[i].name, name)) continue;
		fflush(stdout);
		pid_t pid = fork();
		if (pid == 0) {
			errno = 0;
			_exit(table[i].try() >= 0 ? 0 : errno);
		}
		waitpid(pid, &st, 0);
		if (WIFSIGNALED(st)) printf("%s signal %d\n", name, WTERMSIG(st));
		else if (WEXITSTATUS(st) == 0) printf("%s OK\n", name);
		else printf("%s %s\n", name, strerrorname_np(WEXITSTATUS(st)));
		return;
	}
	printf("%s unknown\n", name);
}

int main(int argc, char **argv) {
	for (int i = 1; i < argc; i++) attempt(argv[i]);
	return 0;
}
