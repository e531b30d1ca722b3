/* A trace file that the traced processes write themselves: they map it in windows.

   No descriptor stays open in the program: the mapping of the header page is what
   new windows are made from (mremap with an old size of 0 maps the same file
   again). So a program that closes all descriptors, changes its root or its user
   goes on being traced, as far as the file reaches; to make it longer it is opened
   again by its name. It is made longer in large steps without blocks. The blocks
   of a window are there before the window is used: a full disk is noticed here,
   never as SIGBUS. */
#include "configuration.h"
#include "file.h"
#include "owner.h"
#include "process.h"
#include "source.h"
#include "sys.h"
#include "text.h"
#include "wipe.h"

enum {
	STEP = 1 << 30,       /* bytes the file grows by */
	SMALL = 64 << 10,     /* of a process's first windows: most processes are short */
	FEW = 4,              /* how many those are */
	/* of the window of a process that is alone and has the file open: what is written there
	   first costs little, too */
	FIRST = 256 << 10,
};

/* The windows of this process: zero in a forked child, which must not use its
   parent's. A window in which nobody has a chunk any more is unmapped late, when
   there are many: a signal handler may have come between a fast path's reservation
   of a slot and its writing to it, and have filled windows before it returns. */
enum { WINDOWS = 1024, KEPT = WINDOWS / 2 };
struct window { u64 base, off; u32 size, users; };
static struct windows {
	u32 lock, cur; /* index of the window that chunks are cut from */
	u64 used;      /* bytes of it */
	u32 count;     /* of windows so far */
	struct window w[WINDOWS];
} *windows;

hidden char *file_path; /* a buffer of PATH bytes */
static u64 file_end, file_dev, file_ino; /* length as far as it is known; identity */
static u64 file_header;                  /* bytes before the first chunk */

static void lock(u32 *l)
{
	while (!cas(l, 0, 1))
		futex_wait(l, 1, 1000000);
}
static void unlock(u32 *l)
{
	store(l, 0);
	futex_wake(l, 1);
}

/* file_extend makes the file at least size bytes long. It never makes it shorter,
   whatever other processes do meanwhile. */
hidden i64 file_extend(i64 fd, u64 size)
{
	struct file_state st;
	struct { u64 cur, max; } limit = { ~0UL, ~0UL };
	i64 r = file_state(fd, &st);
	if (failed(r))
		return r;
	if (st.size >= size) {
		file_end = st.size;
		return 0;
	}
	u64 to = (size + STEP - 1) / STEP * STEP;
	sys(SYS_prlimit64, 0, 1 /* RLIMIT_FSIZE */, 0, &limit, 0, 0);
	if (to > limit.cur)
		to = limit.cur & -4096UL;
	if (to < size)
		return -EFBIG_; /* trying would send the program SIGXFSZ */
	r = sys(SYS_fallocate, fd, 0, to - 4096, 4096, 0, 0);
	if (failed(r)) {
		/* Not every file system can. The lock keeps others from shortening. */
		sys(SYS_flock, fd, LOCK_EX_, 0, 0, 0, 0);
		r = file_state(fd, &st);
		if (!failed(r) && st.size < size)
			r = sys(SYS_ftruncate, fd, to, 0, 0, 0, 0);
		sys(SYS_flock, fd, LOCK_UN_, 0, 0, 0, 0);
		if (failed(r))
			return r;
	}
	file_end = to;
	return 0;
}

/* reopen opens the file again. There may be another one by its name. */
static i64 reopen(void)
{
	struct file_state st;
	i64 fd = open_at(AT_FDCWD_, file_path, O_RDWR_, 0);
	if (failed(fd))
		return fd;
	if (failed(file_state(fd, &st)) || st.dev != file_dev || st.ino != file_ino) {
		close(fd);
		return -ENOENT_;
	}
	return fd;
}

/* reach makes sure that the file is size bytes long. */
static i64 reach(u64 size)
{
	if (size <= file_end)
		return 0;
	i64 fd = reopen();
	if (failed(fd))
		return fd;
	i64 r = file_extend(fd, size);
	close(fd);
	return r;
}

/* map_file maps size bytes of the file at off. */
static i64 map_file(u64 off, u64 size)
{
	/* From the header, or what this process mapped last, up to the window. */
	struct window *w = &windows->w[windows->cur];
	u64 from = w->base ? w->base : (u64)source.header, skip = w->base ? off - w->off : off;
	i64 r = sys(SYS_mremap, from, 0, skip + size, MREMAP_MAYMOVE_, 0, 0);
	if (!failed(r)) {
		sys(SYS_munmap, r, skip, 0, 0, 0, 0);
		return r + (i64)skip;
	}
	i64 fd = reopen(); /* too little address space */
	if (failed(fd))
		return fd;
	r = sys(SYS_mmap, 0, size, PROT_RW, MAP_SHARED_, fd, off);
	close(fd);
	return r;
}

/* populate gets the blocks and the page tables of a window. */
static i64 populate(u64 base, u64 off, u64 size)
{
	i64 r;
	do
		r = sys(SYS_madvise, base, size, MADV_POPULATE_WRITE_, 0, 0, 0);
	while (r == -EINTR_);
	if (r == -EINVAL_ || wipe_is_emulated()) { /* a kernel before 5.14 */
		i64 fd = reopen();
		if (failed(fd))
			return fd;
		r = sys(SYS_fallocate, fd, 0, off, size, 0, 0);
		close(fd);
	}
	return r == -14 /* EFAULT: a write would be SIGBUS */ ? -ENOSPC_ : r;
}

/* drop_windows unmaps the oldest windows that are not in use, until no more than
   keep windows are mapped. */
static void drop_windows(u32 keep)
{
	for (;;) {
		u32 n = 0, oldest = WINDOWS;
		for (u32 i = 0; i < WINDOWS; i++) {
			struct window *w = &windows->w[i];
			n += w->base != 0;
			if (w->base && w->users == 0 && i != windows->cur && (oldest == WINDOWS || w->off < windows->w[oldest].off))
				oldest = i;
		}
		if (n <= keep || oldest == WINDOWS)
			return;
		sys(SYS_munmap, windows->w[oldest].base, windows->w[oldest].size, 0, 0, 0, 0);
		windows->w[oldest].base = 0;
	}
}

/* reserve takes size bytes of the file for this process and returns their offset. */
static u64 reserve(u64 size)
{
	u64 *next = HEADER(u64, FT_H_NEXT), header = file_header, cs = source.chunk_size;
	for (;;) {
		u64 n = load(next), off = header + n * cs;
		if (size >= LARGE && header % cs == 0)
			off = (off + LARGE - 1) & -(u64)LARGE; /* what is skipped stays a hole */
		if (cas(next, n, (off - header + size) / cs))
			return off;
	}
}

/* new_window makes a window of size bytes the current one. */
static i64 new_window(u64 size)
{
	u32 i = 0;
	drop_windows(KEPT);
	while (i < WINDOWS && windows->w[i].base)
		i++;
	if (i == WINDOWS)
		return -ENOMEM_;
	u64 off = reserve(size);
	i64 r = reach(off + size);
	if (failed(r))
		return r;
	i64 base = map_file(off, size);
	if (base == -ENOMEM_) {
		drop_windows(1);
		base = map_file(off, size);
	}
	if (failed(base))
		return base;
	r = populate((u64)base, off, size);
	if (failed(r)) {
		sys(SYS_munmap, base, size, 0, 0, 0, 0);
		return r;
	}
	windows->w[i] = (struct window){ (u64)base, off, (u32)size, 0 };
	windows->cur = i;
	windows->used = 0;
	return 0;
}

/* file_chunks gets n chunks in a row. */
hidden int file_chunks(struct chunk *out, u32 n)
{
	u64 want = (u64)n * source.chunk_size;
	i64 r = 0;
	lock(&windows->lock);
	struct window *w = &windows->w[windows->cur];
	if (source.kind == FILE && (!w->base || windows->used + want > w->size)) {
		u64 size = windows->count++ < FEW ? SMALL : LARGE;
		if (size < want)
			size = want;
		if (size < source.chunk_size)
			size = source.chunk_size;
		r = new_window(size);
		if (r == -ENOSPC_ && size > want)
			r = new_window(want);
		w = &windows->w[windows->cur];
	}
	int ok = !failed(r) && source.kind == FILE;
	if (ok) {
		out->base = w->base + windows->used;
		out->index = windows->cur;
		out->size = (u32)want;
		windows->used += want;
		w->users++;
	} else if (failed(r))
		only_count(r);
	unlock(&windows->lock);
	return ok;
}

/* file_done says that nobody writes to a chunk any more. */
hidden void file_done(struct chunk *k)
{
	lock(&windows->lock);
	windows->w[k->index].users--;
	unlock(&windows->lock);
}

/* first_window makes the first window of a process that has just started, through
   the descriptor: pages that have been written cost less to map for writing. */
static void first_window(i64 fd)
{
	enum { PIECE = 16 << 10 };
	u64 size = FIRST;
	if (source.chunk_size > size || tables() || !alone())
		return; /* another thread might close the descriptor */
	u8 *zero = map_private(PIECE);
	if (!zero)
		return;
	u64 off = reserve(size);
	i64 r = failed(file_extend(fd, off + size)) ? 0 : PIECE;
	for (u64 at = 0; at < size && r == PIECE; at += PIECE)
		r = sys(SYS_pwrite64, fd, zero, PIECE, off + at, 0, 0);
	sys(SYS_munmap, zero, PIECE, 0, 0, 0, 0);
	if (r != PIECE)
		return;
	i64 base = sys(SYS_mmap, 0, size, PROT_RW, MAP_SHARED_, fd, off);
	if (failed(base))
		return;
	if (failed(populate((u64)base, off, size))) {
		sys(SYS_munmap, base, size, 0, 0, 0, 0);
		return;
	}
	windows->w[0] = (struct window){ (u64)base, off, (u32)size, 0 };
	windows->count = FEW;
}

/* file_use starts writing to the file fd, whose name is in file_path. head is a copy of the
   start of its header, which has been found good: the file itself can change. */
hidden i64 file_use(i64 fd, const u8 *head)
{
	struct file_state st;
	u32 header = *(u32 *)(head + FT_H_HEADER_SIZE), size = header;
	i64 r = file_state(fd, &st);
	if (failed(r))
		return r;
	if (!file_is_safe(fd, &st) || header < 4096 || header % 4096 || header > st.size)
		return -EINVAL_;
	file_dev = st.dev;
	file_ino = st.ino;
	file_end = st.size;
	file_header = header;
	if (size > HEADER_ROOM)
		size = 4096;
	r = sys(SYS_mmap, 0, size, PROT_RW, MAP_SHARED_, fd, 0);
	if (failed(r))
		return r;
	source.header = (u8 *)r;
	source.header_size = size;
	source.chunk_size = *(u32 *)(head + FT_H_CHUNK_SIZE);
	windows = map_private(sizeof *windows);
	if (!windows)
		return -ENOMEM_;
	wipe_on_fork(windows, sizeof *windows);
	source.kind = FILE;
	first_window(fd);
	return 0;
}

/* file_join writes to a trace that exists. */
hidden int file_join(i64 fd, const u8 *head, const char *name)
{
	file_path = map_private(PATH);
	if (!file_path || !join(file_path, PATH, name, 0, 0))
		return 0;
	return !failed(file_use(fd, head));
}
