/* A function takes its time in what it calls, and is then landed in by a jump out of others that take theirs. */
#include <setjmp.h>
#include <time.h>

static jmp_buf here;

__attribute__((noinline)) void spin(long us)
{
	struct timespec a, b;
	clock_gettime(CLOCK_MONOTONIC, &a);
	do
		clock_gettime(CLOCK_MONOTONIC, &b);
	while ((b.tv_sec - a.tv_sec) * 1000000000L + b.tv_nsec - a.tv_nsec < us * 1000);
	__asm__ volatile("");
}

__attribute__((noinline)) void jump(int depth)
{
	spin(3000);
	if (!depth)
		longjmp(here, 1);
	jump(depth - 1);
	__asm__ volatile("");
}

__attribute__((noinline)) void landing(void)
{
	spin(20000);
	if (!setjmp(here))
		jump(3);
	__asm__ volatile("");
}

int main(void)
{
	landing();
	return 0;
}
