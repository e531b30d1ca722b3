// A tree of children, a fork in the middle of nested calls where both sides return, and statuses of stopped and killed children.
#include "count.h"
#include <signal.h>
#include <sys/wait.h>

FN static int work(int n) { COUNT(); return n < 2 ? n : KEEP(work(n - 1)) + KEEP(work(n - 2)); }
FN static int status_of(pid_t p)
{
	COUNT();
	int st;
	if (waitpid(p, &st, 0) != p)
		abort();
	return WIFEXITED(st) ? WEXITSTATUS(st) : 1000 + WTERMSIG(st);
}
FN static int tree(int depth)
{
	COUNT();
	if (depth == 0)
		return work(10) & 0x7f;
	int sum = 0;
	for (int i = 0; i < 2; i++) {
		pid_t p = fork();
		if (p == 0) {
			int r = tree(depth - 1) & 0x7f;
			_exit(r); // the child's inherited tree() and main() frames are the parent's entries
		}
		sum += status_of(p);
	}
	return sum & 0x7f;
}
static pid_t middle_child;
FN static int middle(int n)
{
	COUNT();
	if (n == 0) {
		middle_child = fork();
		return middle_child == 0;
	}
	int r = middle(n - 1);
	__asm__ volatile("" ::: "memory");
	return r + (r > 0);
}
FN static int both_return(void)
{
	COUNT();
	int r = middle(20);
	if (r) {
		ABANDON(-21); // middle() returned 21 times more often than it was called
		_exit(r);
	}
	return status_of(middle_child);
}
FN static int stopped(void)
{
	COUNT();
	pid_t p = fork();
	if (p < 0)
		return -1;
	if (p == 0) {
		work(5);
		raise(SIGSTOP);
		work(6);
		_exit(3);
	}
	int st;
	if (waitpid(p, &st, WUNTRACED) != p || !WIFSTOPPED(st) || WSTOPSIG(st) != SIGSTOP)
		return -1;
	kill(p, SIGCONT);
	return status_of(p);
}
FN static int killed(void)
{
	COUNT();
	int hold[2];
	if (pipe(hold))
		return -1;
	pid_t p = fork();
	if (p < 0)
		return -1;
	if (p == 0) {
		work(7);
		if (write(hold[1], "x", 1) != 1)
			_exit(9);
		for (;;)
			pause();
	}
	char c;
	if (read(hold[0], &c, 1) != 1)
		return -1;
	kill(p, SIGKILL);
	return status_of(p);
}
int main(void)
{
	COUNT();
	say("tree %d\n", tree(4));
	say("both %d\n", both_return());
	say("stopped %d\n", stopped());
	say("killed %d\n", killed());
	for (int i = 0; i < 100; i++) {
		pid_t p = fork();
		if (p == 0)
			_exit(work(i % 5));
		if (status_of(p) != (i % 5 < 2 ? i % 5 : (int[]){0, 1, 1, 2, 3}[i % 5]))
			abort();
	}
	say("work %d\n", work(12));
	return 4;
}
