// Runs the program named by its first argument: as a child, as a grandchild by vfork, and in its own place.
//e2e:args ./second
//e2e:companion second
#include "count.h"
#include <sys/time.h>
#include <sys/wait.h>

FN static int first_leaf(int n) { COUNT(); return n ^ 5; }
FN static int run(char *prog, char *arg, pid_t (*how)(void))
{
	COUNT();
	pid_t p = how();
	if (p == 0) {
		execl(prog, prog, arg, (char *)NULL);
		_exit(127);
	}
	int st;
	waitpid(p, &st, 0);
	return WEXITSTATUS(st);
}
FN static void replace(char *prog, int depth)
{
	COUNT();
	if (depth > 0) {
		replace(prog, depth - 1);
		__asm__ volatile("");
		return;
	}
	ABANDON(6);
	/* What gcc -pg starts with a program sets a timer that outlives execve, which would kill the next one. */
	struct itimerval none = {0};
	setitimer(ITIMER_PROF, &none, NULL);
	execl(prog, prog, "3", (char *)NULL);
	_exit(127);
}
int main(int argc, char **argv)
{
	COUNT();
	if (argc < 2)
		return 2;
	for (int i = 0; i < 1000; i++)
		first_leaf(i);
	say("fork %d\n", run(argv[1], (char *)"1", fork));
	say("leaf %d\n", first_leaf(3));
	say("fork again %d\n", run(argv[1], (char *)"2", fork));
	replace(argv[1], 4);
	return 1;
}
