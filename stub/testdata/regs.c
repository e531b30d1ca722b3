/* Calls regs_round (regs.S) so that entries and exits of its body take all paths of
   the runtime: fast ones, full chunks, skipped frames, other stacks. */
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <ucontext.h>
#include <unistd.h>
#include <sys/wait.h>
#define PLAIN __attribute__((noipa, patchable_function_entry(0)))
int regs_round(void);
static jmp_buf env;
static ucontext_t a, b;
static long rounds, wrong;
/* its slot is above body's, so that body finds a skipped frame */
#ifdef BEHIND_PROLOGUE
PLAIN
#else
__attribute__((noipa))
#endif
void out(int n) { if (n) out(n - 1); longjmp(env, 1); }
PLAIN static void once(void) { rounds++; wrong += regs_round(); }
PLAIN static void *thread(void *p) { once(); once(); return p; }
PLAIN static void other(void) { for (;;) { once(); swapcontext(&b, &a); } }
int main(int argc, char **argv) __attribute__((patchable_function_entry(0)));
int main(int argc, char **argv)
{
#ifdef SVE
	/* with an argument: does the processor have what is tested? */
#ifdef SME
	int have = getauxval(AT_HWCAP2) >> 23 & getauxval(AT_HWCAP) >> 22 & 1;
#else
	int have = getauxval(AT_HWCAP) >> 22 & 1;
#endif
	if (argc > 1) return !have;
#endif
	for (int i = 0; i < 30000; i++) once();
	for (int i = 0; i < 200; i++) {
		if (setjmp(env) == 0) out(i % 5);
		once();
	}
	getcontext(&b);
	b.uc_stack.ss_sp = malloc(65536);
	b.uc_stack.ss_size = 65536;
	makecontext(&b, other, 0);
	for (int i = 0; i < 50; i++) { swapcontext(&a, &b); once(); }
	for (int i = 0; i < 20; i++) {
		pthread_t t;
		if (pthread_create(&t, 0, thread, 0)) abort();
		pthread_join(t, 0);
	}
	for (int i = 0; i < 5; i++) {
		pid_t p = fork();
		if (p == 0) { wrong = 0; once(); _exit(wrong != 0); }
		int st;
		waitpid(p, &st, 0);
		wrong += st != 0;
		rounds++;
	}
	if (wrong) printf("wrong: %ld\n", wrong);
	printf("body %ld\n", rounds);
	return wrong != 0;
}
