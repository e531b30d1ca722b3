/* The tables of the tracers profile and count. */
#ifndef FENTRY_PROFILE_H
#define FENTRY_PROFILE_H
#include "control.h"

hidden int table_thread(struct control *c);
hidden void table_inherit(struct control *c, u64 *table, u64 *active);
hidden void profile_skipped(struct control *c, u64 from, u64 to);

#endif
