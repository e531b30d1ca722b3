/* A recorder's pool as this process maps it.

   Of the pool a process maps what it uses, in pieces: under a limit of its address
   space the pool would leave it little room. A piece is made from a mapping that is
   there already (mremap with an old size of 0), because the descriptor is gone; that
   maps everything from the old mapping on and gives back what is before the piece. So
   that this is never much, a page is mapped every so often when the pool is opened, an
   anchor. Emulators of user programs cannot do that, and a program can be forbidden to
   (seccomp): then all of it is mapped at the start. If there is no address space left, or
   it is forbidden later, the process makes do with what it has: no piece that could not be
   had is asked for again, and chunks in such pieces are nothing to wait for.

   Where pages are larger than the header, pieces begin within a page. */
#include "owner.h"
#include "pool.h"
#include "poolmap.h"
#include "process.h"
#include "source.h"
#include "sys.h"
#include "wipe.h"

enum {
	PIECE = 8,           /* chunks of full size mapped at once */
	ANCHORS = 16,        /* at most */
	ANCHOR = 64 << 20,   /* bytes between two, at least */
};

hidden struct pool pool;

static u64 first;   /* bytes to the first chunk */
static u64 all;     /* bytes of all chunks */
static u64 piece;   /* bytes of a piece */
static u64 *pieces; /* addresses, 0: not mapped */
static u8 *touched; /* by chunk of full size: this process has its page tables */
static u64 anchors[ANCHORS], spacing;
static u32 refused; /* a piece could not be mapped */

hidden u32 *chunk_state(u32 i) { return (u32 *)(source.header + FT_STATES_OFF) + i; }

hidden u32 pool_chunk_size(u32 i) { return i < pool.full ? source.chunk_size : pool.small_size; }

/* offset returns how far chunk i is behind the first. */
static u64 offset(u32 i)
{
	if (i < pool.full)
		return (u64)i * source.chunk_size;
	return (u64)pool.full * source.chunk_size + (u64)(i - pool.full) * pool.small_size;
}

/* set_anchors maps a page now and then, for later pieces to be made from. */
static void set_anchors(i64 fd)
{
	u64 end = first + all;
	spacing = end / ANCHORS < ANCHOR ? ANCHOR : (end / ANCHORS + page_size) & -page_size;
	anchors[0] = (u64)source.header;
	for (u32 k = 1; k < ANCHORS && k * spacing < end; k++) {
		i64 r = sys(SYS_mmap, 0, page_size, PROT_RW, MAP_SHARED_, fd, k * spacing);
		anchors[k] = failed(r) ? 0 : (u64)r;
	}
}

/* header_fits says whether the header of a pool agrees with itself. */
static int header_fits(const u8 *head)
{
	u32 size = *(u32 *)(head + FT_H_CHUNK_SIZE);
	u32 small = *(u32 *)(head + FT_H_SMALL_SIZE), n = *(u32 *)(head + FT_H_SMALL_CHUNKS);
	u64 states = FT_STATES_OFF + 4UL * *(u32 *)(head + FT_H_CHUNKS) + 4UL * n;
	u64 bits = *(u32 *)(head + FT_H_SMALL_FREE), header = *(u32 *)(head + FT_H_HEADER_SIZE);
	if (header % 4096 || header < states || *(u32 *)(head + FT_H_CLOSED))
		return 0;
	return n == 0 || (small >= 4096 && small <= size && (small & (small - 1)) == 0 && bits % 8 == 0 && bits >= states &&
			  header >= bits + ((u64)n + 63) / 64 * 8);
}

/* maps_again says whether mappings can be made from the one at m. */
static int maps_again(i64 m)
{
	i64 r = wipe_is_emulated() ? -EINVAL_ : sys(SYS_mremap, m, 0, page_size, MREMAP_MAYMOVE_, 0, 0);
	if (failed(r))
		return 0;
	sys(SYS_munmap, r, page_size, 0, 0, 0, 0);
	return 1;
}

/* pool_open maps the header of the pool behind fd. head is a copy of the start of it: the
   pool itself can change under the hands of whoever shares it, but not become shorter. */
hidden int pool_open(i64 fd, const u8 *head)
{
	u32 count = *(u32 *)(head + FT_H_CHUNKS), size = *(u32 *)(head + FT_H_CHUNK_SIZE);
	u32 header = *(u32 *)(head + FT_H_HEADER_SIZE);
	u32 small = *(u32 *)(head + FT_H_SMALL_CHUNKS), small_size = *(u32 *)(head + FT_H_SMALL_SIZE);
	struct file_state st;
	if (!header_fits(head) || failed(file_state(fd, &st)) || !file_is_safe(fd, &st))
		return 0;
	piece = PIECE * (u64)size;
	all = (u64)count * size + (u64)small * small_size;
	if (st.size < header || st.size - header < all)
		return 0;
	u64 n = all / piece + 1;
	i64 m = sys(SYS_mmap, 0, header, PROT_RW, MAP_SHARED_, fd, 0);
	int whole = !failed(m) && !maps_again(m);
	if (whole) {
		sys(SYS_munmap, m, header, 0, 0, 0, 0);
		m = sys(SYS_mmap, 0, header + all, PROT_RW, MAP_SHARED_, fd, 0);
	}
	pieces = failed(m) ? 0 : map_private(count + 8 * n);
	if (!pieces) {
		if (!failed(m))
			sys(SYS_munmap, m, whole ? header + all : header, 0, 0, 0, 0);
		return 0;
	}
	touched = (u8 *)(pieces + n);
	pool.full = count;
	pool.small = small;
	pool.small_size = small_size;
	pool.free_small = (u64 *)(m + *(u32 *)(head + FT_H_SMALL_FREE));
	first = header;
	source.chunk_size = size;
	source.header = (u8 *)m;
	source.header_size = header;
	source.kind = POOL;
	if (!whole)
		set_anchors(fd);
	for (u64 i = 0; whole && i < n; i++)
		pieces[i] = (u64)m + header + i * piece;
	return 1;
}

/* map_piece maps size bytes from off of the memory again. It returns their address, 0:
   there is no room. */
static u64 map_piece(u64 off, u64 size)
{
	u64 k = off / spacing, from;
	if (k >= ANCHORS)
		k = ANCHORS - 1;
	while (!anchors[k])
		k--;
	from = off - k * spacing;
	i64 r = sys(SYS_mremap, anchors[k], 0, from + size, MREMAP_MAYMOVE_, 0, 0);
	if (failed(r))
		return 0;
	if (from & -page_size)
		sys(SYS_munmap, r, from & -page_size, 0, 0, 0, 0);
	return (u64)r + from;
}

/* pool_address returns where chunk i is mapped. It is mapped if may_map is set. 0: it
   is not, or cannot be. */
hidden u64 pool_address(u32 i, int may_map)
{
	u64 off = offset(i), begin = off / piece * piece;
	u64 *p = &pieces[off / piece], base = load(p);
	if (!base && may_map && !load(&refused)) {
		u64 size = all - begin < piece ? all - begin : piece;
		base = map_piece(first + begin, size);
		if (!base)
			store(&refused, 1);
		if (base && !cas(p, 0, base)) {
			sys(SYS_munmap, base & -page_size, size + (base & (page_size - 1)), 0, 0, 0, 0);
			base = load(p);
		}
	}
	return base ? base + (off - begin) : 0;
}

/* pool_reachable says whether this process can write to chunk i, as far as is known. */
hidden int pool_reachable(u32 i) { return !load(&refused) || pool_address(i, 0); }

/* pool_populate gives this process the page tables of a chunk of full size before it
   writes there. A small one is a page or so, which the first write brings as well. */
hidden void pool_populate(u32 i, u64 base)
{
	if (i >= pool.full || touched[i])
		return;
	u64 before = base & (page_size - 1);
	sys(SYS_madvise, base - before, source.chunk_size + before, MADV_POPULATE_WRITE_, 0, 0, 0);
	touched[i] = 1;
}

/* pool_shed unmaps pieces of the pool, at most so many, and returns how many. No thread has a chunk in any. */
hidden u64 pool_shed(u64 most)
{
	u64 shed = 0, n = pieces && anchors[0] ? all / piece + 1 : 0;
	for (u64 i = 0; i < n && shed < most; i++) {
		u64 begin = i * piece, size = all - begin < piece ? all - begin : piece, before = pieces[i] & (page_size - 1);
		if (!pieces[i])
			continue;
		sys(SYS_munmap, pieces[i] - before, size + before, 0, 0, 0, 0);
		pieces[i] = 0;
		shed++;
	}
	return shed;
}

/* pool_leave unmaps the pool. */
hidden void pool_leave(void)
{
	if (!pieces)
		return;
	u64 n = all / piece + 1;
	int whole = !anchors[0];
	pool_shed(n);
	for (u32 k = 1; k < ANCHORS; k++)
		if (anchors[k])
			sys(SYS_munmap, anchors[k], page_size, 0, 0, 0, 0);
	sys(SYS_munmap, pieces, pool.full + 8 * n, 0, 0, 0, 0);
	sys(SYS_munmap, source.header, whole ? first + all : first, 0, 0, 0, 0);
	pieces = 0;
	source.header = 0;
	source.kind = CLOSED;
}
