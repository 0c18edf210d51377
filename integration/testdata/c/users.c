// users: starts processes as one user after the other, as many of each as it is let, up to 2000 in all. Then it waits.
#define _GNU_SOURCE
#include <grp.h>
#include <sys/types.h>
#include <unistd.h>

int main(void) {
	for (int user = 1000; user < 1100; user++)
		if (fork() == 0) {
			setgroups(0, 0);
			if (setresgid(user, user, user) || setresuid(user, user, user)) _exit(1);
			for (int i = 0; i < 20; i++)
				if (fork() == 0) break;
			pause();
		}
	pause();
}
