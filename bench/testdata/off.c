// Calls of many functions in random order: off CALLS FUNCTIONS [THREADS]  ->  "call MEDIAN MIN", in ns a call. So many
// further threads wait meanwhile. OFF_FIRST: a command that comes before the calls.
//
// The functions are written in assembly, all alike and 32 bytes apart, so that a call needs no table of their addresses.
// SITES: with the site that -fpatchable-function-entry=5 leaves.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#ifndef MOST
#define MOST 50000
#endif
#define TEXT(n) #n
#define NUMBER(n) TEXT(n)
#ifdef SITES
#define SITE ".rept 5; nop; .endr;" \
	".pushsection __patchable_function_entries, \"awo\", @progbits, .text.many; .quad 661b; .popsection;"
#else
#define SITE ""
#endif
__asm__(".altmacro\n"
	".macro FUNCTION n\n"
	"	.p2align 5\n"
	"	.type f\\n, @function\n"
	"f\\n:	.cfi_startproc\n"
	"661:	" SITE "\n"
	"	lea 1(%rdi), %rax\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"	.size f\\n, . - f\\n\n"
	".endm\n"
	".section .text.many, \"ax\", @progbits\n"
	"	.p2align 5\n"
	"	.globl many\n"
	"many:\n"
	"i = 0\n"
	".rept " NUMBER(MOST) "\n"
	"	FUNCTION %i\n"
	"	i = i + 1\n"
	".endr\n"
	".noaltmacro\n"
	".text\n");
extern const char many[];

#define UNTRACED __attribute__((noinline, patchable_function_entry(0, 0)))

static UNTRACED double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}
static UNTRACED int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}
static UNTRACED void *waits(void *arg)
{
	for (;;)
		pause();
	return arg;
}
UNTRACED int main(int argc, char **argv)
{
	enum { ROUNDS = 15, ORDER = 1 << 16 };
	long calls = argc > 1 ? atol(argv[1]) : 1000000, n = argc > 2 ? atol(argv[2]) : 100, x = 0;
	static uint32_t order[ORDER];
	double v[ROUNDS];
	uint64_t seed = 88172645463325252;
	if (n < 1 || n > MOST)
		return 2;
	for (int i = argc > 3 ? atoi(argv[3]) : 0; i > 0; i--) {
		pthread_t t;
		if (pthread_create(&t, 0, waits, 0))
			return 2;
	}
	if (getenv("OFF_FIRST") && system(getenv("OFF_FIRST")))
		return 3;
	for (int i = 0; i < ORDER; i++) {
		seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
		order[i] = (uint32_t)(seed % (uint64_t)n) * 32;
	}
	for (int r = 0; r < ROUNDS; r++) {
		double t = now();
		for (long i = 0; i < calls; i++)
			x = ((long (*)(long))(many + order[i % ORDER]))(x);
		v[r] = (now() - t) / (double)calls;
	}
	qsort(v, ROUNDS, sizeof *v, ascending);
	printf("call %.3f %.3f\n", v[ROUNDS / 2], v[0]);
	return x != calls * ROUNDS;
}
