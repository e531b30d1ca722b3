// A signal handler that makes so many traced calls that it fills several chunks, wherever it interrupts the tracer: at the
// moments a timer chooses, and behind each instruction of a call, to which a debugger steps.
//e2e:run timer
//e2e:run step
#include "count.h"
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { CALLS = 20000, TIMES = 60, STEPS = 110 };

static volatile long sum;
static volatile useconds_t pause_for; // time for a recorder to take what is full
static volatile sig_atomic_t handled;

FN static void leaf_of_handler(void)
{
	COUNT();
	sum++;
}

FN static void handler(int sig)
{
	COUNT();
	(void)sig;
	for (int i = 0; i < CALLS; i++)
		leaf_of_handler();
	usleep(pause_for);
	handled++;
}

FN static void leaf(void)
{
	COUNT();
	sum++;
}

// The next signal comes at another instruction each time.
FN static void arm(int n)
{
	COUNT();
	struct itimerval t = {.it_value = {0, 300 + n * 37 % 200}};
	setitimer(ITIMER_REAL, &t, NULL);
}

FN static void by_timer(void)
{
	COUNT();
	for (int n = 0; n < TIMES; n++) {
		int before = handled;
		arm(n);
		while (handled == before)
			leaf();
	}
}

#ifdef __x86_64__
FN static void stepped(void)
{
	COUNT();
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	for (int n = 0; n < STEPS; n++) {
		__asm__ volatile("int3");
		leaf();
	}
}

// The n-th time that the child stops at its int3, it is let go n instructions behind it with a signal.
FN static void by_steps(void)
{
	COUNT();
	int status;
	pid_t child = fork();
	if (child == 0) {
		pause_for = 8000;
		stepped();
		_exit(3);
	}
	for (int n = 0; waitpid(child, &status, 0) == child && WIFSTOPPED(status); n++) {
		for (int i = 0; i < n && WIFSTOPPED(status); i++)
			if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) != 0 || waitpid(child, &status, 0) != child)
				abort();
		if (!WIFSTOPPED(status))
			break; // an untraced call has fewer instructions
		if (ptrace(PTRACE_CONT, child, NULL, (void *)SIGALRM) != 0)
			abort();
	}
	say("the child ended with %d\n", WEXITSTATUS(status));
}
#else
FN static void by_steps(void) { COUNT(); }
#endif

FN int main(int argc, char **argv)
{
	COUNT();
	struct sigaction sa = {.sa_handler = handler};
	sigaction(SIGALRM, &sa, NULL);
	if (argc > 1 && strcmp(argv[1], "step") == 0)
		by_steps();
	else
		by_timer();
	return 0;
}
