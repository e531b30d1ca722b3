/* Functions that swap pieces of their stack. */
#ifndef FENTRY_SWAP_H
#define FENTRY_SWAP_H
#include "caller.h"
#include "control.h"

hidden void swap_frames(struct control *c, u64 from, struct registers r);

#endif
