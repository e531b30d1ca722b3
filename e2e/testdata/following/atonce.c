/* Four threads execute this program at the same time, four times in a row. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_barrier_t all;
static char left[16];

static void *execute(void *arg)
{
	char *argv[] = { "atonce", left, NULL };
	pthread_barrier_wait(&all);
	execv("/proc/self/exe", argv);
	return arg;
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 4;
	pthread_t t;

	if (n == 0)
		return 42;
	snprintf(left, sizeof left, "%d", n - 1);
	pthread_barrier_init(&all, NULL, 4);
	for (int i = 0; i < 3; i++)
		pthread_create(&t, NULL, execute, NULL);
	execute(NULL);
	pause();
}
