// tiocsti: tries to type into every terminal it can reach. Exits 1 if one took it.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static int took(int fd, char *what) {
	unsigned long cmds[] = {0x5412, 0x5412UL | 1UL << 32, 0x5412UL | 0xffffffffUL << 32, 0x541c, 0x541cUL | 1UL << 32};
	char *text = "INJECTED\n", two[2] = {2, 0};
	for (int i = 0; i < 5; i++)
		for (char *p = text; *p; p++)
			if (syscall(SYS_ioctl, fd, cmds[i], i < 3 ? p : two) == 0) {
				fprintf(stderr, "%s took %lx\n", what, cmds[i]);
				return 1;
			}
	return 0;
}

int main(void) {
	char *paths[] = {"/dev/tty", "/dev/console", "/dev/tty0", "/dev/tty1", "/dev/pts/0", "/dev/pts/1", "/dev/stdin", "/proc/self/fd/0", "/proc/self/fd/1", "/proc/1/fd/0"};
	int bad = took(0, "stdin") | took(1, "stdout") | took(2, "stderr");
	for (unsigned i = 0; i < sizeof paths / sizeof *paths; i++) {
		int fd = open(paths[i], O_RDWR | O_NOCTTY);
		if (fd < 0) fd = open(paths[i], O_RDONLY | O_NOCTTY);
		if (fd >= 0) bad |= took(fd, paths[i]);
	}
	return bad;
}
