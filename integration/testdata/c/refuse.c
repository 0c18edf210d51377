// refuse WHAT=ERROR… CMD ARG…: executes CMD under a seccomp filter that refuses system calls. WHAT is a name of the
// table below, or AF_ and the name of a family, of which socket(2) then makes no socket. @mount is systemd's group of
// that name. ~@system-service is what systemd 252 knows and leaves out of that group: Landlock and seccomp(2) too, which
// are @sandbox. ERROR is an error's number, or "kill": the call then ends the process with SIGSYS, as in systemd's units;
// or "allow", for a call that a later group has too. links is linkat(2) of /proc/self/fd, which names a file without a name.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct { char *name; int value; } calls[] = {
	{"mount", SYS_mount}, {"umount2", SYS_umount2}, {"openat2", 437}, {"unshare", SYS_unshare}, {"chroot", SYS_chroot},
	{"pivot_root", SYS_pivot_root}, {"mount_setattr", 442}, {"landlock", 444}, {"move_mount", 429}, {"close_range", 436},
	{"keyctl", SYS_keyctl}, {"sethostname", SYS_sethostname}, {"pidfd_open", 434}, {"setns", SYS_setns}};
static const int mounts[] = {SYS_mount, SYS_umount2, SYS_chroot, SYS_pivot_root, 428, 429, 430, 431, 432, 433, 442, 467};
static const int sandbox[] = {SYS_seccomp, 444, 445, 446};
static const int outside[] = {
	27, 101, 103, 134, 136, 139, 153, 154, 155, 156, 159, 161, 163, 164, 165, 166, 167, 168, 169, 170, 171, 172,
	173, 174, 175, 176, 177, 178, 179, 181, 182, 183, 184, 185, 212, 227, 236, 246, 298, 300, 301, 304, 305, 313,
	317, 320, 321, 329, 330, 331, 428, 429, 430, 431, 432, 433, 438, 442, 443, 444, 445, 446, 447, 448};
#define GROUP(name, calls) {name, calls, sizeof calls / sizeof *calls}
static const struct { char *name; const int *calls, length; } groups[] = {
	GROUP("@mount", mounts), GROUP("@sandbox", sandbox), GROUP("~@system-service", outside)};
static const struct { char *name; int value; } families[] = {
	{"AF_UNIX", AF_UNIX}, {"AF_NETLINK", AF_NETLINK}, {"AF_INET", AF_INET}, {"AF_INET6", AF_INET6}};

static struct sock_filter f[256];
static int n;

static void add(struct sock_filter s) { f[n++] = s; }

static void refuse(int value, unsigned how) {
	add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
	add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, how));
}

int main(int argc, char **argv) {
	char *family[8], *what;
	unsigned hows[8];
	int i, k = 0;

	add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
	for (argv++; *argv && strchr(*argv, '='); argv++) {
		what = strtok(*argv, "=");
		char *error = strtok(NULL, "=");
		unsigned how = SECCOMP_RET_ERRNO | atoi(error);
		if (!strcmp(error, "kill"))
			how = SECCOMP_RET_KILL_PROCESS;
		else if (!strcmp(error, "allow"))
			how = SECCOMP_RET_ALLOW;
		int before = n;
		for (i = 0; i < sizeof groups / sizeof *groups; i++)
			for (int m = 0; !strcmp(what, groups[i].name) && m < groups[i].length; m++)
				refuse(groups[i].calls[m], how);
		for (i = 0; i < sizeof calls / sizeof *calls; i++)
			if (!strcmp(what, calls[i].name))
				refuse(calls[i].value, how);
		if (!strcmp(what, "links")) {
			add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_linkat, 0, 4));
			add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[4])));
			refuse(AT_SYMLINK_FOLLOW, how);
			add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
		}
		if (!strncmp(what, "AF_", 3) && k < 8) {
			family[k] = what;
			hows[k++] = how;
		} else if (n == before) {
			fprintf(stderr, "refuse: unknown call %s\n", what);
			return 125;
		}
	}
	if (k) {
		add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 1, 0));
		add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
		add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])));
		while (k--)
			for (i = 0; i < sizeof families / sizeof *families; i++)
				if (!strcmp(family[k], families[i].name))
					refuse(families[i].value, hows[k]);
	}
	add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
	struct sock_fprog p = {n, f};
	if (!*argv || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p)) {
		perror("refuse");
		return 125;
	}
	execv(*argv, argv);
	perror(*argv);
	return 127;
}
