/* A program with libraries that are traced: see used.c and plugin.c. It prints how often each function was called. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "counts.h"

static jmp_buf back;

FN static long m_leaf(long x)
{
	COUNT(m_leaf);
	return x + 2;
}

FN long m_early(long x)
{
	COUNT(m_early);
	return m_leaf(x);
}

FN static long m_tail(long n, void *other)
{
	COUNT(m_tail);
	return n == 0 ? 1 : ((tail *)other)(n - 1, (void *)m_tail);
}

FN static long m_jump(long n)
{
	COUNT(m_jump);
	longjmp(back, (int)n);
}

FN void m_handler_calls(void)
{
	COUNT(m_handler_calls);
}

static void *thread(void *p)
{
	return (void *)(l_sum(100, m_leaf) + (p != 0));
}

static long plugin(const char *path)
{
	long r = 0;
	for (int i = 0; i < 20; i++) {
		void *h = dlopen(path, RTLD_NOW);
		long (*sum)(long, callback *, long *) = h ? (long (*)(long, callback *, long *))dlsym(h, "p_sum") : 0;
		if (!sum)
			return -1;
		r += sum(10, m_leaf, counts);
		dlclose(h);
	}
	return r;
}

int main(int argc, char **argv)
{
	static const char *const names[] = {
#define X(f) #f,
		FUNCTIONS(X)
#undef X
	};
	static long mine[512] __attribute__((unused));
	pthread_t t[3];
	void *r;
#ifdef SYS_arch_prctl
	if (argc > 2 && strcmp(argv[2], "gs") == 0) /* blocks are then found by the thread pointer */
		syscall(SYS_arch_prctl, 0x1001 /* ARCH_SET_GS */, mine);
#endif
	printf("early %ld\n", l_waited());
	printf("sum %ld %ld\n", l_sum(1000, 0), l_sum(100, m_leaf));
	printf("tail %ld %ld\n", m_tail(100001, (void *)l_tail), l_tail(7, (void *)m_tail));
	volatile int jumps = 0;
	setjmp(back);
	if (++jumps < 50)
		l_through(jumps, m_jump);
	signal(SIGUSR1, l_handler);
	for (int i = 0; i < 20; i++)
		raise(SIGUSR1);
	for (int i = 0; i < 3; i++)
		pthread_create(&t[i], 0, thread, 0);
	for (int i = 0; i < 3; i++) {
		pthread_join(t[i], &r);
		printf("thread %ld\n", (long)r);
	}
	printf("fork %ld\n", l_fork(30));
	printf("plugin %ld\n", argc > 1 ? plugin(argv[1]) : 0);
	for (int i = 0; i < COUNTS; i++)
		printf("%s=%ld\n", names[i], counts[i]);
	return 0;
}
