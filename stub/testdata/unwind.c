/* Traps at every instruction of some code, once each, and prints what an unwinder
   sees there. Arguments: address and length of the code, hexadecimal, in pairs. */
#define _GNU_SOURCE
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

PLAIN static _Unwind_Reason_Code frame(struct _Unwind_Context *c, void *p)
{
	if (seen[n_seen].n < 24)
		seen[n_seen].pc[seen[n_seen].n++] = _Unwind_GetIP(c);
	return _URC_NO_REASON;
}
PLAIN static void on_trap(int s, siginfo_t *i, void *v)
{
	unsigned *pc = (unsigned *)((ucontext_t *)v)->uc_mcontext.pc;
	for (int k = 0; k < n_traps; k++)
		if (traps[k].at == pc) {
			*pc = traps[k].old;
			__builtin___clear_cache((char *)pc, (char *)(pc + 1));
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
NI long even(long n) { return n == 0 ? 1 : odd(n - 1); }
NI long odd(long n) { return n == 0 ? 0 : even(n - 1); }
NI void leaf(void) { __asm__ volatile(""); }
NI void jump(void) { longjmp(env, 1); }
NI void mid(void) { where = 2; leaf(); even(3); where = 1; __asm__ volatile(""); }
NI void top(void) { where = 1; mid(); if (setjmp(env) == 0) jump(); mid(); where = 0; __asm__ volatile(""); }
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
	for (int i = 1; i + 1 < argc; i += 2)
		trap_at((unsigned *)strtoul(argv[i], 0, 16), strtoul(argv[i + 1], 0, 16));
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
