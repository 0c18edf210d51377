// hide HOW DIR [MIB]: takes disk space in DIR by files that have no name, and keeps them where HOW says. Then it waits.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char *how, *dir;
static int mib = 8;

static int fill(int fd) {
	static char block[1 << 20];
	memset(block, 1, sizeof block);
	for (int i = 0; i < mib; i++)
		if (write(fd, block, sizeof block) != sizeof block) return -1;
	return fd;
}

static int nameless(void) {
	int fd = open(dir, O_TMPFILE | O_RDWR, 0600);
	return fd < 0 ? -1 : fill(fd);
}

// send puts fd into a socket pair that only this process has, and closes it.
static void send_away(int fd) {
	int pair[2];
	char b = 0, room[CMSG_SPACE(sizeof fd)] = {0};
	struct iovec v = {&b, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	sendmsg(pair[0], &m, 0);
	close(pair[0]), close(fd);
}

// slow makes a look expensive: processes with many mappings of one file. They stay.
static void slow(void) {
	int fd = open(dir, O_TMPFILE | O_RDWR, 0600);
	ftruncate(fd, 4096);
	for (int n = 0; n < 60000; n++) mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0);
	for (int i = 0; i < 20; i++)
		if (fork() == 0)
			for (;;) pause();
}

// descriptors makes a look expensive too: processes with as many descriptors as they may have. stop stops them.
static void descriptors(int stop) {
	int fd = open(dir, O_TMPFILE | O_RDWR, 0600);
	while (dup(fd) >= 0);
	for (int i = 0; i < 20; i++)
		if (fork() == 0) {
			if (stop) raise(SIGSTOP);
			for (;;) pause();
		}
	for (int n = 0; n < 64; n++) close(1023 - n); // room for what this process hides
}

// stopped hides one file in each of 40 processes that are stopped.
static void stopped(void) {
	for (int i = 0; i < 40; i++) {
		if (fork() == 0) {
			nameless();
			raise(SIGSTOP);
		}
		usleep(50000);
	}
}

// churn makes and removes files without end.
static void churn(void) {
	for (int i = 0; i < 4; i++)
		if (fork() == 0)
			for (unsigned n = 0;; n++) {
				char path[4096];
				snprintf(path, sizeof path, "%s/%d-%u", dir, i, n);
				close(open(path, O_CREAT | O_WRONLY, 0644));
				if (n > 300) snprintf(path, sizeof path, "%s/%d-%u", dir, i, n - 300);
				unlink(path);
			}
}

// chain keeps files open in processes that each live for a moment.
static void chain(void) {
	if (fork() > 0)
		for (;;) pause();
	for (int n = 0;; n++) {
		if (n < 4000 && n % 50 == 0) nameless();
		if (fork() > 0) _exit(0);
	}
}

// program becomes a program of some MiB in dir that has no name, and unmaps it.
static void program(void) {
	static const unsigned char code[] = { // munmap of its arguments, and then pause or ppoll for ever
#ifdef __x86_64__
		0xb8, 11, 0, 0, 0, 0x0f, 0x05, 0xb8, 34, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7
#else
		0xe8, 0x1a, 0x80, 0xd2, 0x01, 0, 0, 0xd4, 0, 0, 0x80, 0xd2, 1, 0, 0x80, 0xd2, 2, 0, 0x80, 0xd2, 3, 0, 0x80, 0xd2,
		0x28, 9, 0x80, 0xd2, 1, 0, 0, 0xd4, 0xf9, 0xff, 0xff, 0x17
#endif
	};
	char *page = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(page, code, sizeof code);
	__builtin___clear_cache(page, page + sizeof code);
	((void (*)(long, long))page)(0x400000, 0x400000);
}

static void programs(char **argv) {
	for (int i = 0; i < 40; i++) {
		char path[4096], link[64];
		snprintf(path, sizeof path, "%s/program%d", dir, i);
		int in = open("/proc/self/exe", O_RDONLY), fd = open(path, O_CREAT | O_RDWR, 0755), n;
		static char block[1 << 16];
		while ((n = read(in, block, sizeof block)) > 0) write(fd, block, n);
		fill(fd);
		close(fd), close(in);
		if (fork() == 0) {
			argv[1] = "program";
			execv(path, argv);
			_exit(1);
		}
		usleep(100000);
		unlink(path);
	}
}

static void take(void) {
	for (int i = 0; i < 40; i++) {
		int fd = nameless();
		if (fd < 0) continue;
		if (!strcmp(how, "mapped") || !strcmp(how, "slow") || !strcmp(how, "churn")) {
			mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0);
			close(fd);
		}
		if (!strcmp(how, "sent")) send_away(fd);
		usleep(50000);
	}
}

// empty makes files that take nothing but an inode each.
static void empty(void) {
	char path[4096];
	for (int d = 0; d < 64; d++) {
		snprintf(path, sizeof path, "%s/%d", dir, d);
		mkdir(path, 0755);
		for (int i = 0; i < 1000; i++) {
			snprintf(path, sizeof path, "%s/%d/%d", dir, d, i);
			close(open(path, O_CREAT | O_WRONLY, 0644));
		}
	}
}

static void *thread(void *x) {
	if (!strcmp(how, "table")) unshare(CLONE_FILES);
	take();
	pause();
}

int main(int argc, char **argv) {
	pthread_t t;
	how = argv[1], dir = argv[2];
	if (argc > 3) mib = atoi(argv[3]);
	if (!strcmp(how, "thread") || !strcmp(how, "table")) {
		pthread_create(&t, 0, thread, 0);
		if (!strcmp(how, "thread")) pthread_exit(0); // the main thread has no descriptors any more
		pause();
	}
	if (!strcmp(how, "program")) program();
	if (!strcmp(how, "programs")) programs(argv);
	if (!strcmp(how, "chain")) chain();
	if (!strcmp(how, "slow")) slow();
	if (!strcmp(how, "churn")) churn();
	if (!strcmp(how, "descriptors")) descriptors(0);
	if (!strcmp(how, "stopped")) descriptors(1), stopped();
	if (!strcmp(how, "empty")) empty();
	else take();
	pause();
}
