/* System calls that the program has forbidden itself.

   A program can have the kernel filter its system calls (seccomp), and end it for those that the filter does not
   like, or send a signal. The runtime lives with calls that fail. So it looks at each filter before that is installed,
   asks it about every call that the runtime makes, as the kernel would, and what would be more than an error is not called
   any more: it fails here (syscall6). Filters are never taken away, and forked children inherit this as they do them. What is
   executed under one that forbids something is not traced, as its runtime would know nothing of that.

   Installing can fail, and some of the calls are then avoided for nothing. */
#include "filter.h"
#include "machine.h"
#include "sys.h"

hidden u32 fentry_forbids;

static u64 forbidden_calls; /* bits, as calls has them */

/* struct sock_filter and struct sock_fprog. */
struct insn { u16 code; u8 jt, jf; u32 k; };
struct program { u16 n; const struct insn *code; };

/* The calls, with what filters can see of the arguments that they are made with, where they have any that matter. */
struct call { i32 nr; i32 a[5]; };
static const struct call calls[] = {
	{ SYS_mmap, { 0, 4096, PROT_RW, MAP_PRIVATE_ | MAP_ANON | MAP_NORESERVE_, -1 } },
	{ SYS_mmap, { 0, 4096, PROT_RW, MAP_PRIVATE_ | MAP_ANON | MAP_NORESERVE_ | MAP_FIXED_NOREPLACE_, -1 } },
	{ SYS_munmap, { 4096, 4096 } },
	{ SYS_mremap, { 4096, 0, 4096, MREMAP_MAYMOVE_ } },
	{ SYS_mprotect, { 4096, 4096, PROT_READ_ } },
	{ SYS_madvise, { 4096, 4096, MADV_NOHUGEPAGE_ } },
	{ SYS_madvise, { 4096, 4096, MADV_WIPEONFORK_ } },
	{ SYS_madvise, { 4096, 4096, MADV_POPULATE_WRITE_ } },
	{ SYS_futex, { 4096, FUTEX_WAIT_ } },
	{ SYS_futex, { 4096, FUTEX_WAKE_ } },
	{ SYS_rt_sigprocmask, { 0, 4096, 4096, 8 } },
	{ SYS_rt_sigprocmask, { 2, 4096, 0, 8 } },
	{ SYS_rt_sigprocmask, { -1, 4096, 0, 8 } },
	{ SYS_sigaltstack, { 0, 4096 } },
	{ SYS_prctl, { PR_GET_NAME_, 4096 } },
	{ SYS_prctl, { 3 /* PR_GET_DUMPABLE */ } },
	{ SYS_prctl, { 21 /* PR_GET_SECCOMP */ } },
	{ SYS_clock_gettime, { CLOCK_MONOTONIC_, 4096 } },
	{ SYS_clock_gettime, { CLOCK_REALTIME_, 4096 } },
	{ SYS_gettid, { 0 } }, { SYS_getpid, { 0 } }, { SYS_getppid, { 0 } }, { SYS_geteuid, { 0 } },
	{ SYS_tgkill, { 2, 2, 0 } },
	{ SYS_sched_yield, { 0 } },
	{ SYS_process_vm_readv, { 2, 4096, 1, 4096, 1 } },
	{ SYS_openat, { AT_FDCWD_, 4096, O_CLOEXEC_ } },
	{ SYS_readlinkat, { AT_FDCWD_, 4096, 4096, 64 } },
	{ SYS_getdents64, { 3, 4096, 512 } },
	{ SYS_read, { 3, 4096, 512 } }, { SYS_write, { 2, 4096, 64 } },
	{ SYS_pread64, { 3, 4096, 512 } }, { SYS_pwrite64, { 3, 4096, 512 } },
	{ SYS_close, { 3 } }, { SYS_fstat, { 3, 4096 } }, { SYS_dup3, { 3, 4, O_CLOEXEC_ } },
	{ SYS_fcntl, { 3, 3 /* F_GETFL */ } }, { SYS_flock, { 3, LOCK_EX_ | LOCK_NB_ } },
	{ SYS_ftruncate, { 3, 4096 } }, { SYS_fallocate, { 3, 0, 0, 4096 } }, { SYS_fchmod, { 3, 0600 } },
	{ SYS_mkdirat, { AT_FDCWD_, 4096, 0700 } }, { SYS_unlinkat, { AT_FDCWD_, 4096 } },
	{ SYS_renameat, { AT_FDCWD_, 4096, AT_FDCWD_, 4096 } }, { SYS_getcwd, { 4096, 4096 } },
	{ SYS_socket, { 1 } }, { SYS_connect, { 3, 4096, 16 } }, { SYS_recvmsg, { 3, 4096 } },
	{ SYS_setsockopt, { 3, 1 } }, { SYS_prlimit64, { 0 } },
	SYS_MACHINE
};
_Static_assert(lengthof(calls) <= 64, "a bit each");

/* What only libraries that come and programs that are executed have the runtime call. Who forbids it does without them. */
static const struct call later[] = {
	{ SYS_mmap, { 0, 4096, PROT_RW, MAP_SHARED_, 3 } },
	{ SYS_mmap, { 0, 4096, PROT_READ_ | PROT_EXEC_, MAP_PRIVATE_ | MAP_ANON | MAP_FIXED_NOREPLACE_, -1 } },
	{ SYS_openat, { AT_FDCWD_, 4096, O_PATH_ | O_CLOEXEC_ } },
	{ SYS_openat, { AT_FDCWD_, 4096, O_RDWR_ | O_NONBLOCK_ | O_NOCTTY_ | O_CLOEXEC_ } },
	{ SYS_openat, { AT_FDCWD_, 4096, O_NONBLOCK_ | O_NOCTTY_ | O_CLOEXEC_ } },
	{ SYS_fcntl, { 3, 1034 /* F_GET_SEALS */ } },
	SYS_MACHINE_LATER
};

/* forbidden says whether a system call would end the process, or send it a signal. */
static int forbidden(u64 nr)
{
	u64 bits = load(&forbidden_calls);
	for (u32 i = 0; bits && i < lengthof(calls); i++)
		if ((u64)calls[i].nr == nr && bits >> i & 1)
			return 1;
	return 0;
}

hidden i64 syscall6(i64 nr, i64 a, i64 b, i64 c, i64 d, i64 e, i64 f)
{
	return unlikely(load(&fentry_forbids)) && forbidden((u64)nr) ? -EPERM_ : kernel6(nr, a, b, c, d, e, f);
}

static u32 calculate(u32 op, u32 a, u32 b)
{
	switch (op) {
	case 0x00: return a + b;
	case 0x10: return a - b;
	case 0x20: return a * b;
	case 0x30: return a / b;
	case 0x40: return a | b;
	case 0x50: return a & b;
	case 0x60: return a << (b & 31);
	case 0x70: return a >> (b & 31);
	case 0x80: return -a;
	}
	return a ^ b;
}

static int taken(u32 op, u32 a, u32 b)
{
	switch (op) {
	case 0x10: return a == b;
	case 0x20: return a > b;
	case 0x30: return a >= b;
	}
	return (a & b) != 0;
}

/* run returns what a filter answers to what the kernel tells it of a system call, struct seccomp_data: classic BPF as
   seccomp(2) allows it. What is not understood is KILL, which is 0. */
static u32 run(const struct insn *code, u32 n, const u32 *data, u32 words)
{
	enum { LD, LDX, ST, STX, ALU, JMP, RET, MISC };
	u32 a = 0, x = 0, cells[16];
	memset(cells, 0, sizeof cells);
	for (u32 pc = 0; pc < n; pc++) {
		struct insn i = code[pc];
		u32 operand = i.code & 8 ? x : i.k, mode = i.code & 0xe0, got = 0;
		switch (i.code & 7) {
		case LD:
		case LDX:
			if (mode == 0x00) /* IMM */
				got = i.k;
			else if (mode == 0x20 && i.k / 4 < words) /* ABS */
				got = data[i.k / 4];
			else if (mode == 0x60) /* MEM */
				got = cells[i.k % lengthof(cells)];
			else if (mode == 0x80) /* LEN */
				got = 4 * words;
			else
				return 0;
			*((i.code & 7) == LD ? &a : &x) = got;
			break;
		case ST:
			cells[i.k % lengthof(cells)] = a;
			break;
		case STX:
			cells[i.k % lengthof(cells)] = x;
			break;
		case ALU:
			if ((i.code & 0xf0) == 0x30 && !operand)
				return 0; /* so does the kernel, from the whole program */
			a = calculate(i.code & 0xf0, a, operand);
			break;
		case JMP:
			if ((i.code & 0xf0) == 0x00)
				pc = i.k < n - pc ? pc + i.k : n;
			else
				pc += taken(i.code & 0xf0, a, operand) ? i.jt : i.jf;
			break;
		case RET:
			return i.code & 0x10 ? a : i.k;
		case MISC:
			if (i.code & 0x80)
				a = x;
			else
				x = a;
			break;
		}
	}
	return 0;
}

/* harmless says whether the process lives on after an answer, be it with an error. One of 0 would be taken for a result. */
static int harmless(u32 answer)
{
	enum { ERRNO = 0x00050000, LOG = 0x7ffc0000, ALLOW = 0x7fff0000 };
	u32 action = answer & 0xffff0000;
	return action == ALLOW || action == LOG || (action == ERRNO && answer != ERRNO);
}

/* there says whether there is memory, n bytes of it. */
static int there(u64 at, u64 n)
{
	if (at + n < at)
		return 0;
	for (u64 p = at & -8UL; p < at + n; p += 4096 - p % 4096)
		if (!readable(p))
			return 0;
	return 1;
}

/* tells says whether that can be asked: a filter may answer in the kernel's place. */
static int tells(void)
{
	u64 word = 0;
	return readable((u64)&word) && sys(SYS_rt_sigprocmask, -1, -8UL, 0, 8, 0, 0) == -EFAULT_;
}

/* asks returns what a filter would do about a call: not 0 if that is more than an error. */
static int asks(const struct program *p, const struct call *c)
{
	u32 data[16];
	memset(data, 0, sizeof data);
	data[0] = (u32)c->nr;
	data[1] = AUDIT_ARCH;
	for (u32 k = 0; k < lengthof(c->a); k++) {
		i64 v = c->a[k];
		data[4 + 2 * k] = (u32)v;
		data[5 + 2 * k] = (u32)((u64)v >> 32);
	}
	return !harmless(run(p->code, p->n, data, lengthof(data)));
}

/* forbid takes note of what a filter forbids to this thread, or to all of them. What is not there the kernel does not take
   for one. Where nothing tells what can be read, everything counts as forbidden. */
static void forbid(u64 at, u32 to)
{
	const struct program *p = (const struct program *)at;
	u64 bits = 0;
	int some = 0;
	if (!tells()) {
		bits = ~0UL;
	} else if (at && there(at, sizeof *p) && p->n && there((u64)p->code, p->n * sizeof *p->code)) {
		for (u32 i = 0; i < lengthof(calls); i++)
			bits |= (u64)asks(p, &calls[i]) << i;
		for (u32 i = 0; i < lengthof(later); i++)
			some |= asks(p, &later[i]);
	}
	if (!bits && !some)
		return;
	__atomic_fetch_or(&forbidden_calls, bits, __ATOMIC_ACQ_REL);
	__atomic_fetch_or(&fentry_forbids, to, __ATOMIC_ACQ_REL);
}

/* Who has a filter can not become strict. */
static u32 has_filter;

/* filter_comes looks whether a system call, of which a has the first three arguments, is to install a filter, and what that
   forbids. STRICT leaves nothing but read, write and the end, and so no tracing. */
hidden int filter_comes(u64 nr, const u64 *a)
{
	enum { PR_SET_SECCOMP_ = 22, MODE_STRICT = 1, MODE_FILTER = 2, SET_MODE_STRICT = 0, SET_MODE_FILTER = 1, TSYNC = 1 };
	int strict = nr == NR_PRCTL ? a[0] == PR_SET_SECCOMP_ && a[1] == MODE_STRICT :
		     nr == NR_SECCOMP && a[0] == SET_MODE_STRICT && !a[1] && !a[2]; /* else it is asked whether there is such a call */
	int filter = nr == NR_PRCTL ? a[0] == PR_SET_SECCOMP_ && a[1] == MODE_FILTER : nr == NR_SECCOMP && a[0] == SET_MODE_FILTER;
	if (filter) {
		forbid(a[2], nr == NR_SECCOMP && a[1] & TSYNC ? FORBIDS_ALL : FORBIDS_SOME);
		store(&has_filter, 1);
	}
	return strict && !load(&has_filter) ? STRICT : filter ? FILTER : NO_FILTER;
}
