/* Two processes of three threads: one works, one sleeps, the first waits until standard input ends. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CALLED __attribute__((noinline, noipa))

CALLED void doze(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * 1000}, 0);
	__asm__ volatile(""); /* no tail call */
}

/* Until it has used 2 ms of a processor, however long that takes. */
CALLED void work(void)
{
	struct timespec from, now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
	do
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	while ((now.tv_sec - from.tv_sec) * 1000000000L + now.tv_nsec - from.tv_nsec < 2 * 1000 * 1000);
}

static void *again(void *call)
{
	for (;;)
		((void (*)(void))call)();
	return 0;
}

int main(void)
{
	pid_t child = fork();
	pthread_t t;
	if (child < 0 || pthread_create(&t, 0, again, work) || pthread_create(&t, 0, again, doze))
		return 1;
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	printf("%d\n", (int)child);
	fflush(stdout);
	struct pollfd in = {.fd = 0, .events = POLLIN};
	poll(&in, 1, -1);
	kill(child, SIGKILL);
	return 0;
}
