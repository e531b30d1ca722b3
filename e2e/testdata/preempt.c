// A signal handler that makes so many traced calls that it fills several chunks, wherever it interrupts the tracer.
#include "count.h"
#include <signal.h>
#include <sys/time.h>

enum { CALLS = 20000, HANDLERS = 100 };

static volatile long sum;
static volatile sig_atomic_t handled;

FN static void leaf_of_handler(void)
{
	COUNT();
	sum++;
}

FN static void handler(int sig)
{
	COUNT();
	(void)sig;
	for (int i = 0; i < CALLS; i++)
		leaf_of_handler();
	handled++;
}

FN static void leaf(void)
{
	COUNT();
	sum++;
}

// The next signal comes at another instruction each time.
FN static void arm(int n)
{
	COUNT();
	struct itimerval t = {.it_value = {0, 300 + n * 37 % 200}};
	setitimer(ITIMER_REAL, &t, NULL);
}

FN int main(void)
{
	COUNT();
	struct sigaction sa = {.sa_handler = handler};
	sigaction(SIGALRM, &sa, NULL);
	for (int n = 0; n < HANDLERS; n++) {
		int before = handled;
		arm(n);
		while (handled == before)
			leaf();
	}
	say("%d handlers\n", (int)handled);
	return 0;
}
