/* A program whose call sites and trampolines the test rewrites as ftrace does. */
#include <stdio.h>
#include <string.h>
#include "fentry.h"
#ifdef __aarch64__
#define NOTRACE __attribute__((no_instrument_function, patchable_function_entry(0), noinline))
#else
#define NOTRACE __attribute__((no_instrument_function, noinline))
#endif
#define TRACED __attribute__((noinline))

static volatile int ncalls, argument, partial, nested, direct_calls_before;
volatile int direct_calls;
extern char direct[];
#ifdef __aarch64__
#define PLACES unsigned long self, unsigned long from
#define FIRST(r) (r->record ? 0 : r->regs[0]) /* behind the prologue x0 is _mcount's */
#define ALL(r) r->all
#define DIRECT(r) r->orig_x0
#define SITE (r->record ? 32 : 16) /* bytes of a function's start that its site may be in */
/* as if called by the site: x30 is behind it, x9 what x30 was before */
__asm__(".text\n.globl direct\n.type direct, %function\ndirect: hint #34\n adrp x10, direct_calls\n add x10, x10, #:lo12:direct_calls\n"
	" ldr w11, [x10]\n add w11, w11, #1\n str w11, [x10]\n mov x10, x30\n mov x30, x9\n ret x10\n");
#else
#define PLACES unsigned long from, unsigned long self
#define FIRST(r) r->di
#define ALL(r) r->cs
#define DIRECT(r) r->orig_ax
#define SITE 16
__asm__(".text\n.globl direct\ndirect: incl direct_calls(%rip)\n ret\n");
#endif

TRACED int leaf(int x) { __asm__ volatile(""); return x + 1; }
TRACED int work(int n) { int s = 0; for (int i = 0; i < n; i++) s += leaf(i); return s; }

/* what the trampoline calls; its name is known to the test */
NOTRACE void on_call(PLACES, void *op, struct ftrace_regs *r)
{
	ncalls++;
	partial += ALL(r) == 0;
	if (self - (unsigned long)leaf < SITE) {
		argument += (int)FIRST(r);
		if (from - (unsigned long)work < 200)
			nested++;
		if (ALL(r) && op == &ncalls)
			DIRECT(r) = (unsigned long)direct;
	}
}

NOTRACE int main(void)
{
	function_trace_op = (void *)&ncalls;
	int r = work(10);
	printf("result %d calls %d argument %d nested %d partial %d direct %d\n", r, ncalls, argument, nested, partial, direct_calls);
	return 0;
}
