// launch REPORT PROGRAM ARGUMENT...: runs a program and writes what it used to the file REPORT: CPU time in microseconds and
// peak resident set in KiB, of the program and the children it has waited for.
//
// The kernel counts the memory of whoever starts a program as the program's own peak (exec keeps what the old image had, and
// a vfork child has its parent's), so it has to be started by something small.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc < 3)
		return 125;
	pid_t child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execvp(argv[2], argv + 2);
		fprintf(stderr, "%s: %s\n", argv[2], strerror(errno));
		_exit(126);
	}
	int status;
	struct rusage u;
	while (child < 0 || wait4(child, &status, 0, &u) < 0)
		if (child < 0 || errno != EINTR)
			return 125;
	FILE *f = fopen(argv[1], "w");
	if (!f)
		return 125;
	fprintf(f, "%lld %ld\n", (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000LL + u.ru_utime.tv_usec + u.ru_stime.tv_usec, u.ru_maxrss);
	if (fclose(f))
		return 125;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
