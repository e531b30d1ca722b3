/* What the C part of the runtime needs to know of arm64 and of Linux on it: amd64/machine.h
   answers the same questions.

   There is no second thread register that a program may set on every processor, so the control base is a
   word of thread-local memory, which the executable gets behind its own (tls.S). Nobody else has
   that word, and a new thread has 0 there, so no owner is compared; but only the executable
   has such memory at a distance from the thread pointer that is known when it is linked.

   Shared objects would have to call the loader for theirs, so their runtime, which is compiled
   with FENTRY_SHARED, finds blocks by the thread pointer (blocks.c), and compares owner and
   thread id: a new thread often has the thread pointer of one that has ended. That is 12
   instructions more a call. Room in static thread-local memory, which loaders have for a few
   libraries, would cost 1 and run out in programs that load many. An executable that joins
   the runtime of a shared object says where its word is, and is found by it as before.

   Address spaces have 48 bits or fewer, as the kernel was configured, and code cannot tell
   which: what is flipped in an address to get to its shadow depends on the address (thunk.h).
   The distance is kept in the control block, as it is the same in all of a stack.

   Emulators of user programs only pretend to wipe memory in a forked child (wipe.c). There,
   libc_tid finds a word that changes in a child, and the base has UNCHECKED's bit clear. */
#ifndef FENTRY_MACHINE_H
#define FENTRY_MACHINE_H
#include "types.h"
#include "filter.h"
#include "layout.h"

#define MACHINE "aarch64" /* in the trace */

/* asm-generic/unistd.h */
enum {
	SYS_getcwd = 17, SYS_fcntl = 25, SYS_flock = 32, SYS_mkdirat = 34, SYS_unlinkat = 35, SYS_renameat = 38,
	SYS_dup3 = 24, SYS_ftruncate = 46, SYS_fallocate = 47, SYS_fchmod = 52, SYS_openat = 56, SYS_close = 57, SYS_getdents64 = 61,
	SYS_read = 63, SYS_write = 64, SYS_pread64 = 67, SYS_pwrite64 = 68, SYS_readlinkat = 78, SYS_fstat = 80,
	SYS_futex = 98, SYS_clock_gettime = 113, SYS_sched_yield = 124, SYS_tgkill = 131, SYS_sigaltstack = 132,
	SYS_rt_sigprocmask = 135, SYS_prctl = 167, SYS_getpid = 172, SYS_getppid = 173, SYS_geteuid = 175, SYS_gettid = 178,
	SYS_socket = 198, SYS_connect = 203, SYS_setsockopt = 208, SYS_recvmsg = 212,
	SYS_munmap = 215, SYS_mremap = 216, SYS_mmap = 222, SYS_mprotect = 226, SYS_madvise = 233, SYS_prlimit64 = 261,
	SYS_process_vm_readv = 270,
	O_DIRECTORY_ = 040000, O_NOFOLLOW_ = 0100000, /* asm/fcntl.h */
	STAT_MODE = 16, STAT_UID = 24, /* asm-generic/stat.h */
};

/* kernel6 makes a system call, whoever forbids it: syscall6 is for all but that. */
static inline i64 kernel6(i64 nr, i64 a, i64 b, i64 c, i64 d, i64 e, i64 f)
{
	register i64 x8 __asm__("x8") = nr;
	register i64 x0 __asm__("x0") = a;
	register i64 x1 __asm__("x1") = b;
	register i64 x2 __asm__("x2") = c;
	register i64 x3 __asm__("x3") = d;
	register i64 x4 __asm__("x4") = e;
	register i64 x5 __asm__("x5") = f;
	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
}

/* How the kernel tells filters of system calls about this machine (linux/audit.h). No call is only here. */
#define AUDIT_ARCH 0xc00000b7U
#define SYS_MACHINE
#define SYS_MACHINE_LATER

/* counter is the virtual counter. It is read without an isb before it: the
   processor may read it some instructions early, at most as far as it runs ahead.
   That is as far as a tick of most counters (1 to 40 ns), and an isb costs more than
   all the rest of an event, because it stops the processor from running ahead. */
static inline u64 counter(void)
{
	u64 v;
	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(v));
	return v;
}

/* touch_stack reads what is n bytes below the stack pointer, a constant. */
static inline void touch_stack(int n)
{
	u64 v;
	__asm__ volatile("sub %0, sp, %1\n\tldrb %w0, [%0]" : "=r"(v) : "I"(n) : "memory");
}

/* counter_frequency is the counter's in Hz, as the firmware has it. */
static inline u64 counter_frequency(void)
{
	u64 v;
	__asm__ volatile("mrs %0, cntfrq_el0" : "=r"(v));
	return v & 0xffffffff;
}

/* Registers at a system call, as syscall.S and the copy have saved them: the program's stack pointer is
   behind them. The result takes the place of the first argument. */
struct sysregs { u64 fp, back, scratch[2], x4[14], x0[4], flags, pad, x16, x30; };

static inline u64 syscall_number(const struct sysregs *r) { return r->x4[4]; }
static inline u64 syscall_result(const struct sysregs *r) { return r->x0[0]; }
static inline u64 program_fp(void *frame, u64 fp) { return (void)frame, fp; }
static inline u64 syscall_fp(const struct sysregs *r) { return r->fp; }
static inline u64 syscall_place(const struct sysregs *r) { return r->back; } /* where it goes on */
static inline u64 syscall_sp(const struct sysregs *r) { return (u64)(r + 1); }
static inline void syscall_arguments(const struct sysregs *r, u64 *a)
{
	for (u32 i = 0; i < 6; i++)
		a[i] = i < 4 ? r->x0[i] : r->x4[i - 4];
}

/* Registers at a call's entry or exit, as act.S and SLOW (macros.h) have saved them; vectors are v0 to v7. x0 to x3
   are behind what SLOW has saved: its x2 and x3 are the fast path's. */
struct callregs {
	u64 vector[8][2], x19[10];
	struct { u64 x29, x30, fast[2], x4[14], x0[4]; } *saved;
	u64 ret;   /* where the function returns to */
	u64 frame; /* the caller's frame pointer */
	u64 pad;
};
_Static_assert(sizeof(struct callregs) == CALLREGS_SIZE, "act.S");

static inline u64 call_return(const struct callregs *r, u64 slot) { (void)slot; return r->ret; }
static inline u64 call_frame(const struct callregs *r) { return r->frame; }

/* How many general registers arguments are in, and whether no long double is in a register. */
enum { GENERAL_ARGUMENTS = 8, LONG_DOUBLES_STACKED = 0 };

/* call_argument is the nth register that arguments are in, and the first ones results. */
static inline u64 call_argument(const struct callregs *r, u32 n)
{
	return n < 4 ? r->saved->x0[n] : n < 8 ? r->saved->x4[n - 4] : 0;
}
static inline u64 call_result(const struct callregs *r, u32 n) { return call_argument(r, n); }

/* call_stack is where the arguments begin that are on the stack: at the caller's stack pointer, as the slot of a site
   before the prologue is 16 bytes below it. */
static inline u64 call_stack(u64 slot) { return slot + 16; }

static inline void call_x87(u64 *w) { w[0] = w[1] = 0; }

/* Registers at an event of a Go function, as goroutine.S has saved them. go_argument is the nth that arguments are in, and the
   first one that of a result. */
struct goregs { u64 x[16], x30, sp; };
static inline u64 go_argument(const struct goregs *r, u32 n) { return r->x[n]; }
static inline u64 go_sp(const struct goregs *r) { return r->sp; }

/* Where in a signal's context the program counter and the blocked signals are (asm/ucontext.h, asm/sigcontext.h). */
enum { CONTEXT_PC = 440, CONTEXT_MASK = 40, CONTEXT_FAULT = 176, BUS_ERROR = 7, SEGMENTATION_FAULT = 11 };

/* context_fault is the address whose access has raised a signal, 0: no access has, or it is not known. */
static inline u64 context_fault(u64 signal, const void *context)
{
	return signal == BUS_ERROR || signal == SEGMENTATION_FAULT ? *(const u64 *)(context + CONTEXT_FAULT) : 0;
}

/* What the runtime does about some system calls. */
enum { NR_SIGACTION = 134, NR_PRCTL = 167, NR_CLONE = 220, NR_SECCOMP = 277, NR_CLONE3 = 435, NR_EXECVE = 221, NR_EXECVEAT = 281 };

static inline int is_vfork(u64 nr) { (void)nr; return 0; }

/* takes_base says whether a system call gives the control base to the program: none does. */
static inline int takes_base(u64 nr, const u64 *a) { (void)nr, (void)a; return 0; }

/* auxiliary looks at what the kernel says in the auxiliary vector about the machine. */
extern __attribute__((visibility("hidden"))) u32 fentry_sve;
static inline void auxiliary(u64 type, u64 value)
{
	if (type == 16 /* AT_HWCAP */)
		fentry_sve |= (value >> 22 & 1) << SVE_REGISTERS;
	if (type == 26 /* AT_HWCAP2 */)
		fentry_sve |= (value >> 23 & 1) << SVE_STREAMING;
}

/* thread_pointer identifies the running thread. 0: the libc has not set it yet. */
static inline u64 thread_pointer(void)
{
	u64 v;
	__asm__ volatile("mrs %0, tpidr_el0" : "=r"(v));
	return v;
}

/* tls_word is where a thread with a thread pointer has its control base: fentry_tls, in the
   executable's thread-local memory. has_base says whether there is one, set_word that an
   executable has joined, whose word is at a distance from the thread pointer. */
#ifdef FENTRY_SHARED
extern __attribute__((visibility("hidden"))) u64 fentry_word;
static inline u64 *tls_word(u64 tp) { return (u64 *)(tp + load(&fentry_word)); }
static inline int has_base(void) { return load(&fentry_word) != 0; }
static inline void set_word(u64 distance) { store(&fentry_word, distance); }
static inline u64 own_word(void) { return 0; }
#else
static inline u64 *tls_word(u64 tp)
{
	__asm__("add %0, %0, #:tprel_hi12:fentry_tls, lsl #12\n\tadd %0, %0, #:tprel_lo12_nc:fentry_tls" : "+r"(tp));
	return (u64 *)tp;
}
static inline int has_base(void) { return 1; }
static inline void set_word(u64 distance) { (void)distance; }
static inline u64 own_word(void) { return (u64)tls_word(0); }
#endif

/* id_words fills in what gives a function's id by an address in the front of its thunk: W_ID_LOCAL in layout.h, and
   W_ID_ENTER. All is modulo 2^32. */
static inline void id_words(u64 *w, u64 thunks, u64 size, u64 base)
{
	(void)size;
	w[0] = (u32)(1 - (thunks >> FRONT_SHIFT));
	w[1] = (u32)(w[0] + base);
}

/* back_size is the size of what bodies return to in a thunk. */
enum { BACKS_APART = 1 };
static inline u64 back_size(u64 thunk) { return (void)thunk, BACK_SIZE; }

/* blocks_index is a thread's place in fentry_blocks. Thread pointers are as far apart as
   stacks, most of them 8 MiB. */
static inline u64 blocks_index(u64 tp) { return (tp ^ tp >> BLOCKS_FOLD) >> BLOCKS_SHIFT & BLOCKS_MASK; }

/* What other images call has to be a landing pad, as pages of an image that is guarded can be
   (BTI). Their slow paths keep SVE's registers: sve.S. */
#define LANDS __attribute__((target("branch-protection=bti")))
#define fentry_home_enter_routine  fentry_enter_keeping
#define fentry_home_exit_routine   fentry_exit_keeping
#define fentry_home_record_routine fentry_record_keeping
#define fentry_home_act_routine      fentry_act_keeping
#define fentry_home_act_exit_routine fentry_act_exit_keeping
#define fentry_home_place_routine    fentry_place_keeping

enum {
	OWN_BASE = 1, /* nobody else uses the control base, and it is 0 in new threads */
	ADDRESS_BITS = 48,
	SHARED_SLOTS = 1, /* two live frames can have one slot: frame.c */
	SETTLES = 0,
	AHEAD = 0,
	SLOT_HOLDS = 0,
	SLOT_BELOW = 16,
	WALKS = 1,
	DWARF_FP = 29, DWARF_SP = 31, DWARF_RET = 30, DWARF_PC = 32, /* DWARF for the Arm 64-bit Architecture, 4.1 */
	FOLLOWS = 1,
	NEAR_LOADER = 0, /* jumps reach too short a way */
	CHANGES = 0, /* how calls are recorded stays as it is */
	/* The control base of a block is its address and this. Where forks have to be
	   noticed by the thread's id (thread.c), this is left out. */
	UNCHECKED = 8,
};
_Static_assert(CB_NEXT == UNCHECKED, "ldxr has no offset");

static inline int has_pairs(void) { return 0; }

/* own_cas is cas for a word of this thread's own, where nobody but a signal handler can come in between. */
static inline int own_cas(u64 *p, u64 old, u64 new) { return cas(p, old, new); }
static inline void own_add(u64 *p, u64 n) { add(p, n); }

static inline u64 control_base(void)
{
	u64 tp = thread_pointer();
	return tp && has_base() ? *tls_word(tp) & ~(u64)UNCHECKED : 0;
}

static inline i64 set_control_base(void *p, int checked)
{
	*tls_word(thread_pointer()) = (u64)p + (checked ? 0 : UNCHECKED);
	return 0;
}

/* own_thread gives the running thread of a Go program, whose goroutine is at g, a thread pointer that no other thread has. Such
   a program uses none, and new threads inherit it, so it is what makes the control base a word of runtime.m, where its
   events find it, too. at is where that is; 0: the C library has set a thread pointer. */
static inline void own_thread(u64 g, u32 at)
{
	if (!at)
		return;
	u64 tp = *(u64 *)(g + GO_M) + at - own_word();
	if (thread_pointer() != tp)
		__asm__ volatile("msr tpidr_el0, %0" :: "r"(tp) : "memory");
}

/* on_stack says whether a stack pointer is that of a goroutine's stack, which may be empty, and then is where another one can
   end. */
static inline int on_stack(u64 g, u64 sp)
{
	return g && sp > *(u64 *)(g + GO_STACK_LO) && sp <= *(u64 *)(g + GO_STACK_HI);
}

/* is_threads says whether a goroutine is the running thread's, by where that has its stack: one that clone has just made has its
   creator's goroutine, until it has set its own. Goroutines run on their own stacks and on that of the thread's g0. */
static inline int is_threads(u64 g, u64 sp, u32 at)
{
	u64 m = at && g ? *(u64 *)(g + GO_M) : 0;
	return !at || on_stack(g, sp) || (m && on_stack(*(u64 *)(m + GO_M_G0), sp));
}

extern __attribute__((visibility("hidden"))) u64 fentry_first_thread[8];

/* early_thread gives a thread without a thread pointer one, such that its control
   base is in room. */
static inline void early_thread(u64 *room)
{
	if (!thread_pointer() && has_base())
		__asm__ volatile("msr tpidr_el0, %0" :: "r"((u64)room - (u64)tls_word(0)));
}

/* has_memory says whether there is memory at an address in front of some that is there. Emulators look at this argument, and not at
   readable's (sys.h). */
static inline int has_memory(u64 a)
{
	enum { AT_FDCWD__ = -100, EFAULT__ = 14 };
	u8 b;
	return syscall6(SYS_readlinkat, AT_FDCWD__, (i64)a, (i64)&b, sizeof b, 0, 0) != -EFAULT__;
}

/* libc_tid finds where the C library keeps the thread's id: glibc and musl have
   their description of a thread right below the thread pointer, and the kernel
   writes the new id there in a child (CLONE_CHILD_SETTID). Both have links to other
   threads before it, and ids can be small numbers. In a child of vfork another id is there, and the description can begin
   a page. 0: not found. */
static inline u32 *libc_tid(u32 tid)
{
	u64 tp = thread_pointer() & -8UL;
	if (has_base() && tls_word(tp) == fentry_first_thread)
		return 0; /* early_thread's */
	u64 known = tp & -4096UL;
	for (u64 d = 8; d <= 2400; d += 8) {
		u64 before = tp - d - 16;
		if (before < known && !has_memory(before))
			return 0;
		known = before & -4096UL;
		if (*(u32 *)(tp - d) == tid && *(u64 *)before > 65536)
			return (u32 *)(tp - d);
	}
	return 0;
}

/* code_written makes the processor execute what has been written from a to b: its caches of instructions and of data are
   two. Lines are at least as long as the register says (CTR_EL0, the logarithm of the number of words). A system call has
   to follow: what the processor has read ahead is thrown away where that returns. */
static inline void code_written(u64 a, u64 b)
{
	u64 ctr;
	__asm__ volatile("mrs %0, ctr_el0" : "=r"(ctr));
	u64 data = 4UL << (ctr >> 16 & 15), code = 4UL << (ctr & 15);
	for (u64 p = a & -data; p < b; p += data)
		__asm__ volatile("dc cvau, %0" :: "r"(p) : "memory");
	__asm__ volatile("dsb ish" ::: "memory");
	for (u64 p = a & -code; p < b; p += code)
		__asm__ volatile("ic ivau, %0" :: "r"(p) : "memory");
	__asm__ volatile("dsb ish" ::: "memory");
}

/* without_signature takes the signature off a return address, or leaves it as it is. */
static inline u64 without_signature(u64 pc)
{
	register u64 x30 __asm__("x30") = pc;
	__asm__("hint #7" : "+r"(x30)); /* xpaclri */
	return x30;
}

/* with_signature signs a return address, if the processor does that. */
static inline u64 with_signature(u64 pc, u64 sp, int key_b)
{
	register u64 x17 __asm__("x17") = pc;
	register u64 x16 __asm__("x16") = sp;
	if (key_b)
		__asm__("hint #10" : "+r"(x17) : "r"(x16)); /* pacib1716 */
	else
		__asm__("hint #8" : "+r"(x17) : "r"(x16)); /* pacia1716 */
	return x17;
}

/* How a return address is signed. */
enum { UNSIGNED, SIGNED_A, SIGNED_B, SIGNATURES };

static inline u64 signed_as(u64 pc, u64 sp, u32 how) { return how == UNSIGNED ? pc : with_signature(pc, sp, how == SIGNED_B); }

/* code_signs says how a function's code expects its return address to be signed: by the instructions before a return, as the first
   one can have been moved. */
static inline u32 code_signs(u64 lo, u64 hi)
{
	enum { AUTIASP = 0xd50323bf, AUTIBSP = 0xd50323ff, RETAA = 0xd65f0bff, RETAB = 0xd65f0fff };
	for (const u32 *in = (const u32 *)lo; (u64)in < hi; in++)
		switch (*in) {
		case AUTIASP: case RETAA:
			return SIGNED_A;
		case AUTIBSP: case RETAB:
			return SIGNED_B;
		}
	return UNSIGNED;
}

static inline void relax(void) { __asm__ volatile("yield"); }

/* The bits of a stack address that are flipped in its shadow. */
static inline u64 shadow_bit(u64 a) { return 1UL << (a >> SHADOW_SPLIT ? SHADOW_HIGH : SHADOW_LOW); }
static inline u64 shadow_bits(u64 a) { return shadow_bit(a) | shadow_bit(a) >> 1; }

/* Where guests find the home: see amd64/machine.h. Linkers begin at 0x400000 here. */
#define HOME_PAGE 0x1f0000UL

/* Which windows of shadow one of a stack has: fewer when there are no times in it. */
enum { SHADOW_WINDOWS = 2, SHADOW_FEW = 1 };
static inline u64 shadow_window(u64 w, u32 i) { return w ^ (i ? shadow_bits(w) : shadow_bit(w)); }

/* The distances from a stack to its shadow: adding one is flipping the bits, as long
   as they are the same ones and have the same values in all of the stack. */
enum { SHADOW_DISTANCES = 2 };
static inline void shadow_distances(u64 *d, u64 a)
{
	d[0] = (a ^ shadow_bit(a)) - a;
	d[1] = (a ^ shadow_bits(a)) - a;
}
static inline int shadow_apart(u64 a, u64 b)
{
	return shadow_bit(a) != shadow_bit(b) || (a ^ b) & shadow_bits(a);
}

/* Shadow words of the frame whose slot is s. */
#define shadow_prev(s) ((u64 *)((s) ^ shadow_bit(s)))
#define shadow_ret(s)  (shadow_prev(s) + 1)
#define shadow_time(s) ((u64 *)((s) ^ shadow_bits(s)))
#define shadow_aux(s)  (shadow_time(s) + 1)

#endif
