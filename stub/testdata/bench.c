/* ns of a call and return of an empty function against as many clock reads as it
   records events, interleaved. Arguments: events a call, rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <x86intrin.h>
#define NI __attribute__((noinline))
#define PLAIN __attribute__((noinline, patchable_function_entry(0)))
NI void empty(void) { __asm__ volatile(""); }
PLAIN static double ns(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e9 + t.tv_nsec; }
PLAIN static void clocks(int n, int per) { for (int i = 0; i < n * per; i++) { unsigned a, d; __asm__ volatile("rdtsc" : "=a"(a), "=d"(d)); } }
PLAIN static void calls(int n) { for (int i = 0; i < n; i++) empty(); }
int main(int argc, char **argv) __attribute__((patchable_function_entry(0)));
int main(int argc, char **argv)
{
	int per = argc > 1 ? atoi(argv[1]) : 2, rounds = argc > 2 ? atoi(argv[2]) : 300, n = 2000;
	double bc = 1e18, be = 1e18;
	for (int r = 0; r < rounds; r++) {
		double t0 = ns();
		clocks(n, per);
		double t1 = ns();
		calls(n);
		double t2 = ns();
		if (t1 - t0 < bc) bc = t1 - t0;
		if (t2 - t1 < be) be = t2 - t1;
	}
	printf("%.2f %.2f %.3f\n", bc / n, be / n, be / bc);
	return 0;
}
