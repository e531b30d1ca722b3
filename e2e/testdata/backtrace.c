// backtrace() and _Unwind_Backtrace name the same functions as in the untraced program, from calls, from a handler and in a thread.
// All functions live in one section, so that frames outside the program (and the tracer's own) are left out by address.
//e2e:cflags -fasynchronous-unwind-tables
// musl has no backtrace()
//e2e:compilers gcc clang
#include "count.h"
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <unwind.h>

extern char __start_bttext[], __stop_bttext[];
#define BT __attribute__((noinline, section("bttext"), used))
BT void leaf_of_all(void);
BT int mid(int n);
BT int recurse(int n);
BT void on_signal(int sig);
BT void *in_thread(void *p);
BT int outer(int n);
BT int sorted(const void *a, const void *b);
BT int main(void);

static const struct {
	const char *name;
	void *at;
} table[] = {{"leaf_of_all", (void *)leaf_of_all}, {"mid", (void *)mid}, {"recurse", (void *)recurse},
	     {"on_signal", (void *)on_signal}, {"in_thread", (void *)in_thread}, {"outer", (void *)outer},
	     {"sorted", (void *)sorted}, {"main", (void *)main}};

static NOTRACE void print_frame(void *pc)
{
	char *p = (char *)pc - 1;
	if (p < __start_bttext || p >= __stop_bttext)
		return;
	int best = -1;
	for (int i = 0; i < (int)(sizeof table / sizeof *table); i++)
		if ((char *)table[i].at <= p && (best < 0 || table[i].at > table[best].at))
			best = i;
	say(" %s", best < 0 ? "?" : table[best].name);
}
static NOTRACE _Unwind_Reason_Code on_frame(struct _Unwind_Context *c, void *arg)
{
	(void)arg;
	print_frame((void *)_Unwind_GetIP(c));
	return _URC_NO_REASON;
}
BT void leaf_of_all(void)
{
	COUNT();
	void *pcs[200];
	int n = backtrace(pcs, 200);
	say("backtrace:");
	for (int i = 0; i < n; i++)
		print_frame(pcs[i]);
	say("\nunwind:");
	_Unwind_Backtrace(on_frame, NULL);
	say("\n");
}
BT int mid(int n)
{
	COUNT();
	leaf_of_all();
	__asm__ volatile("");
	return n;
}
BT int recurse(int n)
{
	COUNT();
	int r = n ? recurse(n - 1) : mid(n);
	__asm__ volatile("");
	return r + 1;
}
BT void on_signal(int sig)
{
	COUNT();
	mid(sig);
	__asm__ volatile("");
}
BT void *in_thread(void *p)
{
	COUNT();
	recurse(3);
	__asm__ volatile("");
	return p;
}
BT int sorted(const void *a, const void *b)
{
	COUNT();
	static int once;
	if (!once++)
		mid(1);
	__asm__ volatile("");
	return *(const int *)a - *(const int *)b;
}
BT int outer(int n)
{
	COUNT();
	int r = recurse(n);
	raise(SIGUSR1);
	__asm__ volatile("");
	return r;
}
BT int main(void)
{
	COUNT();
	void *warm[4];
	backtrace(warm, 4); // loads libgcc_s before a handler needs it
	signal(SIGUSR1, on_signal);
	outer(5);
	int v[] = {3, 1, 2};
	qsort(v, 3, sizeof *v, sorted);
	pthread_t t;
	pthread_create(&t, NULL, in_thread, NULL);
	pthread_join(t, NULL);
	__asm__ volatile("");
	return 0;
}
