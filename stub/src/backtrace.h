/* Backtraces in the trace. */
#ifndef FENTRY_BACKTRACE_H
#define FENTRY_BACKTRACE_H
#include "control.h"
#include "image.h"

hidden u32 take_backtrace(struct control *c, u64 slot, u64 ret, u64 fp);
hidden u32 take_syscall_backtrace(struct control *c, u64 pc, u64 sp, u64 fp);
hidden int sample_due(struct control *c, u64 *delay);
hidden void take_sample(struct control *c, u64 fp);
hidden void write_backtrace(struct control *c, u64 t, u64 asker);

#endif
