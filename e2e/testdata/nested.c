// GNU C nested functions: called directly with the static chain in r10, through trampolines, recursively, and with a non-local goto.
//e2e:may-lack untabled:dive untabledmusl:dive
//e2e:compilers gcc
//e2e:link -z execstack
#include "count.h"

FN static int apply(int (*f)(int), int n) { COUNT(); return f(n) + f(n + 1); }
FN static int outer(int base)
{
	COUNT();
	int calls = 0;
	FN int add(int n)
	{
		COUNT_AS("outer.add");
		calls++;
		return base + n;
	}
	FN int twice(int n)
	{
		COUNT_AS("outer.twice");
		return n ? KEEP(twice(n - 1)) + add(n) : add(0);
	}
	int r = add(1) + twice(5) + apply(add, 3) + apply(twice, 2);
	return r * 100 + calls;
}
FN static int leaves(int n)
{
	__label__ out;
	COUNT();
	int depth = 0;
	FN void dive(int k)
	{
		COUNT_AS("leaves.dive");
		depth++;
		if (k == 0)
			goto out;
		dive(k - 1);
		__asm__ volatile("");
	}
	ABANDON(n + 1);
	dive(n);
	depth = -1;
out:
	return depth;
}
int main(void)
{
	COUNT();
	int s = 0;
	for (int i = 0; i < 200; i++)
		s += outer(i);
	say("outer %d\n", s);
	say("leaves %d\n", leaves(9));
	return 0;
}
