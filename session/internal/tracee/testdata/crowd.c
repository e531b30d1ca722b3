// Threads, so many, that all want to run ("run") or that all wait. It says when they are there.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int run;
static volatile long turns;

static void *thread(void *arg)
{
	while (run)
		turns++;
	pause();
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t t;

	(void)argc;
	run = !strcmp(argv[2], "run");
	for (int i = 0; i < atoi(argv[1]); i++)
		if (pthread_create(&t, NULL, thread, NULL))
			return 1;
	puts("");
	fflush(stdout);
	pause();
	return 0;
}
