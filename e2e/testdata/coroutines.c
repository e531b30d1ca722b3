// swapcontext coroutines: interleaved, nested calls that yield from their depth, one that is never finished, 500 of them.
// musl has no swapcontext()
//e2e:compilers gcc clang
#include "count.h"
#include <ucontext.h>

static ucontext_t scheduler;
struct co {
	ucontext_t ctx;
	char *stack;
	int id, done;
	unsigned sum;
};
static struct co *current;

FN static void yield(void)
{
	COUNT();
	swapcontext(&current->ctx, &scheduler);
	__asm__ volatile("");
}
FN static unsigned leaf(unsigned n) { COUNT(); return n * 31 + 7; }
FN static unsigned generate(unsigned n)
{
	COUNT();
	if (n == 0) {
		yield();
		return 1;
	}
	unsigned r = KEEP(generate(n - 1)) + leaf(n);
	if (n % 2)
		yield();
	return r;
}
FN static void body(void)
{
	COUNT();
	struct co *me = current;
	for (int i = 0; i < 3; i++)
		me->sum += generate((unsigned)(me->id % 5 + i));
	me->done = 1;
}
FN static void resume(struct co *c)
{
	COUNT();
	current = c;
	swapcontext(&scheduler, &c->ctx);
	__asm__ volatile("");
}
FN static struct co *make(int id)
{
	COUNT();
	struct co *c = calloc(1, sizeof *c);
	c->id = id;
	c->stack = malloc(32 << 10);
	getcontext(&c->ctx);
	c->ctx.uc_stack.ss_sp = c->stack;
	c->ctx.uc_stack.ss_size = 32 << 10;
	c->ctx.uc_link = &scheduler;
	makecontext(&c->ctx, body, 0);
	return c;
}
int main(void)
{
	COUNT();
	enum { N = 500 };
	static struct co *all[N];
	for (int i = 0; i < N; i++)
		all[i] = make(i);
	int live = N, steps = 0;
	while (live) {
		live = 0;
		for (int i = 0; i < N; i++)
			if (!all[i]->done) {
				resume(all[i]);
				steps++;
				live += !all[i]->done;
			}
	}
	unsigned s = 0;
	for (int i = 0; i < N; i++) {
		s = s * 33 + all[i]->sum;
		free(all[i]->stack);
	}
	say("steps %d sum %x\n", steps, s);
	struct co *unfinished = make(4);
	resume(unfinished); // stops in yield, below five times generate and body
	ABANDON(7);
	say("unfinished %d\n", unfinished->done);
	return 0;
}
