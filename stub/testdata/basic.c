/* Counts its own calls, so that a trace of it can be compared with what it prints. */
#include <stdio.h>
#define NI __attribute__((noinline))
static long n_fib, n_leaf, n_even, n_odd;
NI static long leaf(long x) { n_leaf++; __asm__ volatile("" : "+r"(x)); return x + 1; }
NI static long fib(long n) { n_fib++; long r = n < 2 ? leaf(n) : fib(n - 1) + fib(n - 2); __asm__ volatile("" : "+r"(r)); return r; }
NI static int odd(int n);
NI static int even(int n) { n_even++; if (n == 0) return 1; return odd(n - 1); } /* a tail call */
NI static int odd(int n) { n_odd++; if (n == 0) return 0; return even(n - 1); }
NI __attribute__((noipa)) static double many(int a, double b, long c, float d, char e, short f, long g, double h, int i, int j, long double k)
{
	return a + b + c + d + e + f + g + h + i + j + (double)k;
}
int main(void)
{
	long r = fib(20);
	int e = even(100001);
	printf("%ld %d %g\n", r, e, many(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11.5L));
	printf("fib %ld\nleaf %ld\neven %ld\nodd %ld\nmany 1\nmain 1\n", n_fib, n_leaf, n_even, n_odd);
	return 0;
}
