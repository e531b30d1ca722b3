/* Ten coroutines and the one that resumes them call functions at many depths, and are left in the middle of them, also in a
   child that is forked meanwhile. With an argument, they go on for so many seconds. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "swap.h"

enum { COROUTINES = 10, ROUNDS = 300 };

static struct coroutine first, others[COROUTINES];
static long rounds = ROUNDS, sum;
static time_t end;
static pid_t child;

/* What has such a function is taken for an interpreter of Python, which loads libraries with functions such as swap. */
int Py_BytesMain(int argc, char **argv) { return argc + !argv; }

__attribute__((noinline)) long leaf(long n)
{
	__asm__ volatile("");
	return n + 1;
}

/* nested leaves the coroutine at its bottom. */
__attribute__((noinline)) long nested(long n)
{
	if (n)
		return nested(n - 1) + leaf(0);
	swap(&first);
	return leaf(0);
}

__attribute__((noinline)) void body(long id)
{
	for (long k = 0; k < rounds && !(end && time(0) >= end); k++) {
		if (id == 3 && k == 100 && !end) /* the child has calls open that it has inherited */
			child = fork();
		sum += nested((k + id) % 7);
	}
	swap_current->done = 1;
	swap(&first);
	abort();
}

__attribute__((noinline)) void resume(long id)
{
	if (!others[id].done && swap(&others[id]) == 1)
		body(id);
}

/* deep resumes all of them from a depth. */
__attribute__((noinline)) long deep(long n)
{
	if (n)
		return deep(n - 1) + leaf(0);
	for (long i = 0; i < COROUTINES; i++)
		resume(i);
	return leaf(0);
}

int main(int argc, char **argv)
{
	swap_base = __builtin_frame_address(0);
	swap_current = &first;
	if (argc > 1) {
		end = time(0) + atoi(argv[1]);
		rounds = 1L << 60;
		puts("ready");
		fflush(stdout);
	}
	long all = 0;
	for (long k = 0, going = 1; going; k++) {
		all += deep(k % 5) == k % 5 + 1;
		going = 0;
		for (long i = 0; i < COROUTINES; i++)
			going |= !others[i].done;
	}
	if (child)
		waitpid(child, 0, 0);
	if (argc > 1)
		puts(all > 0 && sum > 0 ? "right" : "wrong");
	else
		printf("%ld %ld\n", all, sum);
	return 3;
}
