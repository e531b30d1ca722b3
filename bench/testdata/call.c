// Cost of call and return of an empty function, in rounds that alternate with one and two reads of the time stamp counter.
//
//	call ROUNDS CALLS  ->  one line "NAME median min" a measurement: call, rdtsc, rdtsc2, in ns a call, and cycle, a cycle
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define QUIET __attribute__((no_instrument_function))
#ifdef __clang__
#define UNTRACED __attribute__((noinline, no_instrument_function, xray_never_instrument))
#else
#define UNTRACED __attribute__((noinline, no_instrument_function, patchable_function_entry(0, 0)))
#endif

#ifdef HOOKS
QUIET void __cyg_profile_func_enter(void *fn, void *site);
QUIET void __cyg_profile_func_exit(void *fn, void *site);
QUIET void __cyg_profile_func_enter(void *fn, void *site) { (void)fn, (void)site; }
QUIET void __cyg_profile_func_exit(void *fn, void *site) { (void)fn, (void)site; }
#endif

#ifdef XRAY_FDR
// From xray_interface.h and xray_log_interface.h, which are C++.
int __xray_log_select_mode(const char *mode);
int __xray_log_init_mode(const char *mode, const char *config);
int __xray_patch(void);
static UNTRACED void start_xray(void)
{
	enum { REGISTRATION_OK = 0, LOG_INITIALIZED = 2, PATCHED = 1 };
	if (__xray_log_select_mode("xray-fdr") != REGISTRATION_OK ||
	    __xray_log_init_mode("xray-fdr", "func_duration_threshold_us=0:no_file_flush=true:buffer_size=1048576:buffer_max=100") != LOG_INITIALIZED ||
	    __xray_patch() != PATCHED)
		exit(3);
}
#endif

__attribute__((noinline)) void empty(void);
void empty(void) { __asm__ volatile(""); }

static inline __attribute__((always_inline, no_instrument_function)) uint64_t tsc(void)
{
	uint32_t lo, hi;
	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
	return (uint64_t)hi << 32 | lo;
}
static UNTRACED double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}
static UNTRACED double calls(long n)
{
	double t = now();
	for (long i = 0; i < n; i++)
		empty();
	return (now() - t) / (double)n;
}
static volatile uint64_t sink;
static UNTRACED double one(long n)
{
	double t = now();
	uint64_t s = 0;
	for (long i = 0; i < n; i++)
		s += tsc();
	sink = s;
	return (now() - t) / (double)n;
}
static UNTRACED double two(long n)
{
	double t = now();
	uint64_t s = 0;
	for (long i = 0; i < n; i++) {
		s += tsc();
		s -= tsc();
	}
	sink = s;
	return (now() - t) / (double)n;
}
// A cycle of the processor's clock as it is now: multiplications that wait for each other take three each.
static UNTRACED double cycle(long n)
{
	enum { CHAIN = 16, LATENCY = 3 };
	double t = now();
	uint64_t x = 3;
	for (long i = 0; i < n; i += CHAIN)
		for (int k = 0; k < CHAIN; k++)
			__asm__ volatile("imul %0, %0" : "+r"(x));
	return (now() - t) / ((double)((n + CHAIN - 1) / CHAIN * CHAIN) * LATENCY);
}
static UNTRACED int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}
static UNTRACED void print(const char *name, double *v, int n)
{
	qsort(v, (size_t)n, sizeof *v, ascending);
	printf("%s %.3f %.3f\n", name, v[n / 2], v[0]);
}
UNTRACED int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 21;
	long n = argc > 2 ? atol(argv[2]) : 200000;
	double *c = calloc((size_t)rounds * 4, sizeof *c), *r1 = c + rounds, *r2 = r1 + rounds, *hz = r2 + rounds;
#ifdef XRAY_FDR
	start_xray();
#endif
	calls(n / 4 + 1);
	for (int i = 0; i < rounds; i++) {
		c[i] = calls(n);
		r1[i] = one(n);
		r2[i] = two(n);
		hz[i] = cycle(n);
	}
	print("call", c, rounds);
	print("rdtsc", r1, rounds);
	print("rdtsc2", r2, rounds);
	print("cycle", hz, rounds);
	return 0;
}
