// Runs a program with signals blocked, among them those that runtimes unblock,
// and an odd environment.
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	static const int s[] = { SIGCHLD, SIGTERM, SIGSEGV, SIGPROF, SIGURG, SIGTRAP, SIGUSR2 };
	sigset_t set;
	sigemptyset(&set);
	for (unsigned i = 0; i < sizeof s / sizeof *s; i++)
		sigaddset(&set, s[i]);
	sigprocmask(SIG_BLOCK, &set, 0);
	char *env[] = { "A=1", "A=2", "nothing", "=x", "PATH=/bin:/usr/bin", 0 };
	execve(argv[1], argv + 1, env);
	perror(argv[1]);
	return 94;
}
