// fds: opens files until one is refused, in eight processes at once, and says when.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
	struct rlimit l;
	getrlimit(RLIMIT_NOFILE, &l);
	l.rlim_cur = l.rlim_max;
	setrlimit(RLIMIT_NOFILE, &l);
	for (int i = 0; i < 8; i++)
		if (fork() == 0) {
			while (open("/dev/null", O_RDONLY) >= 0) {}
			_exit(0);
		}
	int n = 0;
	while (n < 10000000 && open("/dev/null", O_RDONLY) >= 0) n++;
	int e = errno;
	while (wait(0) > 0) {}
	printf("refused after %d: %s\n", n, strerror(e));
	return 0;
}
