/* Forks children, one after the other, until standard input ends; each waits for as long as there are less than
   four hundred after it. It ends with status 7. */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <sys/prctl.h>
#include <unistd.h>

__attribute__((noinline)) long sum(long n)
{
	long r = n ? n + sum(n - 1) : 0;
	__asm__ volatile("" : "+r"(r));
	return r;
}

int main(void)
{
	enum { MOST = 400 };
	static pid_t children[MOST];
	struct pollfd in = { 0, POLLIN, 0 };
	prctl(PR_SET_NAME, "ready");
	for (int i = 0; !poll(&in, 1, 0); i = (i + 1) % MOST) {
		sum(10);
		if (children[i] > 0) {
			kill(children[i], SIGKILL);
			waitpid(children[i], 0, 0);
		}
		if (!(children[i] = fork())) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pause();
		}
		usleep(500);
	}
	for (int i = 0; i < MOST; i++)
		if (children[i] > 0) /* -1: there was no room for it */
			kill(children[i], SIGKILL);
	return 7;
}
