// Threads that are somewhere: blocked in the depth of a recursion, running, in a signal's handler on the thread's own
// stack and on an alternate one, in a frame that only rbp knows. The program says when all are there.
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static atomic_int there;
volatile int forever = 1;

__attribute__((noinline)) static void stay(void)
{
	there++;
	while (forever)
		pause();
}

__attribute__((noinline)) static int deep(int n)
{
	if (n)
		return deep(n - 1) + 1;
	stay();
	return 0;
}

__attribute__((noinline)) static int spin(int x)
{
	there++;
	while (forever)
		x = x * 3 + 1;
	return x;
}

__attribute__((noinline)) static int around(int x) { return spin(x) + 1; }

// The stack pointer's distance from the frame is known at run time only.
__attribute__((noinline)) static int room(int n)
{
	char *b = alloca(n);
	memset(b, 1, n);
	return deep(1) + b[n - 1];
}

static void handler(int signo)
{
	(void)signo;
	deep(2);
}

static void *recurse(void *p) { return (void *)(long)deep(*(int *)p); }
static void *run(void *p) { return (void *)(long)around(*(int *)p); }
static void *alloc(void *p) { return (void *)(long)room(100 * *(int *)p); }

static void *interrupted(void *p)
{
	static char memory[64 << 10];
	stack_t ss = { .ss_sp = memory, .ss_size = sizeof memory };
	sigaltstack(&ss, 0);
	raise(SIGUSR1 + *(int *)p);
	return 0;
}

int main(void)
{
	void *(*const body[])(void *) = { recurse, run, alloc, interrupted };
	static int five = 5, none;
	struct sigaction sa = { .sa_handler = handler };
	sigaction(SIGUSR1 + 2, &sa, 0);
	sa.sa_flags = SA_ONSTACK;
	sigaction(SIGUSR1, &sa, 0);
	for (int i = 0; i < 4; i++) {
		pthread_t t;
		if (pthread_create(&t, 0, body[i], i == 3 ? &none : &five))
			return 1;
	}
	while (there < 4)
		usleep(1000);
	puts("ready");
	fflush(stdout);
	raise(SIGUSR1 + 2);
	return 0;
}
