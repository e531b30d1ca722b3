/* syscall CALLS ROUNDS: makes a system call that does little. It prints ns a call, the least of the rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	long calls = argc > 1 ? atol(argv[1]) : 1;
	double least = 1e9;
	for (int k = argc > 2 ? atoi(argv[2]) : 1; k > 0; k--) {
		struct timespec from, to;
		clock_gettime(CLOCK_MONOTONIC, &from);
		for (long i = 0; i < calls; i++)
			getppid();
		clock_gettime(CLOCK_MONOTONIC, &to);
		double t = ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / (double)calls;
		if (t < least)
			least = t;
	}
	printf("%.2f\n", least);
	return 0;
}
