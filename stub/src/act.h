/* What is done at calls of some functions beside recording them. */
#ifndef FENTRY_ACT_H
#define FENTRY_ACT_H
#include "control.h"
#include "image.h"

hidden int fentry_slow_act(u64 slot, u32 id, struct image *m, struct callregs *r);
hidden u64 fentry_slow_act_exit(u64 slot, u32 id, struct image *m, struct callregs *r);

/* The same for all images of a process, as machine.h has it. */
hidden int fentry_home_act_routine(u64 slot, u32 id, struct image *m, struct callregs *r);
hidden u64 fentry_home_act_exit_routine(u64 slot, u32 id, struct image *m, struct callregs *r);

#endif
