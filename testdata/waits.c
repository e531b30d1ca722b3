/* Works and waits, so that both can be told apart: TestWaits has the times. Prints how long the calls of take lasted
 * by a clock that is read inside them, in ns: a thread that comes late waits less for the lock. */
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CALLED __attribute__((noinline, noipa))
#define LAST __asm__ volatile("") /* no tail call */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t together;
static long long taken; /* below lock */

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

CALLED void doze(void) { nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, 0); LAST; }

/* Until it has used 50 ms of a processor, however long that takes. */
CALLED void spin(void)
{
	struct timespec from, now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
	do
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	while ((now.tv_sec - from.tv_sec) * 1000000000L + now.tv_nsec - from.tv_nsec < 50 * 1000 * 1000);
	LAST;
}

CALLED void take(void)
{
	long long from = now();
	pthread_mutex_lock(&lock);
	taken += now() - from;
}

CALLED void lazy(void)
{
	take();
	doze();
	pthread_mutex_unlock(&lock);
}

static void *run(void *p)
{
	pthread_barrier_wait(&together);
	lazy();
	return p;
}

CALLED void child(void)
{
	spin();
	doze();
	LAST;
}

CALLED int main(void)
{
	pthread_t t[3];
	pthread_barrier_init(&together, 0, 3);
	spin();
	doze();
	for (int i = 0; i < 3; i++)
		pthread_create(t + i, 0, run, 0);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], 0);
	printf("%lld\n", taken);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		child();
		_exit(0);
	}
	return waitpid(pid, 0, 0) != pid;
}
