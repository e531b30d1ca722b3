/* Functions of a program and of a library end by jumping to each other, interrupted by a handler that does the same. Says how often
   each is called. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include "tails.h"

enum { ROUNDS = 30000, LONG = 9 };

static long handled;

/* bounce and the library's return_ball jump to each other, n times. */
__attribute__((noinline)) long bounce(long n) { return n ? return_ball(n - 1) : 1; }

static void handler(int signal)
{
	(void)signal;
	handled += bounce(3);
}

int main(void)
{
	struct sigaction sa = { .sa_handler = handler, .sa_flags = SA_RESTART };
	struct itimerval timer = { { 0, 150 }, { 0, 150 } }, none = { { 0, 0 }, { 0, 0 } };
	sigaction(SIGALRM, &sa, 0);
	setitimer(ITIMER_REAL, &timer, 0);
	long sum = 0;
	for (long i = 0; i < ROUNDS; i++)
		sum += bounce(i % LONG);
	setitimer(ITIMER_REAL, &none, 0);
	long bounces = 0, returns = 0;
	for (long i = 0; i < ROUNDS; i++) {
		bounces += i % LONG / 2 + 1;
		returns += (i % LONG + 1) / 2;
	}
	printf("bounce %ld\nreturn_ball %ld\n", bounces + 2 * handled, returns + 2 * handled);
	return sum == ROUNDS && handled ? 0 : 1;
}
