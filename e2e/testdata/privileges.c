// Changes its root directory and gives up its privileges for good, before most of its calls; new threads come after.
//e2e:needs root
//e2e:run chroot
//e2e:run setuid
//e2e:run both
//e2e:run dumpable
//e2e:may-lose emulated:chroot emulated:setuid emulated:both
#include "count.h"
#include <grp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>

FN static unsigned work(unsigned n) { COUNT(); return n ? KEEP(work(n - 1)) * 3 + 1 : 1; }
FN static unsigned loop(int n) { COUNT(); unsigned s = 0; for (int i = 0; i < n; i++) s += work((unsigned)i % 10); return s; }
FN static void *thread(void *p) { COUNT(); *(unsigned *)p = loop(20000); return NULL; }
FN static void cage(void)
{
	COUNT();
	char dir[] = "cageXXXXXX";
	if (!mkdtemp(dir) || chroot(dir) || chdir("/"))
		abort();
}
FN static void drop(void)
{
	COUNT();
	if (setgroups(0, NULL) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
		abort();
}
int main(int argc, char **argv)
{
	COUNT();
	const char *what = argc > 1 ? argv[1] : "both";
	unsigned a = loop(1000), r = 0;
	if (!strcmp(what, "chroot") || !strcmp(what, "both"))
		cage();
	if (!strcmp(what, "setuid") || !strcmp(what, "both"))
		drop();
	if (!strcmp(what, "dumpable"))
		prctl(PR_SET_DUMPABLE, 0);
	unsigned b = loop(100000);
	pthread_t t;
	pthread_create(&t, NULL, thread, &r);
	pthread_join(t, NULL);
	pid_t p = fork();
	if (p == 0)
		_exit((int)(loop(20000) & 63));
	int st;
	waitpid(p, &st, 0);
	say("%s uid %d %x %x %x child %d\n", what, (int)getuid(), a, b, r, WEXITSTATUS(st));
	return 0;
}
