/* What the C part of the runtime needs to know of x86-64 and of Linux on it. */
#ifndef FENTRY_MACHINE_H
#define FENTRY_MACHINE_H
#include "types.h"
#include "layout.h"

/* asm/unistd_64.h */
enum {
	SYS_read = 0, SYS_write = 1, SYS_open = 2, SYS_close = 3, SYS_fstat = 5, SYS_mmap = 9, SYS_mprotect = 10, SYS_munmap = 11,
	SYS_rt_sigprocmask = 14, SYS_pread64 = 17, SYS_pwrite64 = 18, SYS_sched_yield = 24, SYS_mremap = 25, SYS_madvise = 28,
	SYS_getpid = 39, SYS_flock = 73, SYS_ftruncate = 77, SYS_getdents64 = 217, SYS_getcwd = 79, SYS_rename = 82,
	SYS_mkdir = 83, SYS_rmdir = 84, SYS_unlink = 87, SYS_readlink = 89, SYS_getppid = 110, SYS_sigaltstack = 131,
	SYS_prctl = 157, SYS_arch_prctl = 158, SYS_gettid = 186, SYS_futex = 202, SYS_clock_gettime = 228,
	SYS_tgkill = 234, SYS_fallocate = 285, SYS_prlimit64 = 302,
};

static inline i64 syscall6(i64 nr, i64 a, i64 b, i64 c, i64 d, i64 e, i64 f)
{
	i64 r;
	register i64 r10 __asm__("r10") = d;
	register i64 r8 __asm__("r8") = e;
	register i64 r9 __asm__("r9") = f;
	__asm__ volatile("syscall" : "=a"(r) : "0"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return r;
}

/* counter is the timestamp counter. */
static inline u64 counter(void)
{
	u32 lo, hi;
	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
	return (u64)hi << 32 | lo;
}

/* thread_pointer identifies the running thread: the word at fs:0, which the
   x86-64 TLS ABI makes the thread pointer itself. */
static inline u64 thread_pointer(void)
{
	u64 v;
	__asm__ volatile("mov %%fs:0, %0" : "=r"(v));
	return v;
}

enum { ARCH_SET_GS = 0x1001, ARCH_SET_FS = 0x1002, ARCH_GET_FS = 0x1003, ARCH_GET_GS = 0x1004 };

static inline u64 control_base(void)
{
	u64 v = 0;
	syscall6(SYS_arch_prctl, ARCH_GET_GS, (i64)&v, 0, 0, 0, 0);
	return v;
}

static inline i64 set_control_base(void *p) { return syscall6(SYS_arch_prctl, ARCH_SET_GS, (i64)p, 0, 0, 0, 0); }

static inline void relax(void) { __asm__ volatile("pause"); }

/* Shadow words of the return address slot s. */
#define shadow_ret(s)  ((u64 *)((s) ^ 1UL << SHADOW_RET))
#define shadow_prev(s) ((u64 *)((s) ^ 1UL << SHADOW_RET ^ 1UL << SHADOW_PREV))
#define shadow_time(s) ((u64 *)((s) ^ 1UL << SHADOW_PREV))
#define shadow_aux(s)  ((u64 *)((s) ^ 1UL << SHADOW_AUX))

#endif
