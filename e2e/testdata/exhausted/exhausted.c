// A thread that comes to the end of its stack again and again, on which its handler has it go on elsewhere.
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define FN __attribute__((noinline))
#define TIMES 400

static sigjmp_buf again;
static volatile int ends;

FN static void handler(int sig)
{
	(void)sig;
	ends++;
	siglongjmp(again, 1);
}
FN static int deeper(int n)
{
	int r = deeper(n + 1);
	__asm__ volatile("");
	return r + n;
}
FN static void *thread(void *arg)
{
	stack_t ss = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
	struct sigaction sa = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
	sigaltstack(&ss, NULL);
	sigaction(SIGSEGV, &sa, NULL);
	for (volatile int i = 0; i < TIMES; i++)
		if (!sigsetjmp(again, 1))
			deeper(0);
	return arg;
}

int main(void)
{
	pthread_attr_t attr;
	pthread_t t;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 1 << 18);
	if (pthread_create(&t, &attr, thread, NULL))
		return 1;
	pthread_join(t, NULL);
	printf("%d times\n", ends);
	return ends != TIMES;
}
