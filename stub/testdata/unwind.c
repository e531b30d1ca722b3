/* Traps at every instruction of some code, once each. Arguments: how many calls of a
   traced function the trap's handler makes, and address and length of the code,
   hexadecimal, in pairs. Without calls it prints what an unwinder sees there; with
   calls there is one trap at a time, and it prints how often functions were called. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>
#define NI __attribute__((noipa))
#define PLAIN __attribute__((noipa, patchable_function_entry(0)))
enum { TRAP = 0xd4200020 /* brk #1 */, MOST = 4096 };
static struct { unsigned *at, old; } traps[MOST];
static int n_traps;
static volatile int where; /* how deep the calls are */
static struct { unsigned long pc[24]; int n, where; } seen[MOST];
static int n_seen;
static long calls, hits, n_inner, n_even, n_odd, n_leaf, n_jump, n_mid, n_top;

PLAIN static _Unwind_Reason_Code frame(struct _Unwind_Context *c, void *p)
{
	if (seen[n_seen].n < 24)
		seen[n_seen].pc[seen[n_seen].n++] = _Unwind_GetIP(c);
	return _URC_NO_REASON;
}
NI void inner(void) { n_inner++; __asm__ volatile(""); }
PLAIN static void on_trap(int s, siginfo_t *i, void *v)
{
	unsigned *pc = (unsigned *)((ucontext_t *)v)->uc_mcontext.pc;
	for (int k = 0; k < n_traps; k++)
		if (traps[k].at == pc) {
			*pc = traps[k].old;
			__builtin___clear_cache((char *)pc, (char *)(pc + 1));
			hits++;
			for (long i = 0; i < calls; i++) inner();
			if (calls) return;
			seen[n_seen].where = where;
			_Unwind_Backtrace(frame, 0);
			n_seen++;
			return;
		}
	abort();
}
static jmp_buf env;
/* even and odd end by a jump to each other */
NI long odd(long n);
NI long even(long n) { n_even++; return n == 0 ? 1 : odd(n - 1); }
NI long odd(long n) { n_odd++; return n == 0 ? 0 : even(n - 1); }
NI void leaf(void) { n_leaf++; __asm__ volatile(""); }
NI void jump(void) { n_jump++; longjmp(env, 1); }
NI void mid(void) { n_mid++; where = 2; leaf(); even(3); where = 1; __asm__ volatile(""); }
NI void top(void) { n_top++; where = 1; mid(); if (setjmp(env) == 0) jump(); mid(); where = 0; __asm__ volatile(""); }
PLAIN static void *begin(void *p) { top(); return p; }
PLAIN static void fresh(void)
{
	pthread_t t;
	if (pthread_create(&t, 0, begin, 0)) abort();
	pthread_join(t, 0);
}
PLAIN static void trap_at(unsigned *p, unsigned long len)
{
	unsigned long page = sysconf(_SC_PAGESIZE), from = (unsigned long)p & -page;
	if (mprotect((void *)from, (unsigned long)p + len - from, PROT_READ | PROT_WRITE | PROT_EXEC)) abort();
	for (unsigned long i = 0; i < len / 4; i++, n_traps++) {
		if (n_traps == MOST) abort();
		traps[n_traps].at = p + i;
		traps[n_traps].old = p[i];
	}
}
int main(int argc, char **argv) __attribute__((patchable_function_entry(0)));
int main(int argc, char **argv)
{
	extern char harness_frames[];
	void __register_frame(void *);
	__register_frame(harness_frames); /* the thunks' */
	struct sigaction sa = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };
	sigaction(SIGTRAP, &sa, 0);
	calls = strtol(argv[1], 0, 10);
	for (int i = 2; i + 1 < argc; i += 2)
		trap_at((unsigned *)strtoul(argv[i], 0, 16), strtoul(argv[i + 1], 0, 16));
	for (int k = 0; k < n_traps && calls; k++)
		for (int i = 0; i < 4; i++) { /* the last way through it is a new thread's */
			*traps[k].at = TRAP;
			__builtin___clear_cache((char *)traps[k].at, (char *)(traps[k].at + 1));
			if (i < 3) top(); else fresh();
			*traps[k].at = traps[k].old;
			__builtin___clear_cache((char *)traps[k].at, (char *)(traps[k].at + 1));
		}
	if (calls) {
		printf("inner %ld\neven %ld\nodd %ld\nleaf %ld\njump %ld\nmid %ld\ntop %ld\n", n_inner, n_even, n_odd, n_leaf, n_jump, n_mid, n_top);
		return hits < n_traps; /* each instruction is met several times, and some never */
	}
	for (int k = 0; k < n_traps; k++) {
		*traps[k].at = TRAP;
		__builtin___clear_cache((char *)traps[k].at, (char *)(traps[k].at + 1));
	}
	for (int i = 0; i < 20; i++) top();
	for (int k = 0; k < n_seen; k++) {
		printf("%d", seen[k].where);
		for (int i = 0; i < seen[k].n; i++) printf(" %lx", seen[k].pc[i]);
		puts("");
	}
	return 0;
}
