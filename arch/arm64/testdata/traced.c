/* Functions of the usual shapes, to be traced. They print what they compute. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <unwind.h>

#define N __attribute__((noinline, noclone))
#define U N __attribute__((no_instrument_function, patchable_function_entry(0)))

extern unsigned events[65536];
extern unsigned long event_count, shadow_mask, skip_id, armed;
extern char frames[], thunks[];
void __register_frame(void *);

static long depth;
static void *addresses[64];

U _Unwind_Reason_Code frame(struct _Unwind_Context *c, void *arg)
{
	if (depth < 64)
		addresses[depth++] = (void *)_Unwind_GetIP(c);
	return _URC_NO_REASON;
}
U void walk(void)
{
	depth = 0;
	_Unwind_Backtrace(frame, 0);
}

N long leaf(long x) { return x * 3; }
N long walker(long x) { walk(); return leaf(x) + 1; }
N long mid(long x) { return walker(x) + 2; }
N long outer(long x) { return mid(x) + 3; }
N int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
N int even(int n);
N int odd(int n) { return n == 0 ? 0 : even(n - 1); }
N int even(int n) { return n == 0 ? 1 : odd(n - 1); }
N long many(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, double x, char k)
{
	return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j + 11 * k + (long)x;
}
N double mixed(double a, float b, int c, double d) { return a * b + c / d; }
struct big { long a[9]; };
N struct big large(int n) { struct big b; for (int i = 0; i < 9; i++) b.a[i] = n * i; return b; }
struct four { double a, b, c, d; };
N struct four vectors(double x) { struct four f = {x, x + 1, x + 2, x + 3}; return f; }
N int sum(int n, ...)
{
	va_list ap;
	int s = 0;
	va_start(ap, n);
	while (n-- > 0)
		s += va_arg(ap, int);
	va_end(ap);
	return s;
}
N long huge(long n)
{
	volatile char room[70000];
	memset((void *)room, n, sizeof room);
	return room[n] + leaf(room[69999]);
}
static int cleaned;
U void clean(int *p) { cleaned += *p; }
N void leaves(int n) { if (n) pthread_exit((void *)77L); }
N void cleans(int n) { int x __attribute__((cleanup(clean))) = n; leaves(n); }
U void map_shadow(void);
U void *thread(void *arg)
{
	map_shadow();
	cleans((int)(long)arg);
	return 0;
}

U void map_shadow(void)
{
	unsigned long here = (unsigned long)__builtin_frame_address(0) & ~0xfffffUL;
	shadow_mask = 1UL << (here >> 42 ? 46 : 37);
	mmap((void *)((here - 0x100000) ^ shadow_mask), 0x200000, PROT_READ | PROT_WRITE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0);
}

U void trap(int sig)
{
	walk();
	for (long i = 0; i < depth; i++)
		printf("%p\n", addresses[i]);
	fflush(stdout);
	_exit(3);
}

U int main(int argc, char **argv)
{
	map_shadow();
	armed = argc > 1 ? atoi(argv[1]) : 0;
	skip_id = argc > 2 ? atoi(argv[2]) : 0;
	if (*(int *)frames)
		__register_frame(frames);
	signal(SIGTRAP, trap);
	printf("%ld\n", outer(5));
	long n = depth;
	void *saved[64];
	memcpy(saved, addresses, sizeof saved);
	printf("%d %d %d\n", fib(12), even(1000), odd(77));
	printf("%ld\n", many(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0.5, 11));
	printf("%g\n", mixed(1.5, 2.5f, 7, 0.25));
	printf("%ld %g\n", large(3).a[8], vectors(1.5).d);
	printf("%d\n", sum(12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12));
	printf("%ld\n", huge(5));
	pthread_t t;
	void *r;
	pthread_create(&t, 0, thread, (void *)4L);
	pthread_join(t, &r);
	printf("%ld %d\n", (long)r, cleaned);
	/* What was seen, for the test: events, then the addresses of the backtrace. */
	for (unsigned long i = 0; i < event_count && i < 65536; i++)
		fprintf(stderr, "%x\n", events[i]);
	for (long i = 0; i < n; i++)
		fprintf(stderr, "%p\n", saved[i]);
	return 0;
}
