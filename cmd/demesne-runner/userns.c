// The C half of package userns; the drawing is in runner/userns/userns.go. Everything here runs in a process with one thread.
// It answers every failure with an 'e' message or, without a listener, by exiting.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef KEYCTL_JOIN_SESSION_KEYRING
#define KEYCTL_JOIN_SESSION_KEYRING 1
#endif
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

// As in runner/userns/userns.go.
#define FD_LIFE 7
enum step { USER = 1, MOUNTS, GROUP_ID, USER_ID, GROUPS, JOIN, NETWORK, PRIVATE, EXECUTE, MAP, SLAVES, ATTRIBUTES, NESTED };

static int env_fd(const char *name)
{
	const char *v = getenv(name);
	return v ? atoi(v) : -1;
}

static void tell(int fd, const void *msg, size_t len)
{
	while (write(fd, msg, len) < 0 && errno == EINTR)
		;
}

static void fail(int ctl, enum step step)
{
	char msg[3] = {'e', (char)step, (char)errno};
	tell(ctl, msg, sizeof msg);
	_exit(125);
}

// Unlinks files and empty directories. False at the first it cannot remove; it keeps those after it too: the last is the lock.
static int clean(void)
{
	char *list = getenv("_DEMESNE_CLEAN"), *save = NULL;
	if (!list)
		return 1;
	if (!(list = strdup(list))) // the reaper in Go reads the original
		return 0;
	for (char *p = strtok_r(list, "\n", &save); p; p = strtok_r(NULL, "\n", &save))
		if (unlink(p) < 0 && rmdir(p) < 0 && errno != ENOENT)
			return 0; // no new runner may start before the reaper in Go is done
	return 1;
}

// The program again, in Go: its one argument says for what.
static void again(const char *verb)
{
	char *argv[] = {"demesne-runner", (char *)verb, NULL};

	unsetenv("_DEMESNE_CONTROL");
	execv("/proc/self/exe", argv);
	_exit(125);
}

// The reaper in Go needs only the number of a descriptor.
static void tell_fd(const char *name, int fd)
{
	char number[16];

	if (fd < 0)
		return;
	snprintf(number, sizeof number, "%d", fd);
	setenv(name, number, 1);
}

// A clock that says afterwards whether the machine's was set meanwhile, or -1.
static int watch_clock(void)
{
	struct itimerspec far = {.it_value = {.tv_sec = 1LL << 40}};
	int fd = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK);

	if (fd >= 0 && timerfd_settime(fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &far, NULL) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

// A: waits for B's end. It keeps the lock's descriptor, among all others it inherited, until it exits: a new runner starts
// only after that. The caller's sockets must not be kept, or their other ends would never see EOF.
static void reaper(pid_t child, int ctl, int life, int lock)
{
	char byte = 0, path[64];
	siginfo_t end = {0};
	int clock, tidy;
	ssize_t n;

	prctl(PR_SET_NAME, "demesne-reaper");
	close(ctl);
	for (int fd = 3; fd < 64; fd++)
		if (fd != life && fd != lock)
			close(fd);
	clock = watch_clock();
	for (;;) {
		byte = 0;
		while ((n = read(life, &byte, 1)) < 0 && errno == EINTR)
			;
		if (n != 1 || byte != 't')
			break;
		if ((tidy = fork()) == 0)
			again("tidy");
		if (tidy > 0)
			waitpid(tidy, NULL, 0);
	}
	if (byte == 'c') {
		waitpid(child, NULL, 0);
		if (clean())
			_exit(0);
	} else {
		kill(child, SIGKILL);
		// It was not waited for: it still has its number and its namespace.
		snprintf(path, sizeof path, "/proc/%d/ns/user", (int)child);
		tell_fd("_DEMESNE_USERNS", open(path, O_RDONLY));
		// It stays a child with its number. A filter that kills, as systemd's do, is the machine's refusal.
		if (waitid(P_PID, child, &end, WEXITED | WNOWAIT) == 0 && end.si_code != CLD_EXITED && end.si_status == SIGSYS)
			setenv("_DEMESNE_SIGSYS", "1", 1);
	}
	tell_fd("_DEMESNE_CLOCK", clock);
	again("reap");
}

// The only id there is to be from now on.
static void become_root(int ctl, const char *mode)
{
	if (strcmp(mode, "root") == 0 && setgroups(0, NULL) < 0)
		fail(ctl, GROUPS);
	if (setresgid(0, 0, 0) < 0)
		fail(ctl, GROUP_ID);
	if (setresuid(0, 0, 0) < 0)
		fail(ctl, USER_ID);
	// A change of kuid made the process non-dumpable, and /proc/self root's.
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

// Takes owner's user id, and keeps the capabilities that real root has.
static int own(uid_t owner)
{
	unsigned int head[2] = {0x20080522, 0}, caps[6]; // version 3, this thread; the layout of linux/capability.h

	if (syscall(SYS_capget, head, caps) < 0 || setresuid(-1, owner, -1) < 0)
		return -1;
	return syscall(SYS_capset, head, caps); // leaving uid 0 cleared the effective set, capabilities(7)
}

// H: keeps a user namespace until the caller has opened it. _DEMESNE_OWNER becomes its owner.
static void hold(int ctl)
{
	int owner = env_fd("_DEMESNE_OWNER");
	char byte;

	if (owner >= 0 && own(owner) < 0)
		fail(ctl, USER_ID);
	if (unshare(CLONE_NEWUSER) < 0)
		fail(ctl, USER);
	tell(ctl, "r", 1);
	while (read(ctl, &byte, 1) < 0 && errno == EINTR)
		;
	_exit(0);
}

// C: goes where H is, with mounts and a network of its own.
static void join(int ctl, int ns, const char *mode)
{
	if (setns(ns, CLONE_NEWUSER) < 0)
		fail(ctl, JOIN);
	if (unshare(CLONE_NEWNS | CLONE_NEWNET) < 0)
		fail(ctl, NETWORK);
	become_root(ctl, mode);
	if (fcntl(ns, F_SETFD, FD_CLOEXEC) < 0 || fcntl(ctl, F_SETFD, FD_CLOEXEC) < 0)
		fail(ctl, JOIN);
}

static void runner(int ctl, const char *mode)
{
	char byte;
	ssize_t n;

	// The caller's session keyring stays with the caller. One for all sandboxes, which cannot reach it (P5 in ../../seccomp):
	// a user may have 200 keys, so one each would be 200 sandboxes. Where keyctl(2) is refused, the filter is all there is.
	syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
	if (strcmp(mode, "minimal") != 0) {
		if (unshare(CLONE_NEWUSER) < 0)
			fail(ctl, USER);
		// Ubuntu's AppArmor allows the first and refuses this one.
		if (unshare(CLONE_NEWNS | CLONE_NEWCGROUP) < 0)
			fail(ctl, MOUNTS);
		// AppArmor's profile of Docker and systemd's @system-service allow both and refuse mounts.
		if (mount("", "/", "", MS_REC | MS_SLAVE, "") < 0)
			fail(ctl, SLAVES);
		if (syscall(442, -1, "", 0, NULL, 0) < 0 && errno == ENOSYS) // mount_setattr
			fail(ctl, ATTRIBUTES);
		// A sandbox's namespace is nested in this one. Without a map the kernel refuses it, but only after it has counted.
		if (unshare(CLONE_NEWUSER) < 0 && (errno == ENOSPC || errno == EUSERS))
			fail(ctl, NESTED);
	} else {
		// Landlock and seccomp are all that confines a sandbox here. The @system-service of systemd 252 kills for both.
		syscall(444, NULL, 0, 1); // landlock_create_ruleset: the version
		syscall(SYS_seccomp, 2, 0, NULL); // whether an action exists
	}
	tell(ctl, "r", 1);
	while ((n = read(ctl, &byte, 1)) < 0 && errno == EINTR)
		;
	if (n != 1 || byte != 'g')
		_exit(125);
	if (strcmp(mode, "minimal") != 0)
		become_root(ctl, mode);
}

void demesne_userns(void)
{
	int ctl = env_fd("_DEMESNE_CONTROL"), ns = env_fd("_DEMESNE_USERNS"), life[2];
	const char *mode = getenv("_DEMESNE_MODE");
	char msg[1 + sizeof(int)];
	pid_t pid;

	if (ctl < 0 || !mode)
		return;
	if (strcmp(mode, "hold") == 0)
		hold(ctl);
	if (ns >= 0) {
		join(ctl, ns, mode);
		return;
	}
	// Go's monitor thread sleeps 20 us at a time while anything runs, each a timer interrupt. Here and in what this starts, one
	// in 200 us will do; more delays Go's scheduler, which sleeps too. demesne-init gives commands the default back.
	prctl(PR_SET_TIMERSLACK, 200000UL, 0, 0, 0);
	if (pipe(life) < 0)
		fail(ctl, USER);
	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	pid = fork();
	if (pid < 0)
		fail(ctl, USER);
	if (pid > 0) {
		int p = pid;
		msg[0] = 'p';
		memcpy(msg + 1, &p, sizeof p);
		tell(ctl, msg, sizeof msg);
		close(life[1]);
		reaper(pid, ctl, life[0], env_fd("_DEMESNE_LOCK"));
	}
	close(life[0]);
	runner(ctl, mode);
	// ctl stays open: the Go side reads the rest of the message from it. The Go runtime takes its environment from the
	// stack and would not see a setenv(3): the descriptor has a fixed number instead.
	if (dup2(life[1], FD_LIFE) < 0)
		_exit(125);
	close(life[1]);
	syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC);
}
