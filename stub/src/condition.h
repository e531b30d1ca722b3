/* Which calls of a function are recorded. */
#ifndef FENTRY_CONDITION_H
#define FENTRY_CONDITION_H
#include "control.h"
#include "image.h"

hidden int conditions_hold(struct control *c, struct function f, u64 slot, const struct callregs *r,
			   const struct action *a, u32 n);

#endif
