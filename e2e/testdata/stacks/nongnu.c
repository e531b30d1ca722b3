/* Walks its stack by libunwind, which takes the CFA for the caller's stack pointer whatever unwind information says: from
   functions that the C library has called, behind calls of it and jumps to it. Says how many walks have come to main.
   libunwind's headers are not needed. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

enum { RIP = 16, FRAMES = 64, LOCAL = 1 };
extern int _ULx86_64_init_local2(void *cursor, void *context, int flags);
extern int _ULx86_64_step(void *cursor);
extern int _ULx86_64_get_reg(void *cursor, int reg, unsigned long *value);
extern char __start_of_main[], __stop_of_main[];

static int walks, arrived;

static void handler(int sig, siginfo_t *info, void *context)
{
	unsigned long cursor[128], ip;
	(void)sig;
	(void)info;
	walks++;
	_ULx86_64_init_local2(cursor, context, LOCAL); /* the context is a signal's */
	for (int n = 0; n < FRAMES; n++) {
		if (_ULx86_64_get_reg(cursor, RIP, &ip))
			return;
		if (ip >= (unsigned long)__start_of_main && ip < (unsigned long)__stop_of_main) {
			arrived++;
			return;
		}
		if (_ULx86_64_step(cursor) <= 0)
			return;
	}
}

__attribute__((noinline)) int less(const void *a, const void *b)
{
	raise(SIGUSR1);
	return *(const int *)a - *(const int *)b;
}

__attribute__((noinline)) void jumps(int *numbers)
{
	qsort(numbers, 4, sizeof *numbers, less);
}

__attribute__((noinline)) void calls(int *numbers)
{
	qsort(numbers, 4, sizeof *numbers, less);
	numbers[0]++;
}

__attribute__((noinline)) int both(int n)
{
	int numbers[] = {3, 1, n, 2};
	jumps(numbers);
	calls(numbers);
	return numbers[0];
}

__attribute__((section("of_main"))) int main(void)
{
	struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	int sum = 0;
	sigaction(SIGUSR1, &sa, 0);
	for (int i = 0; i < 20; i++)
		sum += both(i);
	printf("sum %d, %d of %d walks come to main\n", sum, arrived, walks);
	return 0;
}
