/* The system call that installs handlers, rt_sigaction: signal.c says why.

   Its arguments are the signal, what is to be, and where what has been goes; both structures begin
   with the handler. The first one is changed in place while the kernel reads it, and changed back: it
   is the C library's own copy. Memory that the program may not write is left alone. */
#include "handler.h"
#include "sys.h"

enum { SIG_IGN_ = 1, FLAGS = 8 /* where they are */, SA_SIGINFO_ = 4 };

/* get reads a word of the program's memory. It returns 0 where there is none. */
static int get(u64 at, u64 *word)
{
	if (!readable(at))
		return 0;
	*word = *(const u64 *)at;
	return 1;
}

/* set writes a word of the program's memory, if the kernel can: it writes the set of signals that are blocked. */
static void set(u64 at, u64 word)
{
	if (!failed(sys(SYS_rt_sigprocmask, 0, 0, at, 8, 0, 0)))
		*(u64 *)at = word;
}

/* conceal puts the handler in the place of its stub, in a structure of the program's. */
static void conceal(u64 at)
{
	u64 handler;
	if (!at || !get(at, &handler))
		return;
	u64 behind = handler - (u64)fentry_signal_stubs;
	if (behind >= sizeof fentry_signal_stubs || behind % SIGNAL_STUB_SIZE)
		return;
	handler = signal_handler((u32)(behind / SIGNAL_STUB_SIZE));
	if (handler)
		set(at, handler);
}

/* sigaction_begins changes what the program asks for with arguments a. */
hidden void sigaction_begins(const u64 *a)
{
	struct function f;
	u64 handler, flags;
	if (!a[1] || !get(a[1], &handler) || !get(a[1] + FLAGS, &flags) || handler <= SIG_IGN_ ||
	    !image_function(handler, &f))
		return;
	i32 stub = signal_stub(handler, f, (flags & SA_SIGINFO_) != 0);
	if (stub < 0)
		return;
	set(a[1], (u64)fentry_signal_stubs[stub]);
}

/* sigaction_ends has the program see its own handlers. */
hidden void sigaction_ends(const u64 *a, i64 result)
{
	conceal(a[1]);
	if (!failed(result))
		conceal(a[2]);
}
