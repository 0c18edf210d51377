// threads: starts threads until one is refused, and prints how many there were.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void *wait_(void *p) { pause(); return 0; }

int main(void) {
	pthread_t t;
	pthread_attr_t a;
	int n = 0;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 65536);
	while (n < 5000 && pthread_create(&t, &a, wait_, 0) == 0) n++;
	printf("%d\n", n);
	return 0;
}
