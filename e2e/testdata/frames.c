// Frames that are not plain: alloca, variable-length arrays, over-aligned locals, realigned entry, huge frames with stack probes,
// leaf functions in the red zone, functions that never return.
// behind mcount, a frame that is realigned hides where the return address is
//e2e:may-lack mcount:main mcount:aligned_locals mcount:aligned_arguments mcount:aligned_and_alloca mcount:realigned
#include "count.h"
#include <alloca.h>

typedef struct { long v[8]; } __attribute__((aligned(64))) line;

FN static long consume(volatile char *p, size_t n) { COUNT(); long s = 0; for (size_t i = 0; i < n; i++) s += p[i]; return s; }
FN static long with_alloca(int n)
{
	COUNT();
	char *p = alloca((size_t)n * 13 + 1);
	memset(p, n & 63, (size_t)n * 13 + 1);
	return consume(p, (size_t)n * 13 + 1) + (n ? KEEP(with_alloca(n - 1)) : 0);
}
FN static long with_vla(int n)
{
	COUNT();
	char v[n * 7 + 1];
	memset(v, 1, sizeof v);
	return consume(v, sizeof v);
}
FN static int is_aligned(void *p) { COUNT(); return ((uintptr_t)p & 63) == 0; }
FN static long aligned_locals(int n)
{
	COUNT();
	line a, b;
	for (int i = 0; i < 8; i++)
		a.v[i] = n * i, b.v[i] = n + i;
	if (!is_aligned(&a) || !is_aligned(&b))
		abort();
	return a.v[7] + b.v[7] + (n ? KEEP(aligned_locals(n - 1)) : 0);
}
FN static long aligned_arguments(long a, long b, long c, long d, long e, long f, long on_stack, line by_value)
{
	COUNT();
	line x = by_value;
	if (!is_aligned(&x))
		abort();
	return a + b + c + d + e + f + on_stack + x.v[3];
}
FN static long aligned_and_alloca(int n)
{
	COUNT();
	line a;
	a.v[0] = n;
	char *p = alloca((size_t)n + 1);
	memset(p, 2, (size_t)n + 1);
	if (!is_aligned(&a))
		abort();
	return a.v[0] + consume(p, (size_t)n + 1);
}
#ifdef __x86_64__
__attribute__((force_align_arg_pointer))
#endif
FN static long realigned(long n, long m) { COUNT(); return n * m; }
FN static long huge(int n)
{
	COUNT();
	volatile char big[200000];
	big[0] = (char)n;
	big[sizeof big - 1] = (char)(n + 1);
	return big[0] + big[sizeof big - 1] + (n ? KEEP(huge(n - 1)) : 0);
}
FN static long red_zone(long a)
{
	COUNT();
	volatile long t[8];
	for (int i = 0; i < 8; i++)
		t[i] = a + i;
	return t[0] + t[7];
}
__attribute__((noreturn)) FN static void leave(int code)
{
	COUNT();
	ABANDON(2);
	exit(code);
}
int main(void)
{
	COUNT();
	long s = 0;
	for (int i = 0; i < 50; i++)
		s += with_alloca(i % 9) + with_vla(i) + aligned_locals(i % 6) + aligned_and_alloca(i) + red_zone(i) + realigned(i, 3);
	line l = {{1, 2, 3, 4, 5, 6, 7, 8}};
	say("sum %ld args %ld huge %ld\n", s, aligned_arguments(1, 2, 3, 4, 5, 6, 7, l), huge(20));
	leave(6);
}
