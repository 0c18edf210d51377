// forks: starts processes until one is refused, and prints how many there were.
#include <stdio.h>
#include <unistd.h>

int main(void) {
	int n = 0;
	pid_t pid;
	while (n < 5000 && (pid = fork()) > 0) n++;
	if (n < 5000 && pid == 0) pause();
	printf("%d\n", n);
	return 0;
}
