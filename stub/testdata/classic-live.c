/* arm64: a program that rewrites its own sites and the trampolines' while other
   threads run through them, as ftrace does. Compiled with -fpatchable-function-entry=2,
   linked with the library. Exits with 100 behind a message that names the line, or
   prints how often functions were called while they were followed. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "fentry.h"
#include "rewrite.h"

#define TRACED __attribute__((noinline))
#define BARRIER __asm__ volatile("" ::: "memory")

TRACED int leaf(int x) { BARRIER; return x + 1; }
TRACED int middle(int n) { int s = 0; for (int i = 0; i < n; i++) s += leaf(i); BARRIER; return s; }
TRACED double floats(double a, double b, double c, double d, double e, double f, double g, double h) { BARRIER; return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h; }
static jmp_buf env;
TRACED void jump(int n) { BARRIER; if (n == 0) longjmp(env, 1); jump(n - 1); BARRIER; }
TRACED int jumper(int n) { if (setjmp(env) == 0) jump(n); BARRIER; return leaf(n); }
TRACED int tail2(int n);
static int (*volatile tail2_)(int) = tail2;
TRACED int tail1(int n) { BARRIER; return n == 0 ? 7 : tail2_(n - 1); }
static int (*volatile tail1_)(int) = tail1;
TRACED int tail2(int n) { BARRIER; return n == 0 ? 8 : tail1_(n - 1); }
/* arguments on the stack, and a result by x8 */
struct big { long v[6]; };
TRACED struct big many(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j) { BARRIER; struct big r = { { a, b + c, d + e, f + g, h, i * 100 + j } }; return r; }

static _Atomic long calls_a, calls_b;
static volatile unsigned long seen_ip, seen_parent;
PLAIN static void on_a(unsigned long ip, unsigned long parent, void *op, struct ftrace_regs *r)
{
	calls_a++;
	CHECK(op == (void *)&calls_a);
	CHECK(r->pc == ip + MCOUNT_INSN_SIZE);
	/* two frame records: the trampoline's, the traced function's */
	CHECK(r->stackframe[1] == r->pc);
	unsigned long *site = (unsigned long *)r->stackframe[0];
	CHECK(site == (unsigned long *)(r + 1) && site[0] == r->regs[29] && site[1] == r->regs[30]);
	CHECK((char *)(site + 2) == (char *)r->sp);
	seen_ip = ip;
	seen_parent = parent;
}
PLAIN static void on_b(unsigned long ip, unsigned long parent, void *op, struct ftrace_regs *r) { (void)ip, (void)parent, (void)op, (void)r; calls_b++; }

/* redirect makes leaf return 42 at once */
PLAIN static void redirect(unsigned long ip, unsigned long parent, void *op, struct ftrace_regs *r)
{
	(void)parent, (void)op;
	if (ip - (unsigned long)leaf < 16) {
		r->regs[0] = 42;
		r->pc = r->regs[30];
	}
}

static volatile int stop;
static _Atomic long rounds;
PLAIN static void *spin(void *p)
{
	while (!stop) {
		CHECK(middle(10) == 55);
		CHECK(floats(1, 2, 3, 4, 5, 6, 7, 8) == 204);
		struct big r = many(1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
		CHECK(r.v[0] == 1 && r.v[1] == 5 && r.v[2] == 9 && r.v[3] == 13 && r.v[4] == 8 && r.v[5] == 910);
		CHECK(tail1(30) == 7 && tail1(31) == 8);
		rounds++;
	}
	return p;
}

PLAIN static void once(void)
{
	CHECK(middle(4) == 10);
	for (int i = 0; i < 10; i++)
		CHECK(jumper(i) == i + 1);
	CHECK(tail1(100) == 7);
}

PLAIN int main(void)
{
	CHECK(find_sites() > 5);
	function_trace_op = (void *)&calls_a;
	all(ftrace_caller); /* calls ftrace_stub */
	once();
	CHECK(calls_a == 0 && calls_b == 0);

	poke(ftrace_call, bl(ftrace_call, on_a));
	CHECK(leaf(1) == 2);
	CHECK(*(uint32_t *)seen_ip >> 26 == 0x25);
	CHECK(calls_a == 1 && seen_ip - (unsigned long)leaf <= 8 && seen_parent - (unsigned long)main < 4096);
	CHECK(middle(4) == 10 && calls_a == 6 && seen_parent - (unsigned long)middle < 256);
	poke(ftrace_call, bl(ftrace_call, on_b));
	all(ftrace_regs_caller); /* the same ftrace_call */
	CHECK(middle(4) == 10 && calls_a == 6 && calls_b == 5);
	poke(ftrace_call, bl(ftrace_call, redirect));
	CHECK(middle(4) == 4 * 42);
	all(0);
	CHECK(middle(4) == 10 && calls_a == 6 && calls_b == 5);

	/* followed */
	poke(ftrace_call, bl(ftrace_call, on_b));
	poke(ftrace_graph_call, b(ftrace_graph_call, ftrace_graph_caller));
	all(ftrace_caller);
	once();
	poke(ftrace_graph_call, NOP);
	once();

	/* all of it while threads run */
	pthread_t t[4];
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&t[i], 0, spin, 0) == 0);
	for (int i = 0; i < 60; i++) {
		long r = rounds;
		poke(ftrace_graph_call, i & 1 ? NOP : b(ftrace_graph_call, ftrace_graph_caller));
		poke(ftrace_call, bl(ftrace_call, i & 2 ? (void *)on_a : (void *)on_b));
		all(i % 3 == 0 ? ftrace_caller : i % 3 == 1 ? ftrace_regs_caller : 0);
		while (rounds < r + 4)
			usleep(100);
	}
	stop = 1;
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], 0);
	all(0);
	printf("jump 55\njumper 10\n");
	return 0;
}
