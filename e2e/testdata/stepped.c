// At every instruction of traced calls, the tracer's among them, an unwinder finds the same callers, once each and in order.
// A debugger steps the program so many instructions and sends a signal, whose handler unwinds.
//e2e:machines amd64
//e2e:needs ptrace
//e2e:cflags -fasynchronous-unwind-tables
//e2e:compilers gcc clang
#include "count.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unwind.h>

enum { STEPS = 500, FRAMES = 40, MARK = 0x5eed };

static volatile long sum, bad, seen;
static volatile int done; // an untraced call has fewer instructions than are stepped
static jmp_buf env;

FN static void middle(void);
FN static void outer(void);
FN static void stepped(void);

static NOTRACE _Unwind_Reason_Code on_frame(struct _Unwind_Context *c, void *arg)
{
	static const void *const callers[] = {(void *)middle, (void *)outer, (void *)stepped};
	int *frames = arg; // how many there were, and the callers as digits
	int before; // the instruction, as where a signal came
	uintptr_t ip = _Unwind_GetIPInfo(c, &before);
	const void *fn = _Unwind_FindEnclosingFunction((void *)(ip + before)); // takes one off again
	for (int i = 0; i < 3; i++)
		if (fn == callers[i])
			frames[1] = frames[1] * 10 + i + 1;
	if (fn == (void *)outer && frames[1] == 12 && _Unwind_GetGR(c, 12) != MARK)
		frames[1] = -12; // what middle has saved is not found
	return ++frames[0] < FRAMES ? _URC_NO_REASON : _URC_END_OF_STACK;
}
static NOTRACE void on_signal(int sig)
{
	int frames[2] = {0, 0};
	(void)sig;
	if (done)
		return;
	_Unwind_Backtrace(on_frame, frames);
	seen++;
	// The signal may come before middle has been called, or when it has returned.
	if (frames[1] != 123 && frames[1] != 23 && frames[1] != 3) {
		bad++;
		dprintf(2, "signal %ld: %d frames, callers %d\n", seen, frames[0], frames[1]);
	}
}

FN static void leaf(void)
{
	COUNT();
	sum++;
}
FN static void jump(void)
{
	COUNT();
	ABANDON(1);
	longjmp(env, 1);
}
FN static long odd(long n);
FN static long even(long n)
{
	COUNT();
	return n == 0 ? 1 : odd(n - 1);
}
FN static long odd(long n)
{
	COUNT();
	return n == 0 ? 0 : even(n - 1);
}
FN static double nine(double a, long b, double c, long d, long e, long f, long g, long h, long i)
{
	COUNT();
	return a + c + (double)(b + d + e + f + g + h + i);
}
FN static void middle(void)
{
	COUNT();
	__asm__ volatile("xor %%r12d, %%r12d" ::: "r12");
	leaf();
	sum += even(2);
	sum += (long)nine(1, 2, 3, 4, 5, 6, 7, 8, 9);
	if (setjmp(env) == 0)
		jump();
	leaf();
}
FN static void outer(void)
{
	COUNT();
	register long kept __asm__("r12") = MARK;
	__asm__ volatile("" : "+r"(kept));
	middle();
	__asm__ volatile("" : "+r"(kept));
	sum += kept == MARK;
}
FN static void stepped(void)
{
	COUNT();
	outer(); // what is done once is done
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	for (int n = 0; n < STEPS; n++) {
		__asm__ volatile("int3");
		outer();
	}
	done = 1;
	say("sum %ld, %s signals, %ld bad\n", sum, seen > 50 ? "enough" : "too few", bad);
}

int main(void)
{
	COUNT();
	struct sigaction sa = {.sa_handler = on_signal};
	sigaction(SIGUSR1, &sa, NULL);
	int status;
	pid_t child = fork();
	if (child == 0) {
		stepped();
		_exit(bad != 0);
	}
	for (int n = 0; waitpid(child, &status, 0) == child && WIFSTOPPED(status); n++) {
		for (int i = 0; i < n; i++)
			if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) != 0 || waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
				abort();
		if (ptrace(PTRACE_CONT, child, NULL, (void *)SIGUSR1) != 0)
			abort();
	}
	say("the child ended with %d\n", WEXITSTATUS(status));
	return 0;
}
