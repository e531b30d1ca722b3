// The program is a debugger itself: it starts a child under ptrace, reads its memory, steps it, lets it go.
//e2e:needs ptrace
#include "count.h"
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

static volatile long secret;
FN static int leaf(int n) { COUNT(); return n + 1; }
FN static int debuggee(void)
{
	COUNT();
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	secret = 4242;
	raise(SIGSTOP);
	int r = 0;
	for (int i = 0; i < 100; i++)
		r = leaf(i);
	ABANDON(1);
	_exit(r == 100 ? 17 : 18);
}
FN static int debug(pid_t p)
{
	COUNT();
	int st;
	if (waitpid(p, &st, 0) != p || !WIFSTOPPED(st))
		return -1;
	say("child's secret %ld\n", ptrace(PTRACE_PEEKDATA, p, (void *)&secret, NULL));
	for (int i = 0; i < 500; i++) {
		if (ptrace(PTRACE_SINGLESTEP, p, NULL, NULL) || waitpid(p, &st, 0) != p || !WIFSTOPPED(st))
			return -2;
	}
	ptrace(PTRACE_CONT, p, NULL, NULL);
	waitpid(p, &st, 0);
	return WEXITSTATUS(st);
}
int main(void)
{
	COUNT();
	pid_t p = fork();
	if (p == 0)
		debuggee();
	say("status %d\n", debug(p));
	return 0;
}
