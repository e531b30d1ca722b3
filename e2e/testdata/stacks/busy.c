// A program that works, in a thread, in a child and in what it executes: each time for so many milliseconds of processor
// time, in inner or in rec, below work.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return 1e3 * t.tv_sec + t.tv_nsec / 1e6;
}

__attribute__((noinline)) int inner(int x)
{
	volatile int y = x;
	for (int i = 0; i < 20000; i++)
		y += i;
	return y;
}
__attribute__((noinline)) int rec(int n, int x) { return n ? rec(n - 1, x) + 1 : inner(x); }
__attribute__((noinline)) int work(double end)
{
	int n = 0;
	while (ms() < end)
		n += rec(3, n) + inner(n);
	return n;
}

static void *thread(void *p) { return (void *)(long)work(*(double *)p); }

int main(int argc, char **argv)
{
	double end = argc > 1 ? atof(argv[1]) : 300;
	pthread_t t;
	if (argc > 2)
		return work(end) == 1;
	work(end);
	pthread_create(&t, 0, thread, &end);
	pthread_join(t, 0);
	pid_t pid = fork();
	if (pid == 0) {
		work(end);
		execl(argv[0], argv[0], argv[1], "executed", (char *)0);
		_exit(1);
	}
	int status;
	waitpid(pid, &status, 0);
	return status;
}
