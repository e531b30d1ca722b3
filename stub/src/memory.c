/* The program's memory, to which arguments point.

   It can be anything: memory that is not there, or that another thread is unmapping. So the kernel reads it,
   process_vm_readv of the process itself, which says how far it got, and never raises a signal. It reads
   straight into the record. */
#include "chunk.h"
#include "memory.h"
#include "process.h"
#include "sys.h"

/* Nothing reads for this process: an emulator does not know how, a container forbids it, or a filter of its own may end
   the process for asking. */
static u32 unread;

/* read_pages reads where nothing else does. That there is memory the kernel tells for each page (readable), and nothing
   tells whether it goes away meanwhile. */
static u64 read_pages(void *to, u64 at, u64 n)
{
	u64 got = 0;
	while (got < n) {
		u64 a = at + got, k = 4096 - a % 4096;
		if (!readable(a & -8UL))
			break;
		if (k > n - got)
			k = n - got;
		memcpy((u8 *)to + got, (void *)a, k);
		got += k;
	}
	return got;
}

/* read_program reads n bytes of the program's memory, which is process pid's, and returns how many there are. Two parts,
   because the kernel reads none of a part of which it cannot read all. */
hidden u64 read_program(u32 pid, void *to, u64 at, u64 n)
{
	u64 page = -at & 4095, first = page && page < n ? page : n;
	u64 local[2] = { (u64)to, n }, from[4] = { at, first, at + first, n - first };
	if (n == 0)
		return 0;
	if (load(&unread))
		return read_pages(to, at, n);
	i64 got = sys(SYS_process_vm_readv, pid, local, 1, from, first == n ? 1 : 2, 0);
	if (got == -ENOSYS_ || got == -EPERM_) {
		store(&unread, 1);
		return read_pages(to, at, n);
	}
	return failed(got) ? 0 : (u64)got;
}

/* is_filtered asks for a filter. A kernel that knows of none, or an emulator, answers that there is no such question. A filter
   answers so to others, too. */
static int is_filtered(void)
{
	enum { PR_GET_DUMPABLE_ = 3, PR_GET_SECCOMP_ = 21 };
	i64 r = sys(SYS_prctl, PR_GET_SECCOMP_, 0, 0, 0, 0, 0);
	return r != 0 && (r != -EINVAL_ || failed(sys(SYS_prctl, PR_GET_DUMPABLE_, 0, 0, 0, 0, 0)));
}

/* check_filter looks whether the process filters its system calls, and says so: no filter minds what the other way asks. */
hidden int check_filter(void)
{
	static u32 filtered;
	if (!load(&filtered) && is_filtered()) {
		store(&filtered, 1);
		store(&unread, 1);
	}
	return (int)load(&filtered);
}

/* read_own reads memory that may not be there any more. It returns 0 unless it is all there. */
hidden int read_own(void *to, u64 at, u64 n) { return !check_filter() && read_program(getpid(), to, at, n) == n; }

/* fetch reads n bytes of the program's memory, and returns how many there are. */
hidden u64 fetch(struct control *c, void *to, u64 at, u64 n)
{
	if (!literal(at, n))
		return read_program(c->pid, to, at, n);
	memcpy(to, (const void *)at, n);
	return n;
}

/* read_data makes w the payload of a record DATA of n bytes at an address, of want that there are. It returns how many
   words that are, and in have how many bytes were read. */
hidden u32 read_data(struct control *c, u64 *w, int text, u32 arg, u64 at, u64 n, u64 want, u64 *have)
{
	u64 words = (n + 7) / 8;
	u8 *b = (u8 *)(w + 2);
	u64 got = fetch(c, b, at, n), flags = got < n ? FT_DATA_UNREADABLE : want > n ? FT_DATA_CUT : 0;
	if (text) {
		u64 k = 0;
		while (k < got && b[k])
			k++;
		flags = FT_DATA_STRING | (k < got ? 0 : flags ? flags : FT_DATA_CUT);
		got = k;
	}
	memset(b + got, 0, 8 * words - got);
	w[0] = arg | flags << 16 | n << 32;
	w[1] = at;
	*have = got;
	return (u32)(2 + (got + 7) / 8);
}

/* write_data writes a record DATA behind the record of a call, for which there is room. It returns the payload's bytes,
   and in have how many were read. */
hidden const u8 *write_data(struct control *c, u64 t, int text, u32 arg, u64 at, u64 n, u64 want, u64 *have)
{
	u64 *w = begin_record(c, t, FT_REC_DATA, (u32)(2 + (n + 7) / 8));
	*have = 0;
	if (!w)
		return 0;
	cut_record(c, w, read_data(c, w, text, arg, at, n, want, have));
	return (const u8 *)(w + 2);
}
