// Handlers that call traced functions: synchronous, on an alternate stack, nested, and from a timer at a high rate while
// the program is in the middle of entering and leaving functions itself.
//e2e:libs -lrt
#include "count.h"
#include <errno.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>

static volatile sig_atomic_t ticks, sync_hits, nested_hits;
static volatile unsigned sink;
enum { WANT_TICKS = 3000 };

FN static unsigned in_handler(unsigned n) { COUNT(); return n ? KEEP(in_handler(n - 1)) + 1 : 0; }
FN static unsigned leaf(unsigned n) { COUNT(); return n * 7 + 1; }
FN static unsigned spin(unsigned n) { COUNT(); return n ? KEEP(spin(n - 1)) ^ leaf(n) : 1; }
FN static void on_tick(int sig, siginfo_t *si, void *uc)
{
	COUNT();
	(void)sig, (void)si, (void)uc;
	int saved = errno;
	sink += in_handler(3);
	ticks++;
	errno = saved;
}
FN static void on_usr1(int sig)
{
	COUNT();
	sync_hits += (int)in_handler(2) / 2;
	if (sig == SIGUSR1)
		raise(SIGUSR2);
}
FN static void on_usr2(int sig)
{
	COUNT();
	(void)sig;
	nested_hits += (int)in_handler(1);
}
FN static void handle(int sig, void (*h)(int), int flags)
{
	COUNT();
	struct sigaction sa;
	memset(&sa, 0, sizeof sa);
	sa.sa_handler = h;
	sa.sa_flags = flags;
	sigaction(sig, &sa, NULL);
}
FN static void use_alternate_stack(void)
{
	COUNT();
	stack_t st;
	memset(&st, 0, sizeof st);
	st.ss_size = 128 << 10;
	st.ss_sp = malloc(st.ss_size);
	sigaltstack(&st, NULL);
}
FN static int deep_raise(int n)
{
	COUNT();
	if (n == 0)
		return raise(SIGUSR1);
	int r = deep_raise(n - 1);
	__asm__ volatile("");
	return r;
}
FN static void storm(int onstack)
{
	COUNT();
	struct sigaction sa;
	memset(&sa, 0, sizeof sa);
	sa.sa_sigaction = on_tick;
	sa.sa_flags = SA_SIGINFO | SA_RESTART | (onstack ? SA_ONSTACK : 0);
	sigaction(SIGRTMIN, &sa, NULL);
	struct sigevent ev;
	memset(&ev, 0, sizeof ev);
	ev.sigev_notify = SIGEV_SIGNAL;
	ev.sigev_signo = SIGRTMIN;
	timer_t t;
	if (timer_create(CLOCK_MONOTONIC, &ev, &t))
		abort();
	struct itimerspec its = {{0, 100000}, {0, 100000}}; // 10 kHz
	ticks = 0;
	timer_settime(t, 0, &its, NULL);
	errno = 77;
	unsigned n = 0;
	while (ticks < WANT_TICKS)
		sink += spin(n++ % 20);
	int e = errno;
	timer_delete(t);
	say("errno %d\n", e);
}
int main(void)
{
	COUNT();
	handle(SIGUSR1, on_usr1, 0);
	handle(SIGUSR2, on_usr2, 0);
	for (int i = 0; i < 100; i++)
		deep_raise(i % 10);
	say("sync %d nested %d\n", (int)sync_hits, (int)nested_hits);
	use_alternate_stack();
	handle(SIGUSR1, on_usr1, SA_ONSTACK);
	for (int i = 0; i < 100; i++)
		deep_raise(i % 10);
	handle(SIGUSR2, on_usr2, SA_ONSTACK);
	for (int i = 0; i < 100; i++)
		deep_raise(i % 10);
	say("sync %d nested %d\n", (int)sync_hits, (int)nested_hits);
	storm(0);
	storm(1);
	sigset_t old;
	sigprocmask(SIG_BLOCK, NULL, &old);
	say("blocked %d %d\n", sigismember(&old, SIGUSR1), sigismember(&old, SIGRTMIN));
	return 0;
}
