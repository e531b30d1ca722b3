/* A signal after every instruction of traced calls, or after every so many. Arguments: how
   many calls of a traced function the handler makes, and after how many instructions; it
   begins with each of them in turn. Prints how often functions were called. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#define NI __attribute__((noipa))
#define PLAIN __attribute__((noipa, patchable_function_entry(0)))

static long calls, every, left, n_inner, n_even, n_odd, n_leaf, n_jump, n_mid, n_top;
static volatile long steps;
static void *env[5];
enum { TF = 0x100, INT3 = 0xcc };

NI void inner(void) { n_inner++; __asm__ volatile(""); }
/* even and odd end by a jump to each other */
NI long odd(long n);
NI long even(long n) { n_even++; return n == 0 ? 1 : odd(n - 1); }
NI long odd(long n) { n_odd++; return n == 0 ? 0 : even(n - 1); }
NI void leaf(void) { n_leaf++; __asm__ volatile(""); }
NI void jump(void) { n_jump++; __builtin_longjmp(env, 1); }
NI void mid(void) { n_mid++; leaf(); even(3); __asm__ volatile(""); }
NI void top(void) { n_top++; mid(); if (__builtin_setjmp(env) == 0) jump(); mid(); __asm__ volatile(""); }

/* Slow paths block signals, and a trap of a processor that cannot be delivered ends the
   process: those run freely, up to the instruction behind their call. */
static struct { unsigned char *at, old; } behind;
PLAIN static void run_freely(unsigned char *call, greg_t *regs)
{
	enum { SIZE = 6 }; /* of call *DISPLACEMENT(%rip) */
	long page = sysconf(_SC_PAGESIZE);
	behind.at = call + SIZE;
	if (mprotect((void *)((long)behind.at & -page), page, PROT_READ | PROT_WRITE | PROT_EXEC)) abort();
	behind.old = *behind.at;
	*behind.at = INT3;
	regs[REG_EFL] &= ~TF;
}

/* The trap flag is clear in here. */
PLAIN static void on_trap(int sig, siginfo_t *info, void *uc)
{
	greg_t *regs = ((ucontext_t *)uc)->uc_mcontext.gregs;
	(void)sig, (void)info;
	if (behind.at && regs[REG_RIP] == (long)behind.at + 1) {
		*behind.at = behind.old;
		regs[REG_RIP] = (long)behind.at;
		regs[REG_EFL] |= TF;
		behind.at = 0;
	}
	steps++;
	if (left-- <= 0) {
		left = every - 1;
		for (long i = 0; i < calls; i++)
			inner();
	}
	unsigned char *next = (unsigned char *)regs[REG_RIP];
	if (next[0] == 0xff && next[1] == 0x15)
		run_freely(next, regs);
}
PLAIN static void step(int on)
{
	if (on)
		__asm__ volatile("pushf; orq $0x100, (%%rsp); popf" ::: "memory", "cc");
	else
		__asm__ volatile("pushf; andq $~0x100, (%%rsp); popf" ::: "memory", "cc");
}
int main(int argc, char **argv) __attribute__((patchable_function_entry(0)));
int main(int argc, char **argv)
{
	(void)argc;
	calls = strtol(argv[1], 0, 10);
	every = strtol(argv[2], 0, 10);
	struct sigaction sa = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };
	sigaction(SIGTRAP, &sa, 0);
	alarm(600); /* rather than for ever */
	top();
	for (long from = 0; from < every; from++) {
		left = from;
		step(1);
		top();
		step(0);
	}
	printf("inner %ld\neven %ld\nodd %ld\nleaf %ld\njump %ld\nmid %ld\ntop %ld\n", n_inner, n_even, n_odd, n_leaf, n_jump, n_mid, n_top);
	return steps < 200 * every;
}
