// hide HOW DIR [MIB]: takes disk space in DIR by files that have no name, and keeps them where HOW says. Then it waits.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
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

static void take(void) {
	for (int i = 0; i < 40; i++) {
		int fd = nameless();
		if (fd < 0) continue;
		if (!strcmp(how, "mapped")) {
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
	if (!strcmp(how, "empty")) empty();
	else take();
	pause();
}
