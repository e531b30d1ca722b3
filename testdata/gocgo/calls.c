#include "calls.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

extern int goCallback(int);
extern int goPanics(int);

static atomic_long counts[FUNCTIONS];
static const char *const names[] = {
	"leaf", "recurse", "calls", "run", "on_thread", "through", "jumps", "fall", "handle", "handled", "work", "storm",
};

const char *c_name(int function) { return names[function]; }
long c_count(int function) { return counts[function]; }

// As it is written: not inlined, not specialised.
#define TRACED __attribute__((noipa))
#define COUNT(f) counts[f]++
#define NO_TAIL_CALL __asm__ volatile("")

TRACED int leaf(int n)
{
	COUNT(LEAF);
	return n * 3;
}

TRACED int recurse(int n)
{
	COUNT(RECURSE);
	return n ? recurse(n - 1) + leaf(1) : leaf(n);
}

// Go calls this, which calls Go, which calls this.
TRACED int calls(int n)
{
	COUNT(CALLS);
	return n ? goCallback(n) + leaf(n) : 0;
}

TRACED void *run(void *p)
{
	COUNT(RUN);
	*(int *)p = goCallback(*(int *)p);
	return 0;
}

TRACED int on_thread(int n)
{
	COUNT(ON_THREAD);
	pthread_t t;
	if (pthread_create(&t, 0, run, &n))
		return -1;
	pthread_join(t, 0);
	return n;
}

// A panic passes this.
TRACED int through(int n)
{
	COUNT(THROUGH);
	return n ? through(n - 1) + leaf(n) : goPanics(n);
}

TRACED void fall(jmp_buf to, int n)
{
	COUNT(FALL);
	if (n == 0)
		longjmp(to, 1);
	fall(to, n - 1);
	leaf(n);
}

TRACED int jumps(int n)
{
	COUNT(JUMPS);
	jmp_buf here;
	if (setjmp(here) == 0)
		fall(here, n);
	return leaf(n);
}

TRACED void handled(int n)
{
	COUNT(HANDLED);
	if (n)
		handled(n - 1);
	NO_TAIL_CALL;
}

TRACED void handle(int signo)
{
	COUNT(HANDLE);
	handled(signo % 4 + 1);
}

void handle_signals(void)
{
	struct sigaction a;
	memset(&a, 0, sizeof a);
	a.sa_handler = handle;
	a.sa_flags = SA_ONSTACK | SA_RESTART;
	sigaction(SIGUSR1, &a, 0);
}

struct work {
	int n;
	atomic_int done;
};

TRACED void *work(void *p)
{
	COUNT(WORK);
	struct work *w = p;
	int sum = 0;
	for (int i = 0; i < w->n; i++)
		sum += goCallback(i) + recurse(i);
	w->n = sum;
	w->done = 1;
	return 0;
}

// Signals come to a thread whatever it does, in C or in Go. It is joined, so all its handlers have ended then.
TRACED int storm(int n)
{
	COUNT(STORM);
	struct work w = { n };
	pthread_t t;
	if (pthread_create(&t, 0, work, &w))
		return -1;
	for (int i = 0; i < 200 && !w.done; i++) {
		pthread_kill(t, SIGUSR1);
		raise(SIGUSR1);
		usleep(50);
	}
	pthread_join(t, 0);
	return w.n;
}
