/* What the C part of the runtime needs to know of x86-64 and of Linux on it: arm64/machine.h
   answers the same questions.

   The control base is the gs base. The ABI gives threads fs, and leaves gs to nobody: it
   costs nothing to read through, and there is no room for thread-local memory in a program
   that is linked already. But it is not the runtime's either. A new thread inherits its
   creator's, so each block names its owner, and a program may use gs itself, so blocks can
   also be found without it (OWN_BASE 0, blocks.c). Reading or writing it is a system call
   (arch_prctl): rdgsbase needs a kernel that has enabled it, and slow paths are rare.

   Stacks lie right below 1 << 47, so where bits 46 to 44 of their addresses are flipped,
   Linux places nothing: each word of a shadow has a window of its own. */
#ifndef FENTRY_MACHINE_H
#define FENTRY_MACHINE_H
#include "types.h"
#include "filter.h"
#include "layout.h"

#define MACHINE "x86_64" /* in the trace */

/* asm/unistd_64.h */
enum {
	SYS_read = 0, SYS_write = 1, SYS_close = 3, SYS_fstat = 5, SYS_mmap = 9, SYS_mprotect = 10, SYS_munmap = 11,
	SYS_rt_sigprocmask = 14, SYS_pread64 = 17, SYS_pwrite64 = 18, SYS_sched_yield = 24, SYS_mremap = 25,
	SYS_madvise = 28, SYS_getpid = 39, SYS_socket = 41, SYS_connect = 42, SYS_recvmsg = 47, SYS_setsockopt = 54,
	SYS_fcntl = 72, SYS_flock = 73, SYS_ftruncate = 77, SYS_getcwd = 79,
	SYS_fchmod = 91, SYS_geteuid = 107, SYS_getppid = 110, SYS_sigaltstack = 131, SYS_prctl = 157,
	SYS_arch_prctl = 158, SYS_gettid = 186, SYS_futex = 202, SYS_getdents64 = 217, SYS_clock_gettime = 228,
	SYS_tgkill = 234, SYS_openat = 257, SYS_mkdirat = 258, SYS_unlinkat = 263, SYS_renameat = 264,
	SYS_readlinkat = 267, SYS_fallocate = 285, SYS_dup3 = 292, SYS_prlimit64 = 302,
	SYS_process_vm_readv = 310,
	O_DIRECTORY_ = 0200000, O_NOFOLLOW_ = 0400000,
	STAT_MODE = 24, STAT_UID = 28, /* asm/stat.h */
};

/* kernel6 makes a system call, whoever forbids it: syscall6 is for all but that. */
static inline i64 kernel6(i64 nr, i64 a, i64 b, i64 c, i64 d, i64 e, i64 f)
{
	i64 r;
	register i64 r10 __asm__("r10") = d;
	register i64 r8 __asm__("r8") = e;
	register i64 r9 __asm__("r9") = f;
	__asm__ volatile("syscall" : "=a"(r) : "0"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return r;
}

/* How the kernel tells filters of system calls about this machine (linux/audit.h), and the calls that are only here. */
#define AUDIT_ARCH 0xc000003eU
#define SYS_MACHINE_LATER { SYS_arch_prctl, { ARCH_GET_FS, 4096 } }, { SYS_arch_prctl, { ARCH_SET_FS, 4096 } },
#define SYS_MACHINE { SYS_arch_prctl, { ARCH_GET_GS, 4096 } }, { SYS_arch_prctl, { ARCH_SET_GS, 4096 } },

/* counter is the timestamp counter. */
static inline u64 counter(void)
{
	u32 lo, hi;
	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
	return (u64)hi << 32 | lo;
}

/* touch_stack reads what is n bytes below the stack pointer, a constant. */
static inline void touch_stack(int n) { __asm__ volatile("testb %%al, %c0(%%rsp)" : : "i"(-n) : "cc", "memory"); }

/* thread_pointer identifies the running thread: the word at fs:0, which the
   x86-64 TLS ABI makes the thread pointer itself. */
static inline u64 thread_pointer(void)
{
	u64 v;
	__asm__ volatile("mov %%fs:0, %0" : "=r"(v));
	return v;
}

enum { ARCH_SET_GS = 0x1001, ARCH_SET_FS = 0x1002, ARCH_GET_FS = 0x1003, ARCH_GET_GS = 0x1004 };

/* own_cas_pair is own_cas for two words, at a multiple of 16; has_pairs says whether the processor has it, as all have
   but the very first. */
static inline int own_cas_pair(u64 *p, u64 old, u64 old1, u64 new, u64 new1)
{
	u8 done;
	__asm__ volatile("cmpxchg16b %1" : "=@cce"(done), "+m"(*(u64 (*)[2])p), "+a"(old), "+d"(old1)
			 : "b"(new), "c"(new1) : "memory");
	return done;
}

static inline int has_pairs(void)
{
	u32 a = 1, b, c = 0, d;
	__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	return c >> 13 & 1;
}

/* own_cas is cas for a word of this thread's own, where nobody but a signal handler can come in between. */
static inline int own_cas(u64 *p, u64 old, u64 new)
{
	u8 done;
	__asm__ volatile("cmpxchg %3, %1" : "=@cce"(done), "+m"(*p), "+a"(old) : "r"(new) : "memory");
	return done;
}

/* own_add adds to such a word. */
static inline void own_add(u64 *p, u64 n) { __asm__ volatile("add %1, %0" : "+m"(*p) : "r"(n) : "memory"); }

static inline u64 control_base(void)
{
	u64 v = 0;
	syscall6(SYS_arch_prctl, ARCH_GET_GS, (i64)&v, 0, 0, 0, 0);
	return v;
}

static inline i64 set_control_base(void *p, int checked)
{
	(void)checked;
	return syscall6(SYS_arch_prctl, ARCH_SET_GS, (i64)p, 0, 0, 0, 0);
}

/* libc_tid finds where the C library keeps the thread's id: in its description of a thread, at the
   thread pointer. The kernel writes the id of a new thread there before that runs
   (CLONE_PARENT_SETTID). glibc's begins with two pointers to itself around another one, and small
   numbers; musl's with one, and links to other threads behind another one. 0: neither's. */
static inline u32 *libc_tid(u32 tid)
{
	enum { GLIBC_TID = 720, MUSL_TID = 48, NOT_SMALL = 65536 };
	u64 tp = thread_pointer(), first, second;
	if (!tp)
		return 0;
	__asm__ volatile("mov %%fs:16, %0\n\tmov %%fs:24, %1" : "=r"(first), "=r"(second));
	u64 at = 0;
	if (first == tp && (u32)second < NOT_SMALL && second >> 32 < NOT_SMALL)
		at = GLIBC_TID;
	else if (first >= NOT_SMALL && second >= NOT_SMALL)
		at = MUSL_TID;
	u32 *p = (u32 *)(tp + at);
	return at && *p == tid ? p : 0;
}

/* code_written: what has been written is executed. */
static inline void code_written(u64 a, u64 b) { (void)a, (void)b; }

/* Return addresses are not signed. */
static inline u64 without_signature(u64 pc) { return pc; }
enum { UNSIGNED, SIGNATURES };
static inline u64 signed_as(u64 pc, u64 sp, u32 how) { return (void)sp, (void)how, pc; }
static inline u32 code_signs(u64 lo, u64 hi) { return (void)lo, (void)hi, UNSIGNED; }

static inline void relax(void) { __asm__ volatile("pause"); }

/* A static program has no thread pointer until its libc sets one, and the fast
   paths read the word it points to: early_thread makes that word 0 of room. */
static inline void early_thread(u64 *room)
{
	u64 fs = 0;
	syscall6(SYS_arch_prctl, ARCH_GET_FS, (i64)&fs, 0, 0, 0, 0);
	if (!fs) {
		room[0] = (u64)room;
		syscall6(SYS_arch_prctl, ARCH_SET_FS, (i64)room, 0, 0, 0, 0);
	}
}

/* auxiliary looks at what the kernel says in the auxiliary vector about the machine. */
static inline void auxiliary(u64 type, u64 value) { (void)type, (void)value; }

/* counter_frequency is the counter's in Hz where the machine says it, else 0. */
static inline u64 counter_frequency(void) { return 0; }

enum {
	OWN_BASE = 0,      /* the program may use the control base itself, and new threads inherit it */
	ADDRESS_BITS = 47, /* of addresses that Linux hands out unasked */
	SHARED_SLOTS = 0,  /* two live frames can have one slot: frame.c */
	SETTLES = 1,       /* without a clock, slots are reserved by an addition: settle.c */
	AHEAD = 3,         /* chunks that a thread without a clock takes beforehand: ahead.c */
	SLOT_HOLDS = 1,    /* a call's slot is where its return address is */
	SLOT_BELOW = 8,    /* from a call's slot to its CFA */
	WALKS = 1,         /* stacks are walked by unwind tables: walk.c */
	DWARF_FP = 6, DWARF_SP = 7, DWARF_RET = 16, /* x86-64 psABI, figure 3.36 */
	DWARF_PC = 0, /* no column of its own */
	FOLLOWS = 1,       /* programs that this one executes can be traced: follow.c */
	NEAR_LOADER = 1 << 29, /* how far below the dynamic loader jumps from libraries reach, and no library comes */
	CHANGES = 1,       /* a recorder can change how calls are recorded: change.c */
};

/* program_fp is the program's frame pointer in a function, with this frame, that a fast path has called: what SLOW in macros.h
   has saved at 8(%rbp). */
static inline u64 program_fp(void *frame, u64 fp) { return (void)fp, (*(u64 **)frame)[1]; }

/* Registers at a system call, as syscall.S has saved them: the program's stack pointer is behind
   the red zone that follows. ax is the number, or the result. */
struct sysregs { u64 pad, bp, r11, r10, r9, r8, di, si, back, dx, ax; };
enum { RED_ZONE = 128 };

static inline u64 syscall_number(const struct sysregs *r) { return r->ax; }
static inline u64 syscall_result(const struct sysregs *r) { return r->ax; }
static inline u64 syscall_fp(const struct sysregs *r) { return r->bp; }
static inline u64 syscall_place(const struct sysregs *r) { return r->back; } /* where it goes on */
static inline u64 syscall_sp(const struct sysregs *r) { return (u64)(r + 1) + RED_ZONE; }
static inline void syscall_arguments(const struct sysregs *r, u64 *a)
{
	a[0] = r->di, a[1] = r->si, a[2] = r->dx, a[3] = r->r10, a[4] = r->r8, a[5] = r->r9;
}

/* Registers at a call's entry or exit, as act.S and SLOW (macros.h) have saved them: vectors are xmm0 to xmm7. */
struct callregs {
	u64 vector[8][2], bx, r12, r13, r14, r15;
	struct { u64 pad, bp, r11, r10, r9, r8, di, si, cx, dx, ax; } *saved;
};
_Static_assert(sizeof(struct callregs) == CALLREGS_SIZE, "act.S");

/* call_return is where the function returns to, and call_frame the caller's frame pointer. */
static inline u64 call_return(const struct callregs *r, u64 slot) { (void)r; return *(u64 *)slot; }
static inline u64 call_frame(const struct callregs *r) { return r->saved->bp; }

/* How many general registers arguments are in, and whether no long double is in a register. */
enum { GENERAL_ARGUMENTS = 6, LONG_DOUBLES_STACKED = 1 };

/* call_argument and call_result are the nth register that arguments or results are in. */
static inline u64 call_argument(const struct callregs *r, u32 n)
{
	static const u8 at[] = { 6, 7, 9, 8, 5, 4 }; /* rdi, rsi, rdx, rcx, r8, r9: which word of what was saved */
	return n < lengthof(at) ? ((const u64 *)r->saved)[at[n]] : 0;
}
static inline u64 call_result(const struct callregs *r, u32 n) { return n ? r->saved->dx : r->saved->ax; }

/* call_stack is where the arguments begin that are on the stack, behind the return address. */
static inline u64 call_stack(u64 slot) { return slot + 8; }

/* Registers at an event of a Go function, as goroutine.S has saved them. go_argument is the nth that arguments are in, and the
   first one that of a result: the first and the third are asked for. */
struct goregs { u64 unused, r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax, rsp; };
static inline u64 go_argument(const struct goregs *r, u32 n) { return n ? r->rcx : r->rax; }
static inline u64 go_sp(const struct goregs *r) { return r->rsp; }

/* own_thread gives the running thread of a Go program, whose goroutine is at g, a thread pointer that no other thread has: the
   word at fs:0, which is a part of runtime.m, gets a number. */
static inline void own_thread(u64 g, u32 at)
{
	static u64 threads;
	(void)g, (void)at;
	if (!thread_pointer()) {
		u64 n = (add(&threads, 1) + 1) << BLOCKS_SHIFT;
		__asm__ volatile("mov %0, %%fs:0" : : "r"(n) : "memory");
	}
}

/* is_threads says whether a goroutine is the running thread's: the thread pointer tells who that is. */
static inline int is_threads(u64 g, u64 sp, u32 at) { return (void)g, (void)sp, (void)at, 1; }

/* call_x87 reads the top of the x87's stack, which has a result of type long double, to two words. */
static inline void call_x87(u64 *w)
{
	w[1] = 0;
	__asm__ volatile("fstpt %0; fldt %0" : "=m"(*(u8 (*)[10])w));
}

/* Where in a signal's context the program counter and the blocked signals are (asm/ucontext.h, asm/sigcontext.h). */
enum { CONTEXT_PC = 168, CONTEXT_MASK = 296, CONTEXT_TRAP = 200, CONTEXT_CR2 = 216, PAGE_FAULT = 14,
       BUS_ERROR = 7, SEGMENTATION_FAULT = 11 };

/* context_fault is the address whose access has raised a signal, 0: no access has, or it is not known. */
static inline u64 context_fault(u64 signal, const void *context)
{
	int fault = (signal == BUS_ERROR || signal == SEGMENTATION_FAULT) &&
		    *(const u64 *)(context + CONTEXT_TRAP) == PAGE_FAULT;
	return fault ? *(const u64 *)(context + CONTEXT_CR2) : 0;
}

/* What the runtime does about some system calls. */
enum { NR_SIGACTION = 13, NR_CLONE = 56, NR_VFORK = 58, NR_CLONE3 = 435, NR_EXECVE = 59, NR_EXECVEAT = 322, NR_PRCTL = 157, NR_ARCH_PRCTL = 158, NR_SECCOMP = 317 };

static inline int is_vfork(u64 nr) { return nr == NR_VFORK; }

/* takes_base says whether a system call gives the control base to the program. */
static inline int takes_base(u64 nr, const u64 *a) { return nr == NR_ARCH_PRCTL && (u32)a[0] == ARCH_SET_GS; }

/* Where guests find the home: below all that linkers give a program (0x200000 and up) and
   above vm.mmap_min_addr, where the kernel puts nothing unasked. Sanitizers keep their own
   memory elsewhere and refuse to run if something lies in it; they leave these addresses to
   the program. */
#define HOME_PAGE 0x1f0000UL

/* No image has a word of its own for the control base. */
static inline int has_base(void) { return 0; }
static inline void set_word(u64 distance) { (void)distance; }
static inline u64 own_word(void) { return 0; }

/* id_words fills in what gives a function's id by a return address in its thunk: W_ID_SCALE in layout.h, and what
   follows. All is modulo 2^64. */
static inline void id_words(u64 *w, u64 thunks, u64 size, u64 base)
{
	w[0] = size ? (1UL << 32) / size : 0;
	w[1] = (base << 32) - (thunks - size + THUNK_CALL_END) * w[0];
	w[2] = (base << 32 | 1UL << 63) - (thunks - size + THUNK_RET_END) * w[0];
}

/* back_size is the size of what bodies return to in a thunk, which is the thunk itself. */
enum { BACKS_APART = 0 };
static inline u64 back_size(u64 thunk) { return thunk; }

/* blocks_index is a thread's place in fentry_blocks. */
static inline u64 blocks_index(u64 tp) { return tp >> BLOCKS_SHIFT & BLOCKS_MASK; }

#define LANDS /* nothing: what is called by address need not be a landing pad */
#define fentry_home_enter_routine  fentry_slow_enter
#define fentry_home_exit_routine   fentry_slow_exit
#define fentry_home_record_routine fentry_slow_record
#define fentry_home_act_routine      fentry_slow_act
#define fentry_home_act_exit_routine fentry_slow_act_exit
#define fentry_home_place_routine    fentry_slow_place

/* Which windows of shadow one of a stack has: fewer when there are no times in it. */
enum { SHADOW_WINDOWS = 4, SHADOW_FEW = 2 };
static inline u64 shadow_window(u64 w, u32 i)
{
	static const u64 flip[] = {
		1UL << SHADOW_RET, 1UL << SHADOW_RET | 1UL << SHADOW_PREV, 1UL << SHADOW_PREV, 1UL << SHADOW_AUX,
	};
	return w ^ flip[i];
}

/* The distances from a stack to its shadow, for machines whose code does not know them. */
enum { SHADOW_DISTANCES = 2 };
static inline void shadow_distances(u64 *d, u64 a) { (void)d, (void)a; }
static inline int shadow_apart(u64 a, u64 b) { (void)a, (void)b; return 0; }

/* Shadow words of the return address slot s. */
#define shadow_ret(s)  ((u64 *)((s) ^ 1UL << SHADOW_RET))
#define shadow_prev(s) ((u64 *)((s) ^ 1UL << SHADOW_RET ^ 1UL << SHADOW_PREV))
#define shadow_time(s) ((u64 *)((s) ^ 1UL << SHADOW_PREV))
#define shadow_aux(s)  ((u64 *)((s) ^ 1UL << SHADOW_AUX))

#endif
