/* Signals that come to traced handlers. */
#ifndef FENTRY_HANDLER_H
#define FENTRY_HANDLER_H
#include "image.h"

/* What the kernel says of a signal, asm-generic/siginfo.h. Where there is no address, the word says who has sent it. */
enum { SIGINFO_CODE = 8, SIGINFO_ADDRESS = 16 };

hidden i32 signal_stub(u64 handler, struct function f, int siginfo);
hidden u64 signal_handler(u32 stub);
hidden u64 fentry_slow_signal(u64 number, const void *info, const void *context, u32 stub);

extern hidden const u8 fentry_signal_stubs[SIGNAL_STUBS][SIGNAL_STUB_SIZE];

hidden void sigaction_begins(const u64 *a);
hidden void sigaction_ends(const u64 *a, i64 result);

#endif
