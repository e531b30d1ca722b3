/* Memory that is zero in a forked child, which must not use what is its parent's:
   control blocks, and the windows of a trace file.

   Linux does it (MADV_WIPEONFORK, since 4.14). Emulators of user programs only pretend
   to: they answer any advice with success, so they are found out by asking for nonsense.
   Where they do, whoever notices that it runs in a child calls wipe_now. */
#include "machine.h"
#include "sys.h"
#include "wipe.h"

/* what files need */
enum { MOST = 4 };
static struct { u8 *p; u64 size; } wiped[MOST];
static u32 nwiped;

/* wipe_is_emulated says whether madvise is answered by somebody who does nothing. */
hidden int wipe_is_emulated(void)
{
	static u32 known; /* 1: no, 2: yes */
	u32 k = load(&known);
	if (!k) {
		void *p = map_private(1); /* a page, of whatever size */
		k = p && !failed(sys(SYS_madvise, p, 1, 0x7ffffff0 /* there is no such advice */, 0, 0, 0)) ? 2 : 1;
		sys(SYS_munmap, p, 1, 0, 0, 0, 0);
		store(&known, k);
	}
	return k == 2;
}

/* wiped_on_fork makes private memory zero in forked children where the kernel does it. Where nobody does, the caller has
   to see to it: wipe. */
hidden void wiped_on_fork(void *p, u64 size)
{
	sys(SYS_madvise, p, size, MADV_WIPEONFORK_, 0, 0, 0);
}

/* wipe makes memory zero as the kernel would have. */
hidden void wipe(void *p, u64 size)
{
	sys(SYS_mmap, p, size, PROT_RW, MAP_PRIVATE_ | MAP_ANON | MAP_NORESERVE_ | MAP_FIXED_, -1, 0);
}

/* wipe_on_fork is wiped_on_fork, and what wipe_now sees to. */
hidden void wipe_on_fork(void *p, u64 size)
{
	wiped_on_fork(p, size);
	u32 i = add(&nwiped, 1);
	if (i >= MOST)
		return;
	wiped[i].size = size;
	store(&wiped[i].p, (u8 *)p);
}

/* wipe_now does what the kernel has only pretended to do. */
hidden void wipe_now(void)
{
	for (u32 i = 0; i < lengthof(wiped); i++)
		if (wiped[i].p)
			wipe(wiped[i].p, wiped[i].size);
}
