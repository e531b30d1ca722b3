/* Memory that is zero in a forked child. */
#ifndef FENTRY_WIPE_H
#define FENTRY_WIPE_H
#include "types.h"

hidden int wipe_is_emulated(void);
hidden void wipe_on_fork(void *p, u64 size);
hidden void wipe_now(void);

#endif
