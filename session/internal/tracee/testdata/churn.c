// Threads that wait, and one that makes threads all the time, each of which ends at once, or makes another one first. It ends
// when its standard input does.
//
//	churn THREADS
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static void *waits(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static void *ends(void *more)
{
	pthread_t t;
	if (more && !pthread_create(&t, 0, ends, 0))
		pthread_detach(t);
	return 0;
}

static void *makes(void *arg)
{
	for (;;) {
		pthread_t t;
		if (!pthread_create(&t, 0, ends, arg))
			pthread_join(t, 0);
	}
}

int main(int argc, char **argv)
{
	pthread_t t;
	for (int n = argc > 1 ? atoi(argv[1]) : 0; n > 0; n--)
		if (pthread_create(&t, 0, waits, 0))
			return 77;
	if (pthread_create(&t, 0, makes, argv))
		return 77;
	char c = '\n';
	if (write(1, &c, 1) != 1)
		return 1;
	return read(0, &c, 1) != 0;
}
