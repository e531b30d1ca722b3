// A main whose own frame is realigned for AVX values (lea 8(%rsp),%r10; and $-32,%rsp), with traced callees between uses.
//e2e:machines amd64
//e2e:needs avx
// behind mcount, and without unwind tables, a frame that is realigned hides where the return address is
//e2e:may-lack mcount:main mcount:inner untabled:inner untabledmusl:inner
#include "count.h"
#include <immintrin.h>

FN static double leaf(double a) { COUNT(); return a * 2 + 1; }
__attribute__((target("avx"))) FN static double inner(__m256d v, int n)
{
	COUNT();
	__m256d keep = v;
	double s = 0;
	for (int i = 0; i < n; i++) {
		s += leaf(i);
		keep = _mm256_add_pd(keep, v);
	}
	double out[4] __attribute__((aligned(32)));
	_mm256_store_pd(out, keep);
	return s + out[0] + out[3];
}
__attribute__((target("avx"))) int main(int argc, char **argv)
{
	COUNT();
	__m256d v = _mm256_set1_pd(argc);
	double buf[8] __attribute__((aligned(32)));
	_mm256_store_pd(buf, v);
	double s = 0;
	for (int i = 0; i < 10; i++) {
		s += inner(_mm256_load_pd(buf), i);
		_mm256_store_pd(buf + 4, _mm256_add_pd(v, _mm256_set1_pd(s)));
		v = _mm256_load_pd(buf + 4);
	}
	say("%g %g %d\n", s, buf[5], argv[argc] == NULL);
	return 0;
}
