/* killer N PROGRAM ARGUMENT...: runs a program, and kills it where it is about to make the Nth call by which it
   changes another process: ptrace, or a write to its memory. It says how many it has made. "+N" counts those after SIGUSR1. With
   "=N" the program cannot end when it is killed, by whomever, before a byte comes: "ending" is said then. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t counts;

static void count(int sig) { counts = sig; }

int main(int argc, char **argv)
{
	long at = argc > 2 ? atol(argv[1]) : 0, steps = 0;
	int holds = argc > 2 && argv[1][0] == '=';
	if (holds)
		at = atol(argv[1] + 1);
	counts = argc > 2 && argv[1][0] != '+';
	signal(SIGUSR1, count);
	pid_t child = fork();
	if (!child) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		execvp(argv[2], argv + 2);
		_exit(127);
	}
	int status = 0;
	waitpid(child, &status, __WALL);
	ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL |
		(holds ? PTRACE_O_TRACEEXIT : 0));
	ptrace(PTRACE_SYSCALL, child, 0, 0);
	for (;;) {
		pid_t p = waitpid(-1, &status, __WALL);
		if (p < 0 && errno == ECHILD)
			break;
		if (p < 0 || !WIFSTOPPED(status)) {
			if (p == child)
				break;
			continue;
		}
		int sig = WSTOPSIG(status);
		unsigned long end = 0;
		if (holds && status >> 16 == PTRACE_EVENT_EXIT && !ptrace(PTRACE_GETEVENTMSG, p, 0, &end) && WTERMSIG(end) == SIGKILL) {
			puts("ending"); /* all others are about to end, too */
			fflush(stdout);
			getchar();
			holds = 0;
		}
		if (sig == (SIGTRAP | 0x80)) {
			struct user_regs_struct r;
			sig = 0;
			if (!ptrace(PTRACE_GETREGS, p, 0, &r) && (long)r.rax == -ENOSYS &&
			    (r.orig_rax == SYS_ptrace || r.orig_rax == SYS_pwrite64) && counts && ++steps == at) {
				kill(child, SIGKILL);
				continue;
			}
		} else if (status >> 16 || sig == SIGSTOP || sig == SIGTRAP) {
			sig = 0;
		}
		ptrace(PTRACE_SYSCALL, p, 0, sig);
	}
	printf("%ld\n", steps);
	return WIFSIGNALED(status) ? 9 : WEXITSTATUS(status);
}
