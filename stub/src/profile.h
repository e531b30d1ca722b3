/* The profile tracer's tables. */
#ifndef FENTRY_PROFILE_H
#define FENTRY_PROFILE_H
#include "control.h"

hidden int profile_thread(struct control *c);
hidden void profile_skipped(struct control *c, u64 from, u64 to);

#endif
