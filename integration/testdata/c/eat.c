// eat HOW: uses memory until something stops it.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static char *grab(size_t n) {
	char *p = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return p == MAP_FAILED ? 0 : p;
}

static void eat(size_t total, int pause_us) {
	for (size_t done = 0; done < total; done += 1 << 20) {
		char *p = grab(1 << 20);
		if (!p) { // refused, not killed: keep what there is, and insist
			usleep(1000);
			done -= 1 << 20;
			continue;
		}
		memset(p, 1, 1 << 20);
		if (pause_us) usleep(pause_us);
	}
}

static void *rest(void *x) {
	eat(1UL << 30, 0);
	pause();
}

int main(int argc, char **argv) {
	char *how = argc > 1 ? argv[1] : "anon";
	if (!strcmp(how, "reserve")) {
		for (int i = 0; i < 4; i++)
			if (mmap(0, 1UL << 32, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED) return 1;
		return 0;
	}
	if (!strcmp(how, "leaderless")) { // eight processes, whose main threads exit
		for (int i = 0; i < 8; i++)
			if (fork() == 0) {
				pthread_t t;
				pthread_create(&t, 0, rest, 0);
				pthread_exit(0);
			}
		while (wait(0) > 0) {}
		return 0;
	}
	if (!strcmp(how, "many")) {
		for (int i = 0; i < 8; i++)
			if (fork() == 0) {
				eat(1UL << 30, 0);
				pause();
			}
		while (wait(0) > 0) {}
		return 0;
	}
	eat(2UL << 30, strcmp(how, "slow") ? 0 : 2000);
	return 0;
}
