/* Calls of which only arguments and results are captured, without system calls. */
#ifndef FENTRY_QUICK_H
#define FENTRY_QUICK_H
#include "image.h"

struct control;

hidden int quick_enter(u64 slot, struct function f, const struct callregs *r);
hidden int quick_leave(u64 slot, struct function f, const struct callregs *r);

#endif
