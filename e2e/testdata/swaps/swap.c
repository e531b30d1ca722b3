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

/* Nothing of what its caller had on the stack is there yet. */
static __attribute__((noinline)) void restore(void) { memcpy(to->sp, to->piece, (size_t)(swap_base - to->sp)); }

/* STACK_POINTER sets sp to the stack pointer, and MOVE_STACK moves that and the frame pointer. Neither leaves anything in a register. */
#ifdef __x86_64__
#define KEPT "memory", "rbx", "r12", "r13", "r14", "r15"
#define STACK_POINTER(sp) __asm__ volatile("mov %%rsp, %0" : "=r"(sp) : : KEPT)
#define MOVE_STACK(by) __asm__ volatile("add %0, %%rsp\n\tadd %0, %%rbp" : : "r"(by) : KEPT)
#else
#define KEPT "memory", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28"
#define STACK_POINTER(sp) __asm__ volatile("mov %0, sp" : "=r"(sp) : : KEPT)
#define MOVE_STACK(by) __asm__ volatile("add sp, sp, %0\n\tadd x29, x29, %0" : : "r"(by) : KEPT)
#endif

/* swap goes on with another coroutine, and returns 0 when that comes back. One that is new goes on here, with 1. */
__attribute__((noinline)) int swap(struct coroutine *other)
{
	char *sp;
	STACK_POINTER(sp);
	to = other;
	save(sp);
	swap_current = other;
	if (!other->piece)
		return 1;
	MOVE_STACK(other->sp - sp);
	restore();
	return 0;
}
