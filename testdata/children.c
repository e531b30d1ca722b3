/* Threads that wait for events, of which there are none, while others make children that end, until standard input ends.
   A wait that is interrupted is an error. It ends with status 7. */
#include <pthread.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WAITERS = 24, PARENTS = 4 };
static volatile int stop;
static int interrupted;

__attribute__((noinline)) int waited(int n) { __asm__ volatile(""); return n + 1; }

static void *waits(void *unused)
{
	int e = epoll_create1(0);
	struct epoll_event event;
	while (!stop)
		if (waited(epoll_wait(e, &event, 1, 20)) != 1)
			__sync_fetch_and_add(&interrupted, 1);
	return unused;
}

static void *forks(void *slow)
{
	while (!stop) {
		pid_t child = fork();
		if (!child) {
			if (slow)
				usleep(1000);
			_exit(0);
		}
		waitpid(child, 0, 0);
		usleep(500);
	}
	return 0;
}

int main(void)
{
	pthread_t t[WAITERS + PARENTS];
	char c;
	for (long i = 0; i < WAITERS + PARENTS; i++)
		pthread_create(&t[i], 0, i < WAITERS ? waits : forks, (void *)(i & 1));
	prctl(PR_SET_NAME, "ready");
	while (read(0, &c, 1) > 0)
		;
	stop = 1;
	for (int i = 0; i < WAITERS + PARENTS; i++)
		pthread_join(t[i], 0);
	if (interrupted)
		printf("%d waits were interrupted\n", interrupted);
	return 7;
}
