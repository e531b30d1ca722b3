// A program that works in its first thread, in one that begins early, and in one that begins when there is input.
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

__attribute__((noinline)) static void inner(volatile long *x)
{
	for (int i = 0; i < 100000; i++)
		*x += i;
}
__attribute__((noinline)) static void *early(void *p)
{
	for (volatile long x = 0;;)
		inner(&x);
	return p;
}
__attribute__((noinline)) static void *late(void *p)
{
	for (volatile long x = 1;;)
		inner(&x);
	return p;
}

int main(void)
{
	pthread_t t;
	struct pollfd in = { 0, POLLIN, 0 };
	char c;
	volatile long x = 0;
	pthread_create(&t, 0, early, 0);
	puts("ready");
	fflush(stdout);
	for (;;) {
		inner(&x);
		if (poll(&in, 1, 0) > 0 && read(0, &c, 1) == 1)
			pthread_create(&t, 0, late, 0);
	}
}
