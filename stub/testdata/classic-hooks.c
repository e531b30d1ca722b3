/* A program with callbacks of its own, as fentry.h says. Exits with the number of
   the line that found something wrong. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "fentry.h"

#define NOTRACE __attribute__((no_instrument_function, noinline))
#define TRACED __attribute__((noinline))
#define BARRIER __asm__ volatile("" ::: "memory")
#define CHECK(c) do { if (!(c)) { fprintf(stderr, "line %d: %s\n", __LINE__, #c); _exit(100); } } while (0)

TRACED double inner(double a, double b) { BARRIER; return a * b; }
TRACED double middle(double a) { double r = inner(a, 3); BARRIER; return r + 1; }
TRACED double outer(double a) { double r = middle(a) + inner(a, 1); BARRIER; return r; }
#ifdef __AVX__
typedef double v4 __attribute__((vector_size(32)));
TRACED v4 wide(v4 a, v4 b) { BARRIER; return a + b; }
#define CHECK_WIDE do { v4 a = { 1, 2, 3, 4 }, b = wide(a, a); CHECK(b[0] == 2 && b[1] == 4 && b[2] == 6 && b[3] == 8); } while (0)
#else
#define CHECK_WIDE do { } while (0)
#endif
TRACED long double extended(long double a) { BARRIER; return a + 1; }
TRACED int last(int n) { BARRIER; return n + 1; }
TRACED int first(int n) { BARRIER; return last(n + 1); }
static jmp_buf env;
TRACED void jump(void) { BARRIER; longjmp(env, 1); }
TRACED int jumps(void) { if (setjmp(env) == 0) jump(); BARRIER; return 5; }
#ifndef ROUNDS
#define ROUNDS 1000
#endif
TRACED void *thread(void *p) { for (int i = 0; i < ROUNDS; i++) outer(i); return p; }

TRACED void *once(void *p) { BARRIER; return p; }

/* clobber changes every vector register, as wide as the processor has them */
NOTRACE static void clobber(void)
{
#ifdef __aarch64__
	/* whole registers: a write to q clears what is above */
	__asm__ volatile(
#define ONES(n) "movi v" #n ".16b, #255\n\t"
		ONES(0) ONES(1) ONES(2) ONES(3) ONES(4) ONES(5) ONES(6) ONES(7) ONES(16) ONES(17) ONES(18) ONES(19) ONES(20) ONES(21) ONES(22) ONES(23)
		ONES(24) ONES(25) ONES(26) ONES(27) ONES(28) ONES(29) ONES(30) ONES(31)
		/* of these the low halves are kept */
#define UPPER(n) "ins v" #n ".d[1], %0\n\t"
		UPPER(8) UPPER(9) UPPER(10) UPPER(11) UPPER(12) UPPER(13) UPPER(14) UPPER(15)
		"msr fpsr, %0\n\tmov x1, %0\n\tmov x2, %0\n\tmov x3, %0\n\tmov x4, %0\n\tmov x5, %0\n\tmov x6, %0\n\tmov x7, %0\n\t"
		"mov x8, %0\n\tmov x10, %0\n\tmov x18, %0"
		:: "r"(0x9fUL) : "memory", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17", "x18",
		"v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28",
		"v29", "v30", "v31");
#else
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx"))
		__asm__ volatile("vpcmpeqd %%xmm0,%%xmm0,%%xmm0\n\tvinsertf128 $1,%%xmm0,%%ymm0,%%ymm0\n\tvmovaps %%ymm0,%%ymm1\n\tvmovaps %%ymm0,%%ymm2\n\t"
			"vmovaps %%ymm0,%%ymm3\n\tvmovaps %%ymm0,%%ymm7\n\tvmovaps %%ymm0,%%ymm15\n\tvzeroupper" ::: "memory");
	__asm__ volatile("pcmpeqd %%xmm0,%%xmm0\n\tmovaps %%xmm0,%%xmm1\n\tmovaps %%xmm0,%%xmm2\n\tmovaps %%xmm0,%%xmm3\n\tmovaps %%xmm0,%%xmm4\n\t"
		"movaps %%xmm0,%%xmm5\n\tmovaps %%xmm0,%%xmm6\n\tmovaps %%xmm0,%%xmm7\n\tmovaps %%xmm0,%%xmm15\n\tfninit\n\txor %%eax,%%eax"
		::: "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm15", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11");
#endif
}

/* volatile: the compiler does not know of callbacks */
static volatile struct { unsigned long from, self; } calls[64];
static volatile int ncalls;
NOTRACE static void on_call(unsigned long from, unsigned long self)
{
	int n = __atomic_fetch_add(&ncalls, 1, __ATOMIC_RELAXED);
	if (n < 64)
		calls[n].from = from, calls[n].self = self;
	clobber();
}
NOTRACE static void on_call_traced(unsigned long from, unsigned long self) { on_call(from, self); last(1); outer(2); }

static char events[4096];
static volatile int nevents, entries, returns;
NOTRACE static char name(unsigned long pc)
{
	static const struct { void *f; char c; } all[] = { { outer, 'o' }, { middle, 'm' }, { inner, 'i' }, { first, 'f' }, { last, 'l' }, { jumps, 'J' }, { jump, 'j' }, { extended, 'e' }, { thread, 't' } };
	unsigned long best = 400;
	char c = '?';
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
		if (pc - (unsigned long)all[i].f < best)
			best = pc - (unsigned long)all[i].f, c = all[i].c;
	return c;
}
NOTRACE static int on_entry(struct ftrace_graph_ent *e)
{
	__atomic_fetch_add(&entries, 1, __ATOMIC_RELAXED);
	if (nevents < 4000)
		nevents += sprintf(events + nevents, "%c%d ", name(e->func), e->depth);
	clobber();
	return name(e->func) != 'i';
}
NOTRACE static void on_return(struct ftrace_graph_ret *r)
{
	__atomic_fetch_add(&returns, 1, __ATOMIC_RELAXED);
#ifdef __aarch64__
	CHECK(r->rettime >= r->calltime); /* a tick may be 40 ns */
#else
	CHECK(r->rettime > r->calltime);
#endif
	CHECK(r->rettime - r->calltime < 100000000000 && r->overrun == 0);
	if (nevents < 4000)
		nevents += sprintf(events + nevents, "/%c%d ", name(r->func), r->depth);
	clobber();
}
NOTRACE static int count_entry(struct ftrace_graph_ent *e) { (void)e; __atomic_fetch_add(&entries, 1, __ATOMIC_RELAXED); return 1; }
NOTRACE static void count_return(struct ftrace_graph_ret *r) { (void)r; __atomic_fetch_add(&returns, 1, __ATOMIC_RELAXED); }

NOTRACE static void expect(const char *want)
{
	if (strcmp(events, want))
		fprintf(stderr, "events %s\nwant   %s\n", events, want), _exit(101);
	nevents = 0;
	events[0] = 0;
}

NOTRACE int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	CHECK(ftrace_trace_function == ftrace_stub);
	CHECK(ftrace_graph_entry == ftrace_graph_entry_stub);
	if (!strcmp(what, "function")) {
		ftrace_trace_function = on_call;
		CHECK(outer(2) == 9);
		CHECK(ncalls == 4);
		/* outer -> middle -> inner, outer -> inner */
		CHECK(name(calls[0].self) == 'o' && name(calls[1].self) == 'm' && name(calls[2].self) == 'i' && name(calls[3].self) == 'i');
		CHECK(name(calls[1].from) == 'o' && name(calls[2].from) == 'm' && name(calls[3].from) == 'o');
#ifdef __aarch64__
		CHECK(*(unsigned *)calls[0].self >> 26 == 0x25); /* bl */
#else
		CHECK(((unsigned char *)calls[0].self)[0] == 0xe8 || ((unsigned char *)calls[0].self)[-1] == 0x67 || ((unsigned char *)calls[0].self)[-1] == 0xff);
#endif
		/* a tail call returns to the caller's caller, with and without a trace */
		unsigned long here = calls[0].from;
		ncalls = 0;
		CHECK(first(1) == 3);
		CHECK(name(calls[ncalls - 1].self) == 'l');
		CHECK(calls[0].from - here < 4096);
		if (ncalls == 2 && name(calls[1].from) != 'f') /* it was one */
			CHECK(calls[1].from == calls[0].from);
		function_trace_stop = 1;
		ncalls = 0;
		CHECK(outer(3) == 13 && ncalls == 0);
		function_trace_stop = 0;
		ftrace_trace_function = on_call_traced;
		CHECK(outer(2) == 9 && ncalls == 4); /* calls inside of callbacks are not seen */
		ftrace_trace_function = ftrace_stub;
		ncalls = 0;
		CHECK(outer(2) == 9 && ncalls == 0);
	} else if (!strcmp(what, "graph")) {
		ftrace_graph_entry = on_entry;
		ftrace_graph_return = on_return;
		CHECK(outer(2) == 9);
		expect("o0 m1 i2 /m1 i1 /o0 ");
		CHECK_WIDE;
		nevents = 0;
		CHECK(extended(1.5L) == 2.5L);
		expect("e0 /e0 ");
		CHECK(first(1) == 3);
#ifdef __OPTIMIZE__
		expect("f0 /f0 l0 /l0 ");
#else
		expect("f0 l1 /l1 /f0 ");
#endif
		CHECK(jumps() == 5);
		expect("J0 j1 /J0 ");
		function_trace_stop = 1;
		CHECK(outer(2) == 9);
		expect("");
		function_trace_stop = 0;
		ftrace_graph_return = ftrace_stub_graph;
		CHECK(outer(2) == 9);
		expect("o0 m1 i2 i1 ");
	} else if (!strcmp(what, "threads")) {
		pthread_t t[16];
		ftrace_graph_entry = count_entry;
		ftrace_graph_return = count_return;
		for (int i = 0; i < 16; i++)
			CHECK(pthread_create(&t[i], 0, thread, 0) == 0);
		for (int i = 0; i < 16; i++)
			pthread_join(t[i], 0);
		CHECK(entries == 16 * (4 * ROUNDS + 1) && returns == entries);
	} else if (!strcmp(what, "switch")) {
		/* from the trace to callbacks and back; frames of both kinds on the stack */
		CHECK(outer(2) == 9);
		ftrace_graph_entry = count_entry;
		ftrace_graph_return = count_return;
		CHECK(outer(2) == 9 && entries == 4 && returns == 4);
		ftrace_graph_entry = ftrace_graph_entry_stub;
		ftrace_graph_return = ftrace_stub_graph;
		CHECK(outer(2) == 9 && entries == 4);
		ftrace_trace_function = on_call;
		CHECK(outer(2) == 9 && ncalls == 4);
		printf("outer 3\nmiddle 3\ninner 6\n");
	} else if (!strcmp(what, "marks")) {
		char *text = malloc(5001);
		memset(text, 'x', 5000);
		text[5000] = 0;
		fentry_mark(1, 0);
		fentry_mark(2, "");
		CHECK(outer(2) == 9);
		fentry_mark(~0UL, "eight by");
		for (int i = 0; i < 100; i++)
			fentry_mark(1000 + i, text + 50 * i);
		printf("outer 1\nmiddle 1\ninner 2\n");
	} else if (!strcmp(what, "ends")) {
		/* threads one after another: the next finds what the last has left */
		for (int i = 0; i < 50; i++) {
			pthread_t t;
			CHECK(pthread_create(&t, 0, once, 0) == 0);
			pthread_join(t, 0);
		}
		printf("once 50\n");
	} else
		return 2;
	return 0;
}
