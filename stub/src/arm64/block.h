/* The running thread's block on AArch64, inline. */
#ifndef FENTRY_BLOCK_H
#define FENTRY_BLOCK_H
#include "control.h"

/* own_block returns the block at the control base if it is this thread's; else 0. */
static inline struct control *own_block(void)
{
	u64 tp = thread_pointer(), base = tp && has_base() ? *tls_word(tp) : 0;
	struct control *c = (struct control *)(base & ~(u64)UNCHECKED);
	if (!c || c->owner != ~tp || (!(base & UNCHECKED) && (!c->libtid || *c->libtid != c->tid)))
		return 0;
	return c;
}

#endif
