/* A library that its program opens and closes again and again. */
#include "counts.h"

FN static long p_leaf(long x, long *c)
{
	__atomic_add_fetch(&c[C_p_leaf], 1, __ATOMIC_RELAXED);
	return x * 2;
}

FN long p_sum(long n, callback *f, long *c)
{
	long r = 0;
	__atomic_add_fetch(&c[C_p_sum], 1, __ATOMIC_RELAXED);
	for (long i = 0; i < n; i++)
		r += p_leaf(i, c) + f(i);
	return r;
}
