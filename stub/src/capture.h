/* Arguments and results of calls. */
#ifndef FENTRY_CAPTURE_H
#define FENTRY_CAPTURE_H
#include "control.h"
#include "image.h"
#include "machine.h"

/* general is what most words are: a general register. */
static inline u64 general(const struct capture_op *op, int exit, const struct callregs *r)
{
	return exit ? call_result(r, op->from) : call_argument(r, op->from);
}

hidden u32 capture_word(struct control *c, const struct capture_op *op, int exit, u64 slot, const struct callregs *r,
			u64 *w);
hidden const struct capture_op *capture_words(struct control *c, const struct image *m, const struct capture *p, int exit,
					      u64 slot, const struct callregs *r, u64 *w);
hidden u64 *capture_at(struct control *c, u64 *to, u32 t, const struct image *m, int exit, u64 slot,
		       const struct callregs *r, const struct capture *p);
hidden void capture_call(struct control *c, u64 t, struct function f, int exit, u64 slot, const struct callregs *r,
			 const struct capture *p);

#endif
