/* A shared library whose answer tells which file it is, with a constructor that does what the
   environment asks for. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int answer(void) { return ANSWER; }

static int caught;
static void on_usr1(int sig) { caught += sig == SIGUSR1; }
int signals(void) { return caught; }

static void *load(void *p)
{
	return dlopen("libm.so.6", RTLD_NOW) ? p : 0;
}

__attribute__((constructor)) static void begin(void)
{
	const char *what = getenv("LIBRARY");
	if (!what)
		return;
	if (!strcmp(what, "fork")) { /* the child goes on to main */
		int status;
		pid_t pid = fork();
		if (pid > 0 && (wait(&status) != pid || status))
			_exit(99);
		setenv("LIBRARY", pid ? "parent" : "child", 1);
	} else if (!strcmp(what, "exec")) {
		unsetenv("LIBRARY");
		execl("/proc/self/exe", "again", (char *)0);
	} else if (!strcmp(what, "thread")) {
		pthread_t t;
		void *r = 0;
		if (pthread_create(&t, 0, load, &r) || pthread_join(t, &r) || !r || !dlopen("libresolv.so.2", RTLD_NOW))
			_exit(98);
	} else if (!strcmp(what, "exit"))
		_exit(33);
	else if (!strcmp(what, "kill"))
		kill(getpid(), SIGTERM);
	else if (!strcmp(what, "stop"))
		raise(SIGSTOP);
	else if (!strcmp(what, "signal")) {
		signal(SIGUSR1, on_usr1);
		for (int i = 0; i < 5; i++)
			raise(SIGUSR1);
	}
}
