/* walk DEPTH CALLS ROUNDS: leaf is called CALLS times below so many frames of as many functions (0, 20 or 40). It prints ns a
   call, the least of the rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NOINLINE __attribute__((noinline))

static long calls;

NOINLINE void leaf(void) { __asm__ volatile("" ::: "memory"); }

NOINLINE static double loop(void)
{
	struct timespec from, to;
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (long i = 0; i < calls; i++)
		leaf();
	clock_gettime(CLOCK_MONOTONIC, &to);
	return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / (double)calls;
}

/* Frames of different sizes, whose tables differ. */
#define FRAME(n, next) \
	NOINLINE static double f##n(void) { volatile char room[8 + n % 7 * 16]; room[0] = 1; double t = next(); return t + 0 * room[0]; }
#define TEN(n, next) \
	FRAME(n##0, next) FRAME(n##1, f##n##0) FRAME(n##2, f##n##1) FRAME(n##3, f##n##2) FRAME(n##4, f##n##3) \
	FRAME(n##5, f##n##4) FRAME(n##6, f##n##5) FRAME(n##7, f##n##6) FRAME(n##8, f##n##7) FRAME(n##9, f##n##8)
TEN(1, loop)
TEN(2, f19)
TEN(3, f29)
TEN(4, f39)

int main(int argc, char **argv)
{
	int depth = argc > 1 ? atoi(argv[1]) : 0;
	calls = argc > 2 ? atol(argv[2]) : 1;
	double least = 1e9;
	for (int i = argc > 3 ? atoi(argv[3]) : 1; i > 0; i--) {
		double t = depth == 0 ? loop() : depth == 20 ? f29() : f49();
		if (t < least)
			least = t;
	}
	printf("%.2f\n", least);
	return 0;
}
