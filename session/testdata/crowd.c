// Many threads, each of which calls a function and then is idle until all have.
//
//	crowd THREADS CALLS
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define notrace __attribute__((patchable_function_entry(0)))

static int threads, calls;
static _Atomic int ready;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t over = PTHREAD_COND_INITIALIZER;
static int done;

__attribute__((noinline, noipa)) int leaf(int n) { return n + 1; }

notrace static void *run(void *arg)
{
	volatile int sum = 0;
	for (int i = 0; i < calls; i++)
		sum += leaf(i);
	pthread_mutex_lock(&lock);
	if (++ready == threads) {
		done = 1;
		pthread_cond_broadcast(&over);
	}
	while (!done)
		pthread_cond_wait(&over, &lock);
	pthread_mutex_unlock(&lock);
	return arg;
}

notrace int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	threads = atoi(argv[1]);
	calls = atoi(argv[2]);
	pthread_attr_t a;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 32 << 10);
	pthread_attr_setguardsize(&a, 0); // a process has 65,530 mappings, and a guard is one
	pthread_t *t = calloc(threads, sizeof *t);
	for (int i = 0; i < threads; i++)
		if (pthread_create(&t[i], &a, run, 0)) {
			fprintf(stderr, "thread %d cannot be made\n", i);
			return 77;
		}
	for (int i = 0; i < threads; i++)
		pthread_join(t[i], 0);
	return 0;
}
