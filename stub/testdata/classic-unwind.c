/* arm64: backtraces from callbacks, by unwind information and by frame records.
   Prints the addresses in them. */
#define _GNU_SOURCE
#include <execinfo.h>
#include <stdio.h>
#include <string.h>
#include <unwind.h>
#include "fentry.h"
#ifdef PATCHABLE
#include "rewrite.h"
#else
#define PLAIN __attribute__((no_instrument_function, noinline))
#endif
/* bytes of inner's start that its site is in */
#ifdef PATCHABLE
#define INNER 16
#else
#define INNER 64
#endif
#define TRACED __attribute__((noinline))
#define BARRIER __asm__ volatile("" ::: "memory")

TRACED int inner(int x) { volatile char room[100]; room[x] = 1; BARRIER; return x + room[x]; }
TRACED int middle(int x) { volatile char room[5000]; room[x] = 1; int r = inner(x); BARRIER; return r + room[x]; }
TRACED int outer(int x) { int r = middle(x); BARRIER; return r + 1; }
PLAIN int main(void);

/* by distance: the test knows the names */
extern char __ehdr_start[];
PLAIN static void name(unsigned long pc) { printf(" %lx", pc - (unsigned long)__ehdr_start); }
PLAIN static unsigned long strip(unsigned long a)
{
	register unsigned long x30 __asm__("x30") = a;
	__asm__("hint #7" : "+r"(x30)); /* xpaclri */
	return x30;
}
PLAIN static _Unwind_Reason_Code step(struct _Unwind_Context *c, void *p) { (void)p; name(_Unwind_GetIP(c) - 1); return _URC_NO_REASON; }
PLAIN __attribute__((noipa)) static void show(const char *what)
{
	void *b[40];
	printf("%s unwind:", what);
	_Unwind_Backtrace(step, 0);
	printf("\n%s backtrace:", what);
	int n = backtrace(b, 40);
	for (int i = 0; i < n; i++)
		name((unsigned long)b[i] - 1);
	printf("\n%s records:", what);
	for (unsigned long *fp = __builtin_frame_address(0); fp; fp = (unsigned long *)fp[0]) {
		name(strip(ftrace_graph_ret_addr(fp[1], &fp[1])) - 1);
	}
	printf("\n");
}
PLAIN static int is_inner(unsigned long pc) { return pc - (unsigned long)inner < INNER; }
#ifdef PATCHABLE
PLAIN static void on_call(unsigned long ip, unsigned long parent, void *op, struct ftrace_regs *r) { (void)parent, (void)op, (void)r; if (is_inner(ip)) show("call"); }
#else
PLAIN static void on_call(unsigned long from, unsigned long self) { (void)from; if (is_inner(self)) show("call"); }
#endif
PLAIN static int on_entry(struct ftrace_graph_ent *e) { if (is_inner(e->func)) show("entry"); return 1; }
PLAIN static void on_return(struct ftrace_graph_ret *r) { if (is_inner(r->func)) show("return"); }

PLAIN int main(void)
{
#ifdef PATCHABLE
	find_sites();
	poke(ftrace_call, bl(ftrace_call, on_call));
	poke(ftrace_graph_call, b(ftrace_graph_call, ftrace_graph_caller));
	all(ALL ? ftrace_regs_caller : ftrace_caller);
#else
	ftrace_trace_function = on_call;
#endif
	ftrace_graph_entry = on_entry;
	ftrace_graph_return = on_return;
	int r = outer(1);
	BARRIER;
	printf("result %d\n", r);
	return 0;
}
