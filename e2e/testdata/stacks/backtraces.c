// Calls in many ways of a function that says what libgcc thinks its callers are: "bt PC PC ...", the innermost first. It
// makes a system call, too.
#include <alloca.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) int leaf(int x)
{
	void *pcs[1200];
	int n = backtrace(pcs, 1200);
	pthread_mutex_lock(&one);
	printf("bt");
	for (int i = 1; i < n; i++)
		printf(" %lx", (unsigned long)pcs[i]);
	printf("\n");
	pthread_mutex_unlock(&one);
	syscall(SYS_getppid);
	return x + 1;
}

__attribute__((noinline)) int mid(int x) { return leaf(x) + 1; }
__attribute__((noinline)) int deep(int n) { return n ? deep(n - 1) + 1 : mid(n); }
__attribute__((noinline)) int even(int n);
__attribute__((noinline)) int odd(int n) { return n ? even(n - 1) + 2 : leaf(n); }
__attribute__((noinline)) int even(int n) { return n ? odd(n - 1) + 3 : leaf(n); }

// Relative to rbp, which is not where the frame is.
__attribute__((noinline)) int room(int n)
{
	char *b = alloca(n);
	memset(b, 1, n);
	return deep(2) + b[n - 1];
}

// The stack is aligned.
__attribute__((noinline)) int aligned(int n)
{
	_Alignas(64) volatile char b[64];
	b[n & 63] = 1;
	return mid(n) + b[n & 63];
}

static int compare(const void *a, const void *b) { return leaf(*(const int *)a) - leaf(*(const int *)b); }
static void handler(int signo) { deep(signo & 1); }
static void *thread(void *p) { return (void *)(long)(deep(3) + room(*(int *)p)); }

static void *alternate(void *p)
{
	static char memory[64 << 10];
	stack_t ss = { .ss_sp = memory, .ss_size = sizeof memory };
	sigaltstack(&ss, 0);
	raise(SIGUSR2);
	return p;
}

int main(void)
{
	int v[] = { 3, 1, 2 }, hundred = 100;
	pthread_t t;
	struct sigaction sa = { .sa_handler = handler };
	sigaction(SIGUSR1, &sa, 0);
	sa.sa_flags = SA_ONSTACK;
	sigaction(SIGUSR2, &sa, 0);
	leaf(0);
	deep(5);
	deep(450);
	even(4);
	room(300);
	aligned(7);
	qsort(v, 3, sizeof *v, compare);
	raise(SIGUSR1);
	pthread_create(&t, 0, thread, &hundred);
	pthread_join(t, 0);
	pthread_create(&t, 0, alternate, &hundred);
	pthread_join(t, 0);
	return 0;
}
