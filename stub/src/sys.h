/* System calls, without a libc and without errno. */
#ifndef FENTRY_SYS_H
#define FENTRY_SYS_H
#include "machine.h"

#define sys(n, a, b, c, d, e, f) syscall6(n, (i64)(a), (i64)(b), (i64)(c), (i64)(d), (i64)(e), (i64)(f))
#define failed(r) ((u64)(r) > -4096UL)

enum {
	EPERM_ = 1, ENOENT_ = 2, EINTR_ = 4, ENOMEM_ = 12, EFAULT_ = 14, EEXIST_ = 17, EINVAL_ = 22, EFBIG_ = 27, ENOSPC_ = 28, ENOSYS_ = 38,
	PROT_READ_ = 1, PROT_RW = 3, PROT_EXEC_ = 4,
	MAP_SHARED_ = 1, MAP_PRIVATE_ = 2, MAP_FIXED_ = 0x10, MAP_ANON = 0x20, MAP_GROWSDOWN_ = 0x100,
	MAP_NORESERVE_ = 0x4000, MAP_FIXED_NOREPLACE_ = 0x100000,
	O_RDWR_ = 2, O_CREAT_ = 0100, O_EXCL_ = 0200, O_NOCTTY_ = 0400, O_NONBLOCK_ = 04000, O_CLOEXEC_ = 02000000,
	O_PATH_ = 010000000, LOCK_SH_ = 1, LOCK_EX_ = 2, LOCK_NB_ = 4, LOCK_UN_ = 8, EWOULDBLOCK_ = 11,
	AT_FDCWD_ = -100, AT_REMOVEDIR_ = 0x200,
	MADV_NOHUGEPAGE_ = 15, MADV_WIPEONFORK_ = 18, MADV_POPULATE_WRITE_ = 23,
	CLOCK_REALTIME_ = 0, CLOCK_MONOTONIC_ = 1, PR_GET_NAME_ = 16, MREMAP_MAYMOVE_ = 1,
	FUTEX_WAIT_ = 0, FUTEX_WAKE_ = 1, FUTEX_PRIVATE_ = 128,
};

struct timespec { i64 sec, nsec; };

static inline u64 clock_ns(int id)
{
	struct timespec t = { 0, 0 };
	sys(SYS_clock_gettime, id, &t, 0, 0, 0, 0);
	return (u64)t.sec * 1000000000UL + (u64)t.nsec;
}

static inline void *map_private(u64 size)
{
	i64 r = sys(SYS_mmap, 0, size, PROT_RW, MAP_PRIVATE_ | MAP_ANON | MAP_NORESERVE_, -1, 0);
	return failed(r) ? 0 : (void *)r;
}

/* proc_id asks /proc for the process's id, or the thread's, where a program has forbidden
   itself the system call (process.c). 0: it is not known. */
hidden u32 proc_id(int thread);

static inline u32 getpid(void)
{
	i64 r = sys(SYS_getpid, 0, 0, 0, 0, 0, 0);
	return failed(r) ? proc_id(0) : (u32)r;
}
static inline u32 gettid(void)
{
	i64 r = sys(SYS_gettid, 0, 0, 0, 0, 0, 0);
	return failed(r) ? proc_id(1) : (u32)r;
}
static inline void close(i64 fd) { sys(SYS_close, fd, 0, 0, 0, 0, 0); }

/* Newer machines have only those with a directory's descriptor. */
static inline i64 open(const char *path, u32 flags, u32 mode)
{
	return sys(SYS_openat, AT_FDCWD_, path, flags, mode, 0, 0);
}
/* open_at opens a name below a directory: a pipe there does not make the program wait, nor
   does a terminal become its own. */
static inline i64 open_at(i64 dir, const char *name, u32 flags, u32 mode)
{
	return sys(SYS_openat, dir, name, flags | O_NONBLOCK_ | O_NOCTTY_ | O_CLOEXEC_, mode, 0, 0);
}
static inline i64 readlink(const char *path, void *b, u64 n)
{
	return sys(SYS_readlinkat, AT_FDCWD_, path, b, n, 0, 0);
}

/* futex_wait sleeps until the word is woken, is no longer val, or ns have passed. */
static inline void futex_wait(u32 *word, u32 val, u64 ns)
{
	struct timespec t = { (i64)(ns / 1000000000UL), (i64)(ns % 1000000000UL) };
	sys(SYS_futex, word, FUTEX_WAIT_, val, &t, 0, 0);
}
static inline void futex_wake(u32 *word, u32 n) { sys(SYS_futex, word, FUTEX_WAKE_, n, 0, 0, 0); }

/* readable says whether there is memory at an address: the kernel reads the set before it refuses the operation. */
static inline int readable(u64 a) { return sys(SYS_rt_sigprocmask, -1, a, 0, 8, 0, 0) == -EINVAL_; }

/* block keeps every signal away from this thread until unblock. Another thread may forbid that meanwhile, for itself alone:
   then this one's signals are let through all the same. A thread that comes to the end of its stack with signals blocked is
   killed, whatever handler it has. So it comes there before: STACK_ROOM is less than a page, and more than what follows needs. */
enum { STACK_ROOM = 2048 };
struct sigset { u64 mask; i64 failed; };
static inline struct sigset block(void)
{
	struct sigset all = { ~0UL, 0 }, old = { 0, 0 };
	touch_stack(STACK_ROOM);
	old.failed = sys(SYS_rt_sigprocmask, 0 /* SIG_BLOCK */, &all.mask, &old.mask, 8, 0, 0);
	return old;
}
static inline void unblock(struct sigset old)
{
	if (!old.failed && !(load(&fentry_forbids) & FORBIDS_ALL))
		kernel6(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, (i64)&old.mask, 0, 8, 0, 0);
	else
		sys(SYS_rt_sigprocmask, 2, &old.mask, 0, 8, 0, 0);
}

#endif
