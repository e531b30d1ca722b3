/* A library that is traced: its program calls it, is called back, jumps through it, and forks in it. A thread of its
   constructor calls back into the program before main. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "counts.h"

long *counts;
extern long m_early(long) __attribute__((weak));
extern void m_handler_calls(void) __attribute__((weak));
static pthread_t thread;
static long early;

FN static long l_leaf(long x)
{
	COUNT(l_leaf);
	return x + 1;
}

FN long l_early(long n)
{
	COUNT(l_early);
	return (m_early ? m_early(n) : n) + l_leaf(n);
}

static void *run(void *p)
{
	for (long i = 0; i < 1000; i++)
		early += l_early(i);
	return p;
}

__attribute__((constructor(101))) static void begin(void)
{
	counts = mmap(0, COUNTS * sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (counts == MAP_FAILED || pthread_create(&thread, 0, run, 0))
		abort();
}

long l_waited(void)
{
	pthread_join(thread, 0);
	return early;
}

FN long l_sum(long n, callback *f)
{
	long r = 0;
	COUNT(l_sum);
	for (long i = 0; i < n; i++)
		r += l_leaf(i) + (f ? f(i) : 0);
	return r;
}

/* Jumps to another image's function, which jumps back. */
FN long l_tail(long n, void *other)
{
	COUNT(l_tail);
	return n == 0 ? 1 : ((tail *)other)(n - 1, (void *)l_tail);
}

/* Calls a function that does not come back here. */
FN long l_through(long n, callback *f)
{
	COUNT(l_through);
	return f(n) + l_leaf(n);
}

FN void l_handler(int sig)
{
	(void)sig;
	COUNT(l_handler);
	if (m_handler_calls)
		m_handler_calls();
}

FN long l_fork(long n)
{
	int status = 0;
	COUNT(l_fork);
	pid_t child = fork();
	if (child == 0)
		_exit((int)l_sum(n, 0) & 63);
	waitpid(child, &status, 0);
	return WEXITSTATUS(status) + l_leaf(n);
}
