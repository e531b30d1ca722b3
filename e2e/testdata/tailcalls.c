// A million tail calls between two functions, through pointers, from recursion, and past frames with stack arguments. With optimisation they
// are jumps in constant stack; without, calls, so everything runs on a big stack.
#include "count.h"
#include <pthread.h>

FN static unsigned long even(unsigned long n, unsigned long acc);
FN static unsigned long odd(unsigned long n, unsigned long acc)
{
	COUNT();
	return n ? even(n - 1, acc + 1) : acc;
}
FN static unsigned long even(unsigned long n, unsigned long acc)
{
	COUNT();
	return n ? odd(n - 1, acc + 2) : acc;
}
typedef unsigned long (*step)(unsigned long, unsigned long);
FN static unsigned long plus(unsigned long n, unsigned long acc) { COUNT(); return n + acc; }
FN static unsigned long minus(unsigned long n, unsigned long acc) { COUNT(); return acc - n; }
FN static unsigned long choose(unsigned long n, unsigned long acc)
{
	COUNT();
	static step const table[] = {plus, minus};
	return table[n & 1](n, acc);
}
FN static unsigned long leaf(unsigned long n) { COUNT(); return n * 5; }
FN static unsigned long mixed(unsigned long n)
{
	COUNT();
	unsigned long k = leaf(n);
	if (n == 0)
		return choose(1, k);
	return KEEP(mixed(n - 1)) + (n & 1 ? 0 : k);
}
FN static unsigned long six(unsigned long a, unsigned long b, unsigned long c, unsigned long d, unsigned long e, unsigned long f, unsigned long g);
FN static unsigned long seven(unsigned long a, unsigned long b, unsigned long c, unsigned long d, unsigned long e, unsigned long f, unsigned long g)
{
	COUNT();
	return g ? six(b, c, d, e, f, a, g - 1) : a + b;
}
FN static unsigned long six(unsigned long a, unsigned long b, unsigned long c, unsigned long d, unsigned long e, unsigned long f, unsigned long g)
{
	COUNT();
	return g ? seven(b, c, d, e, f, a, g - 1) : a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f;
}
FN static void *all(void *p)
{
	COUNT();
	say("mutual %lu\n", even(1000000, 0));
	unsigned long s = 0;
	for (unsigned long i = 0; i < 1000; i++)
		s += choose(i, s);
	say("choose %lu mixed %lu six %lu\n", s, mixed(1000), six(1, 2, 3, 4, 5, 6, 1000));
	return p;
}
int main(void)
{
	COUNT();
	char *stack = mmap(NULL, 512ul << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	pthread_attr_t at;
	pthread_attr_init(&at);
	pthread_attr_setstack(&at, stack, 512ul << 20);
	pthread_t t;
	if (pthread_create(&t, &at, all, NULL))
		abort();
	pthread_join(t, NULL);
	return 0;
}
