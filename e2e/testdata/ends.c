// Every way a process can end, from eleven calls deep, after a known number of calls.
//e2e:run exit
//e2e:run _exit
//e2e:run abort
//e2e:run kill
//e2e:run term
//e2e:run segv
//e2e:run trap
//e2e:run return
//e2e:run exec
//e2e:run quick
//e2e:run thread
#include "count.h"
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

FN static int work(int n) { COUNT(); return n < 2 ? n : KEEP(work(n - 1)) + KEEP(work(n - 2)); }
FN static void at_exit_handler(void) { COUNT(); say("atexit %d\n", work(8)); }
FN static void end(const char *how)
{
	COUNT();
	if (!strcmp(how, "exit"))
		exit(7);
	if (!strcmp(how, "_exit"))
		_exit(8);
	if (!strcmp(how, "abort"))
		abort();
	if (!strcmp(how, "kill"))
		kill(getpid(), SIGKILL);
	if (!strcmp(how, "term"))
		raise(SIGTERM);
	if (!strcmp(how, "segv"))
		*(volatile int *)16 = 1;
	if (!strcmp(how, "trap"))
		__builtin_trap();
	if (!strcmp(how, "exec")) {
		/* What gcc -pg starts with a program sets a timer that outlives execve, which would kill the shell. */
		struct itimerval none = {0};
		setitimer(ITIMER_PROF, &none, NULL);
		execl("/bin/sh", "sh", "-c", "exit 9", (char *)NULL);
	}
	if (!strcmp(how, "quick"))
		quick_exit(10);
}
FN static void nested(const char *how, int n)
{
	COUNT();
	if (n == 0)
		end(how);
	else
		nested(how, n - 1);
	__asm__ volatile("");
}
FN static void *thread(void *p)
{
	COUNT();
	nested("exit", 9);
	return p;
}
int main(int argc, char **argv)
{
	COUNT();
	atexit(at_exit_handler);
	at_quick_exit(at_exit_handler);
	const char *how = argc > 1 ? argv[1] : "return";
	say("work %d\n", work(20));
	if (!strcmp(how, "thread")) {
		ABANDON(13); // main, thread, ten times nested, end
		pthread_t t;
		pthread_create(&t, NULL, thread, NULL);
		pthread_join(t, NULL);
	}
	if (strcmp(how, "return"))
		ABANDON(12); // main, ten times nested, end
	nested(how, 9);
	return 11;
}
