/* Signals that do nothing are blocked, and pending: those that a file tells of, and one that a thread waits for again and
   again, which is sent to it. Calls sum until standard input ends. Says whether none was lost, and ends with status 7. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

__attribute__((noinline)) long sum(long n)
{
	long r = n ? n + sum(n - 1) : 0;
	__asm__ volatile("" : "+r"(r));
	return r;
}

static volatile int got;

static void *waits(void *arg)
{
	while (sigwaitinfo(arg, 0) > 0)
		got++;
	return 0;
}

int main(void)
{
	struct pollfd in = { 0, POLLIN, 0 };
	struct signalfd_siginfo info[4];
	int sent = 0, lost = 0;
	sigset_t told, waited;
	pthread_t t;
	sigemptyset(&told);
	sigaddset(&told, SIGURG);
	sigaddset(&told, SIGCHLD);
	sigemptyset(&waited);
	sigaddset(&waited, SIGWINCH);
	pthread_sigmask(SIG_BLOCK, &told, 0);
	pthread_sigmask(SIG_BLOCK, &waited, 0);
	int fd = signalfd(-1, &told, 0);
	kill(getpid(), SIGURG);
	kill(getpid(), SIGCHLD);
	pthread_create(&t, 0, waits, &waited);
	prctl(PR_SET_NAME, "ready");
	while (!poll(&in, 1, 1)) {
		sum(10);
		if (got == sent) {
			sent++;
			kill(getpid(), SIGWINCH);
		}
	}
	for (int i = 0; i < 5000 && got != sent; i++)
		usleep(1000);
	lost = sent - got;
	int n = poll(&(struct pollfd){ fd, POLLIN, 0 }, 1, 0) == 1 ? (int)(read(fd, info, sizeof info) / sizeof *info) : 0;
	printf(n == 2 && !lost ? "right\n" : "%d pending, %d of %d lost\n", n, lost, sent);
	return 7;
}
