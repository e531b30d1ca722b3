/* Executes itself at each line that comes, in a child, or ./script if the line is "script", whose interpreter it is, and says
   what has become of that: "ok" if it was given what it was to be given, and ended with 5. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) int sum(int n)
{
	int s = 0;
	for (int i = 0; i <= n; i++)
		s += i;
	return s;
}

static int executed(char **argv)
{
	sigset_t now;
	sigprocmask(SIG_BLOCK, 0, &now);
	for (int s = 1; s < 32; s++)
		if (sigismember(&now, s) != (s == SIGUSR2))
			return 10 + s;
	int script = !strcmp(argv[2], "./script");
	if (!script && (strcmp(argv[0], "another name") || strcmp(argv[2], "argument")) || !getenv("EXECUTING") || argv[3])
		return 6;
	return sum(100) == 5050 ? 5 : 7;
}

int main(int argc, char **argv)
{
	char line[100];
	if (argc > 1)
		return executed(argv);
	setvbuf(stdout, 0, _IOLBF, 0);
	puts("ready");
	while (fgets(line, sizeof line, stdin)) {
		int status = 0;
		pid_t child = fork();
		if (!child) {
			sigset_t some;
			sigemptyset(&some);
			sigaddset(&some, SIGUSR2);
			sigprocmask(SIG_SETMASK, &some, 0);
			setenv("EXECUTING", "1", 1);
			if (!strcmp(line, "script\n"))
				execl("./script", "no name", (char *)0);
			else
				execl("/proc/self/exe", "another name", "child", "argument", (char *)0);
			_exit(9);
		}
		waitpid(child, &status, 0);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 5)
			puts("ok");
		else
			printf("signal %d, status %d\n", WTERMSIG(status), WEXITSTATUS(status));
	}
	return 7;
}
