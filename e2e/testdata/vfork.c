// vfork with _exit, with exec, from nested calls; the parent's own frames must survive what the child did on its stack.
// qemu-user makes a fork of vfork
//e2e:may-lack emulated:leaf
#include "count.h"
#include <sys/wait.h>

FN static int leaf(int n) { COUNT(); return n * 3 + 1; }
FN static int child_exits(int n)
{
	COUNT();
	pid_t p = vfork();
	if (p == 0)
		_exit(leaf(n) & 0x7f);
	int st;
	waitpid(p, &st, 0);
	return WEXITSTATUS(st) + leaf(n);
}
FN static int child_execs(const char *what)
{
	COUNT();
	pid_t p = vfork();
	if (p == 0) {
		leaf(1);
		execl("/bin/sh", "sh", "-c", what, (char *)NULL);
		_exit(127);
	}
	int st;
	waitpid(p, &st, 0);
	return WEXITSTATUS(st);
}
FN static int nested(int n)
{
	COUNT();
	if (n == 0)
		return child_exits(5) + child_execs("exit 6");
	int r = nested(n - 1);
	return r + leaf(n);
}
int main(void)
{
	COUNT();
	for (int i = 0; i < 50; i++)
		if (child_exits(i) != ((i * 3 + 1) & 0x7f) + i * 3 + 1)
			abort();
	say("exec %d\n", child_execs("exit 42"));
	say("nested %d\n", nested(10));
	return child_execs("exit 5");
}
