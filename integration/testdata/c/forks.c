// forks [N]: starts processes until one is refused, and prints how many there were. With N it starts at most N, and waits.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
	int n = 0, most = argc > 1 ? atoi(argv[1]) : 5000;
	pid_t pid;
	while (n < most && (pid = fork()) > 0) n++;
	if (n < most && pid == 0) pause();
	printf("%d\n", n);
	fflush(stdout);
	if (argc > 1) pause();
	return 0;
}
