/* A program whose call sites and trampolines the test rewrites as ftrace does. */
#include <stdio.h>
#include <string.h>
#include "fentry.h"
#define NOTRACE __attribute__((no_instrument_function, noinline))
#define TRACED __attribute__((noinline))

static volatile int ncalls, argument, partial, nested, direct_calls_before;
volatile int direct_calls;
extern char direct[];
__asm__(".text\n.globl direct\ndirect: incl direct_calls(%rip)\n ret\n");

TRACED int leaf(int x) { __asm__ volatile(""); return x + 1; }
TRACED int work(int n) { int s = 0; for (int i = 0; i < n; i++) s += leaf(i); return s; }

/* what the trampoline calls; its name is known to the test */
NOTRACE void on_call(unsigned long from, unsigned long self, void *op, struct ftrace_regs *r)
{
	ncalls++;
	partial += r->cs == 0;
	if (self - (unsigned long)leaf < 16) {
		argument += (int)r->di;
		if (from - (unsigned long)work < 200)
			nested++;
		if (r->cs && op == &ncalls)
			r->orig_ax = (unsigned long)direct;
	}
}

NOTRACE int main(void)
{
	function_trace_op = (void *)&ncalls;
	int r = work(10);
	printf("result %d calls %d argument %d nested %d partial %d direct %d\n", r, ncalls, argument, nested, partial, direct_calls);
	return 0;
}
