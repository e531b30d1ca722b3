/* So many threads as the argument says wait, and the first one calls sum until standard input ends. The status is 7, or 3
   if there cannot be so many. */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

__attribute__((noinline)) long sum(long n)
{
	long r = n ? n + sum(n - 1) : 0;
	__asm__ volatile("" : "+r"(r));
	return r;
}

static void *waits(void *arg)
{
	pause();
	return arg;
}

int main(int argc, char **argv)
{
	struct pollfd in = { 0, POLLIN, 0 };
	pthread_attr_t a;
	pthread_t t;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 64 << 10);
	for (int i = atoi(argv[argc - 1]); i > 0; i--)
		if (pthread_create(&t, &a, waits, 0))
			return 3;
	prctl(PR_SET_NAME, "ready");
	while (!poll(&in, 1, 5))
		sum(10);
	return 7;
}
