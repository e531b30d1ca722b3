/* Signals that come to traced handlers.

   The kernel calls a handler where it has interrupted the thread, with the return address of code
   that only ends it. To the fast paths that is a call like any other, and they would all have to
   ask. So the program's request is changed while the kernel reads it (sigaction.c): in place of a
   handler that is traced it installs a stub (signal.S), which comes here with what the kernel
   says of the signal, and then jumps to the handler. Stack, return address and registers are what the kernel
   has made them, so unwinders and the handler see what they would see without.

   A stub is a handler's, for good: of threads that install handlers at once nobody can call the other
   one's, a child that shares memory with its parent changes nothing of it, and what the kernel or the program has
   kept of a stub's address works when tracing has ended. There are as many as are enough for any
   program; the signals of handlers beyond that are not recorded. */
#include "chunk.h"
#include "image.h"
#include "handler.h"
#include "start.h"
#include "sys.h"

static u64 handlers[SIGNAL_STUBS]; /* by stub; 0: it is free */
static u32 ids[SIGNAL_STUBS];      /* in the trace */
static u32 brief[SIGNAL_STUBS];    /* one was installed without asking for siginfo: what is there need not be any */

/* signal_stub returns the stub of a handler, which gets siginfo or not, or -1 if there is none left for it. */
hidden i32 signal_stub(u64 handler, struct function f, int siginfo)
{
	for (i32 i = 0; i < SIGNAL_STUBS; i++) {
		cas(&handlers[i], 0, handler);
		if (load(&handlers[i]) != handler)
			continue;
		store(&ids[i], trace_id(f));
		if (!siginfo)
			store(&brief[i], 1);
		return i;
	}
	return -1;
}

/* signal_handler returns the handler of a stub; 0: it is free. */
hidden u64 signal_handler(u32 stub) { return stub < SIGNAL_STUBS ? load(&handlers[stub]) : 0; }

/* fentry_slow_signal records that a signal has come to the handler of a stub, and returns that. */
hidden u64 fentry_slow_signal(u64 number, const void *info, const void *context, u32 stub)
{
	struct sigset old = block();
	struct control *c = images_armed() ? traced_thread() : 0;
	if (c) {
		u64 code = 0, address = context_fault(number, context);
		if (!load(&brief[stub])) {
			code = (u64)(i64)*(const i32 *)(info + SIGINFO_CODE);
			address = *(const u64 *)(info + SIGINFO_ADDRESS);
		}
		u64 w[] = {
			number, code, address, *(const u64 *)(context + CONTEXT_PC), load(&ids[stub]),
			*(const u64 *)(context + CONTEXT_MASK),
		};
		record(c, counter(), FT_REC_SIGNAL, w, lengthof(w));
	}
	unblock(old);
	return handlers[stub];
}
