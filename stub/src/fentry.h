/* fentry.h: what libfentry.a offers to the program it is linked with.

   A program compiled with -pg, or -pg -mfentry, calls mcount or __fentry__ at the
   start of every function. libfentry.a implements them. It writes a trace of entries
   and exits, like a program that was patched by "fentry patch":

       FENTRY_DATA=DIR   the trace goes to DIR instead of fentry.data
       FENTRY_OFF=1      no trace is written

   Under fentry record, and in processes started there, events go to the recorder's trace.

   The program's own functions can be called as well, or instead. They are set as in
   the Linux kernel, by assigning to the variables below, at any time. All registers
   are saved around the calls, vector registers too (up to 3 KiB of stack; on arm64 up
   to 10 KiB with the longest vectors).

   Compilers know nothing of the calls of mcount. So the variables below are volatile,
   and what a callback shares with traced functions has to be volatile or atomic, as
   with signal handlers. A function that is inlined, or whose result is known without
   calling it, calls no callback.

   Callbacks and what they call should be compiled without -pg, or be marked

       __attribute__((no_instrument_function))

   Traced functions that a callback calls are not traced. A callback must return: it
   must not throw, longjmp or end the thread.

   Addresses: selfpc is the return address of the call of mcount minus
   MCOUNT_INSN_SIZE: the call itself, or one byte into it where the compiler used a
   form of 6 bytes. frompc is where the function will return to. */
#ifndef FENTRY_H
#define FENTRY_H

#ifdef __aarch64__
#define MCOUNT_INSN_SIZE 4
#else
#define MCOUNT_INSN_SIZE 5
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* If non-zero, nothing is traced and no callback is called. Calls that are open still
   end as they would have. */
extern volatile int function_trace_stop;

/* Unless it is ftrace_stub, it is called at the entry of every function. The trace is
   still written. A trampoline (below) passes two more arguments: function_trace_op
   and the registers. */
extern void (*volatile ftrace_trace_function)(unsigned long frompc, unsigned long selfpc);
extern void ftrace_stub(unsigned long frompc, unsigned long selfpc);
extern void *volatile function_trace_op;

/* Entries and exits. Unless they are ftrace_graph_entry_stub and ftrace_stub_graph, the
   two replace the trace: entry is called first, and if it returns non-zero, return is
   called when the function returns. A function that ends with a tail call returns before
   the called one begins. Functions left by longjmp or an exception do not return. */
struct ftrace_graph_ent {
	unsigned long func; /* selfpc */
	int depth;          /* traced calls around this one */
};
struct ftrace_graph_ret {
	unsigned long func;
	unsigned long overrun;          /* calls not followed so far, because there was no room for their stack */
	unsigned long long calltime;    /* timestamp counter */
	unsigned long long rettime;
	int depth;
};
extern int (*volatile ftrace_graph_entry)(struct ftrace_graph_ent *);
extern void (*volatile ftrace_graph_return)(struct ftrace_graph_ret *);
extern int ftrace_graph_entry_stub(struct ftrace_graph_ent *);
extern void ftrace_stub_graph(struct ftrace_graph_ret *); /* the same address as ftrace_stub */

/* The real return address of a function whose stack has ret at retp: it differs from
   ret if ret is return_to_handler. */
extern unsigned long ftrace_graph_ret_addr(unsigned long ret, unsigned long *retp);

/* Puts a mark into the calling thread's trace: a number and a text, which ends at a NUL
   byte or after 2,032 bytes; text may be 0. Without a trace, nothing happens. It may be
   called in signal handlers. */
extern void fentry_mark(unsigned long value, const char *text);

/* What follows is for programs whose call sites are rewritten, by themselves or in the
   file.

   A trampoline's call at ftrace_call goes to ftrace_stub at first, and can be
   rewritten. After it, at ftrace_graph_call, is a nop, or a jump to
   ftrace_graph_caller, which follows the function until it returns: it calls
   prepare_ftrace_return, and return_to_handler calls ftrace_return_to_handler.
   ftrace_mcount_caller, for sites behind the prologue, has ftrace_mcount_call and
   ftrace_graph_mcount_call. */
extern void _mcount(void);
extern void ftrace_caller(void), ftrace_regs_caller(void), ftrace_mcount_caller(void);
extern char ftrace_call[], ftrace_mcount_call[];
extern char ftrace_graph_call[], ftrace_graph_mcount_call[];
extern void ftrace_graph_caller(void), return_to_handler(void);

/* Backtraces have a frame of return_to_handler between traced functions, for which
   debuggers show this name. */
extern char ftrace_return[];

#ifdef __aarch64__

/* A site before the prologue has two instructions (-fpatchable-function-entry=2): mov x9,
   x30 and bl ftrace_caller or, to have every register in the block below, bl
   ftrace_regs_caller. The two share ftrace_call and ftrace_graph_call. Callbacks get
   what the kernel's get, (ip, parent_ip, function_trace_op, regs); the first two are
   selfpc and frompc. Callers must not rely on x9 being kept: compile with -fno-ipa-ra.

   A site behind the prologue, that of -pg, has bl ftrace_mcount_caller in place of bl
   _mcount. Its functions need unwind information, which compilers generate unless told
   not to; others are not traced. Where the function has signed its return address
   (-mbranch-protection), the handler's is signed for it. Addresses kept in shadow
   memory are not signed.

   parent is where the return address was taken from; the fourth argument is the stack
   pointer the function was called with. It identifies the frame when the function
   returns: parent of ftrace_return_to_handler is the stack pointer - 16. */
extern void prepare_ftrace_return(unsigned long *parent, unsigned long selfpc, unsigned long frame_pointer,
				  unsigned long stack_pointer);
extern unsigned long ftrace_return_to_handler(unsigned long *parent, unsigned long frame_pointer);

/* Registers at the site, the kernel's pt_regs. ftrace_caller and ftrace_mcount_caller leave
   out x19 to x28 and pstate; all is then 0. A callback may change registers: the traced
   function continues at pc and returns to x30, and the others are loaded too, except sp.
   If orig_x0 is not 0, the function it points to is called as if by the site: with x9
   where the traced function returns to and x30 after the site. */
struct ftrace_regs {
	unsigned long regs[31], sp, pc, pstate, orig_x0;
	unsigned long all;    /* 1: all registers are there */
	unsigned long record; /* ftrace_mcount_caller: the function's frame record */
	unsigned long reserved;
	/* frame record of the trampoline; before the prologue, the function's follows the block */
	unsigned long stackframe[2];
	unsigned long reserved2[2];
};

#else

/* A site at the start of a function calls ftrace_caller or, to have every register
   in the block below, ftrace_regs_caller, which has ftrace_regs_call and
   ftrace_graph_regs_call; a site behind the prologue calls ftrace_mcount_caller. They
   call with (frompc, selfpc, function_trace_op, regs). The nop has 5 bytes. */
extern void mcount(void), __fentry__(void);
extern char ftrace_regs_call[], ftrace_graph_regs_call[];

/* The third argument is the frame pointer of the function's caller. It is compared
   when the function returns; the first change is reported. */
extern void prepare_ftrace_return(unsigned long *parent, unsigned long selfpc, unsigned long frame_pointer);

/* parent is where the return address was, as above. Returns what was there. */
extern unsigned long ftrace_return_to_handler(unsigned long *parent, unsigned long frame_pointer);

/* Registers at the site. ftrace_caller and ftrace_mcount_caller leave out rbx, r12
   to r15, eflags and ss; cs is then 0. A callback may change ip, where the traced
   function continues. With ftrace_regs_caller the other registers are loaded too, and if
   orig_ax is not 0, the function it points to is called as if by the site, with the
   return address at its stack pointer. */
struct ftrace_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};

#endif

#ifdef __cplusplus
}
#endif
#endif
