/* Arguments and results of calls. */
#ifndef FENTRY_CAPTURE_H
#define FENTRY_CAPTURE_H
#include "control.h"
#include "image.h"

hidden void capture_call(struct control *c, u64 t, struct function f, int exit, u64 slot, const struct callregs *r,
			 const struct capture *p);

#endif
