/* arm64: a program without a libc, whose pages want landing pads wherever an indirect
   branch arrives, and whose first thread has no thread pointer. */
#include "fentry.h"
#define PLAIN __attribute__((no_instrument_function, noinline))
#define TRACED __attribute__((noinline))

PLAIN static long call(long nr, long a, long b, long c)
{
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
	return x0;
}
PLAIN static void check(int line, int ok) { if (!ok) call(93, line & 127, 0, 0); }
#define CHECK(c) check(__LINE__, c)

TRACED int leaf(int x) { __asm__ volatile(""); return x + 1; }
static int (*volatile leaf_)(int) = leaf;
TRACED int work(int n) { int s = 0; for (int i = 0; i < n; i++) s += leaf_(i); return s; }

static volatile int calls, entries, returns;
PLAIN static void on_call(unsigned long from, unsigned long self) { (void)from, (void)self; calls++; }
PLAIN static int on_entry(struct ftrace_graph_ent *e) { (void)e; entries++; return 1; }
PLAIN static void on_return(struct ftrace_graph_ret *r) { (void)r; returns++; }

PLAIN __attribute__((used)) static void begin(void)
{
	CHECK(work(10) == 55);
	ftrace_trace_function = on_call;
	CHECK(work(10) == 55 && calls == 11);
	ftrace_trace_function = ftrace_stub;
	ftrace_graph_entry = on_entry;
	ftrace_graph_return = on_return;
	CHECK(work(10) == 55 && calls == 11 && entries == 11 && returns == 11);
	/* what is offered can be called by its address */
	unsigned long (*volatile undo)(unsigned long, unsigned long *) = ftrace_graph_ret_addr;
	unsigned long place = 0;
	CHECK(undo(4, &place) == 4);
	void (*volatile stub)(unsigned long, unsigned long) = ftrace_stub;
	stub(0, 0);
	int (*volatile entry)(struct ftrace_graph_ent *) = ftrace_graph_entry_stub;
	CHECK(entry(0) == 0);
	call(64, 1, (long)"work 2\nleaf 20\n", 15);
	call(93, 0, 0, 0);
}
__asm__(".text\n.globl _start\n.type _start, %function\n_start: hint #34\n mov x29, #0\n mov x30, #0\n bl begin\n udf #0\n");
