// The library of early.c.
#include <pthread.h>
#include <stddef.h>

extern int early_callback(int n) __attribute__((weak));
static pthread_t thread;
static long sum;
static void *run(void *p)
{
	long s = 0;
	for (int i = 0; i < 50000; i++)
		s += early_callback(i % 100);
	sum = s;
	return p;
}
__attribute__((constructor)) static void start(void) { pthread_create(&thread, NULL, run, NULL); }
int early_wait(void);
int early_wait(void)
{
	if (thread) {
		pthread_join(thread, NULL);
		thread = 0;
	}
	return (int)sum;
}
