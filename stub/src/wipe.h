/* Memory that is zero in a forked child. */
#ifndef FENTRY_WIPE_H
#define FENTRY_WIPE_H
#include "types.h"

enum { ARENAS = 1024 }; /* of control blocks, at most: 65,536 threads */

hidden int wipe_is_emulated(void);
hidden void wiped_on_fork(void *p, u64 size);
hidden void wipe(void *p, u64 size);
hidden void wipe_on_fork(void *p, u64 size);
hidden void wipe_now(void);

#endif
