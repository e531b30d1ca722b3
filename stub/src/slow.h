/* Where fast paths come to. */
#ifndef FENTRY_SLOW_H
#define FENTRY_SLOW_H
#include "control.h"
#include "image.h"

hidden void count_call(struct control *c, struct function f);
hidden int enter_call(struct control *c, u64 slot, struct function f, u64 ret, u64 fp, u64 *t);
hidden void close_call(struct control *c, u64 slot, struct function f, u64 t);
hidden void left_call(struct control *c);
hidden u64 fentry_slow_enter(u64 slot, u32 id, struct image *m, u64 ret, u64 fp);
hidden u64 fentry_slow_exit(u64 slot, u32 id, struct image *m);
hidden struct control *fentry_slow_record(u32 id, struct image *m, u64 fp);
hidden struct reserved fentry_slow_settle(u64 seen, u64 n);

/* The same for all images of a process, as machine.h has it. */
hidden u64 fentry_home_enter_routine(u64 slot, u32 id, struct image *m, u64 ret, u64 fp);
hidden u64 fentry_home_exit_routine(u64 slot, u32 id, struct image *m);
hidden struct control *fentry_home_record_routine(u32 id, struct image *m, u64 fp);

#endif
