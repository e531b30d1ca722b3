/* A program that profiles itself: a signal comes at any instruction, and its handler looks for its callers. With an argument threads
   are cancelled at any instruction, too. It is called "ready" and runs until its standard input ends. */
#define _GNU_SOURCE
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static volatile long whole, broken, total, started, cleaned;
static volatile int over, working;

NOINLINE long leaf(long n) { return n ^ total; }
NOINLINE long middle(long n) { long r = leaf(n) + leaf(n + 1); __asm__ volatile(""); return r; }
NOINLINE long outer(long n) { long r = middle(n) + leaf(n); __asm__ volatile(""); return r; }

/* What all that is called by, in a section whose bounds are known. */
extern char __start_outermost[], __stop_outermost[];
NOINLINE __attribute__((section("outermost"))) void work(void)
{
	working = 1;
	for (long i = 0; !over; i++)
		total += outer(i);
	working = 0;
}

static void profile(int sig)
{
	void *pcs[64];
	int saved = errno, n = working ? backtrace(pcs, 64) : 0;
	for (int i = 0; i < n; i++) {
		if (pcs[i] >= (void *)__start_outermost && pcs[i] <= (void *)__stop_outermost) {
			whole++;
			errno = saved;
			return;
		}
	}
	broken += working;
	errno = saved;
}

static void clean(void *p) { cleaned++; }

static void *cancelled(void *p)
{
	sigset_t prof;
	sigemptyset(&prof);
	sigaddset(&prof, SIGPROF);
	pthread_sigmask(SIG_BLOCK, &prof, 0);
	pthread_cleanup_push(clean, 0);
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
	for (;;)
		outer(1);
	pthread_cleanup_pop(0);
	return 0;
}

static void *cancels(void *p)
{
	for (pthread_t t; !over; started++) {
		pthread_create(&t, 0, cancelled, 0);
		usleep(700);
		pthread_cancel(t);
		pthread_join(t, 0);
	}
	return 0;
}

static void *ends(void *p)
{
	char c;
	while (read(0, &c, 1) > 0)
		;
	over = 1;
	return 0;
}

int main(int argc, char **argv)
{
	pthread_t t, u;
	void *pcs[1];
	sigset_t prof;
	struct itimerval every = { { 0, 1000 }, { 0, 1000 } };
	backtrace(pcs, 1); /* loads the unwinder */
	sigemptyset(&prof);
	sigaddset(&prof, SIGPROF);
	pthread_sigmask(SIG_BLOCK, &prof, 0);
	pthread_create(&t, 0, ends, 0);
	if (argc > 1)
		pthread_create(&u, 0, cancels, 0);
	pthread_sigmask(SIG_UNBLOCK, &prof, 0);
	signal(SIGPROF, profile);
	setitimer(ITIMER_PROF, &every, 0);
	prctl(PR_SET_NAME, "ready");
	work();
	pthread_join(t, 0);
	if (argc > 1)
		pthread_join(u, 0);
	if (!whole || broken || cleaned != started)
		printf("%ld of %ld backtraces are broken, %ld of %ld threads were cleaned up\n", broken, whole + broken, cleaned, started);
	else
		puts("right");
	return 7;
}
