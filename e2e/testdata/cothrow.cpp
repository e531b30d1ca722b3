// Exceptions thrown and caught on coroutine stacks while other coroutines have calls open.
#include "count.h"
#include <stdexcept>
#include <ucontext.h>

static ucontext_t home, ctx[3];
static char stack[3][256 << 10];
static int turn, log_[64], logged;

extern "C" {
FN void thrower(int n)
{
	COUNT();
	if (n == 0)
		throw std::runtime_error("x");
	thrower(n - 1);
	__asm__ volatile("");
}
FN void next(int from)
{
	COUNT();
	turn = (from + 1) % 3;
	swapcontext(&ctx[from], &ctx[turn]);
	__asm__ volatile("");
}
FN void step(int id, int i)
{
	COUNT();
	log_[logged++] = id * 10 + i;
	try {
		ABANDON(i + 1);
		thrower(i);
	} catch (std::exception &) {
		// libgcc keeps the exceptions being handled per thread, so none may be open across a switch
	}
	next(id);
}
FN void body(int id)
{
	COUNT();
	for (int i = 0; i < 6; i++)
		step(id, i);
	if (id == 2) {
		ABANDON(5); // three bodies, and the two others wait in next for good
		setcontext(&home);
	}
	next(id);
	__asm__ volatile("");
}
}
int main()
{
	COUNT();
	for (int i = 0; i < 3; i++) {
		getcontext(&ctx[i]);
		ctx[i].uc_stack.ss_sp = stack[i];
		ctx[i].uc_stack.ss_size = sizeof stack[i];
		ctx[i].uc_link = &home;
		makecontext(&ctx[i], (void (*)())body, 1, i);
	}
	volatile int back = 0;
	getcontext(&home);
	if (!back++)
		setcontext(&ctx[0]);
	int s = 0;
	for (int i = 0; i < logged; i++)
		s = s * 7 + log_[i];
	say("logged %d %d\n", logged, s);
	return 0;
}
