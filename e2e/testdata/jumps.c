// longjmp and siglongjmp: out of nested calls, repeatedly, out of a SIGSEGV handler on its alternate stack, and back to a frame between.
#include "count.h"
#include <setjmp.h>
#include <signal.h>

static jmp_buf outer, inner;
static sigjmp_buf fault;
static volatile int calls;

FN static int leaf(int n) { COUNT(); return n + 1; }
FN static void down(int n)
{
	COUNT();
	calls += leaf(n) > 0;
	if (n == 0)
		longjmp(outer, 7);
	down(n - 1);
	__asm__ volatile("");
}
FN static int up(int n)
{
	COUNT();
	int r = setjmp(outer);
	if (r == 0) {
		ABANDON(n + 1);
		down(n);
	}
	return r + leaf(n);
}
FN static void to_the_middle(int n)
{
	COUNT();
	if (n == 0)
		longjmp(inner, 1);
	to_the_middle(n - 1);
	__asm__ volatile("");
}
FN static int middle(int n)
{
	COUNT();
	volatile int rounds = 0;
	if (_setjmp(inner) < 1 || rounds < 3) {
		rounds++;
		ABANDON(n + 1);
		to_the_middle(n);
	}
	return rounds + leaf(1);
}
FN static int above(int n) { COUNT(); return n ? above(n - 1) + leaf(n) - n : middle(5); }
FN static void on_fault(int sig)
{
	COUNT();
	leaf(sig);
	siglongjmp(fault, 1);
}
FN static int poke(volatile int *p)
{
	COUNT();
	return *p;
}
FN static int survive(int *p)
{
	COUNT();
	if (sigsetjmp(fault, 1)) {
		return leaf(2);
	}
	ABANDON(2); // poke and on_fault
	return poke(p);
}
FN static int never_returns_here(int n)
{
	COUNT();
	if (n == 0) {
		_longjmp(outer, 9);
	}
	return KEEP(never_returns_here(n - 1)) + 1;
}
int main(void)
{
	COUNT();
	int s = 0;
	for (int i = 0; i < 500; i++)
		s += up(i % 11);
	say("up %d calls %d\n", s, calls);
	say("above %d\n", above(6));
	struct sigaction sa;
	memset(&sa, 0, sizeof sa);
	sa.sa_handler = on_fault;
	sa.sa_flags = SA_NODEFER;
	sigaction(SIGSEGV, &sa, NULL);
	say("survive %d\n", survive((int *)8));
	stack_t st;
	memset(&st, 0, sizeof st);
	st.ss_size = 64 << 10;
	st.ss_sp = malloc(st.ss_size);
	sigaltstack(&st, NULL);
	sa.sa_flags = SA_ONSTACK;
	sigaction(SIGSEGV, &sa, NULL);
	for (int i = 0; i < 20; i++)
		if (survive((int *)8) != 3)
			abort();
	volatile int k = 0;
	int r = _setjmp(outer);
	if (r == 0) {
		k = 5;
		ABANDON(4);
		never_returns_here(3);
	}
	say("in main %d %d\n", r, k);
	return leaf(0);
}
