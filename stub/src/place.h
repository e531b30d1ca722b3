/* Events of functions that have no thunk. */
#ifndef FENTRY_PLACE_H
#define FENTRY_PLACE_H
#include "image.h"

hidden void fentry_slow_place(u64 slot, u32 id, struct image *m, u64 ret);

/* The same for all images of a process, as machine.h has it. */
hidden void fentry_home_place_routine(u64 slot, u32 id, struct image *m, u64 ret);

#endif
