/* Coroutines that share a stack. Whoever is left has its piece of it copied elsewhere, from its stack pointer up to where all
   of them begin, and whoever goes on has its own copied back. */
#include <stdlib.h>
#include <string.h>
#include "swap.h"

char *swap_base;
struct coroutine *swap_current;
static struct coroutine *to;

static void save(char *sp)
{
	struct coroutine *c = swap_current;
	size_t size = (size_t)(swap_base - sp);
	c->piece = realloc(c->piece, size);
	memcpy(c->piece, sp, size);
	c->sp = sp;
}

static void restore(void) { memcpy(to->sp, to->piece, (size_t)(swap_base - to->sp)); }

/* swap goes on with another coroutine, and returns 0 when that comes back. One that is new goes on here, with 1. */
__attribute__((noinline)) int swap(struct coroutine *other)
{
	char *sp;
	__asm__ volatile("mov %%rsp, %0" : "=r"(sp) : : "memory", "rbx", "r12", "r13", "r14", "r15");
	to = other;
	save(sp);
	swap_current = other;
	if (!other->piece)
		return 1;
	__asm__ volatile("add %0, %%rsp\n\tadd %0, %%rbp" : : "r"(other->sp - sp) : "memory", "rbx", "r12", "r13", "r14", "r15");
	restore();
	return 0;
}
