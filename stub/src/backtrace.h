/* Backtraces in the trace. */
#ifndef FENTRY_BACKTRACE_H
#define FENTRY_BACKTRACE_H
#include "control.h"
#include "image.h"
#include "walk.h"

hidden u32 take_backtrace(struct control *c, u64 slot, u64 ret, u64 fp);
hidden u32 take_site_backtrace(struct control *c, struct registers r);
hidden u32 take_syscall_backtrace(struct control *c, const struct sysregs *r, u64 sp);
hidden int sample_due(struct control *c, u64 *delay);
hidden void take_sample(struct control *c, u64 fp, u32 id, struct image *m);
hidden void write_backtrace(struct control *c, u64 t, u64 asker);

#endif
