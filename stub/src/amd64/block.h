/* The running thread's block on x86-64, inline. */
#ifndef FENTRY_BLOCK_H
#define FENTRY_BLOCK_H
#include "control.h"

/* own_block returns the block at the control base if it is this thread's, without a
   system call; else 0. */
static inline struct control *own_block(void)
{
	struct control *c;
	u64 owner;
	__asm__ volatile("mov %%gs:%c1, %0" : "=r"(owner) : "i"(CB_OWNER));
	if (owner != ~thread_pointer())
		return 0;
	__asm__ volatile("mov %%gs:%c1, %0" : "=r"(c) : "i"(CB_SELF));
	return c;
}

#endif
