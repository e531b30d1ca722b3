/* A trace file that the traced processes write themselves: they map it in windows.

   No descriptor stays open in the program: the mapping of the header page is what
   new windows are made from (mremap with an old size of 0 maps the same file
   again). So a program that closes all descriptors, changes its root or its user
   goes on being traced, as far as the file reaches; to make it longer it is opened
   again by its name. It is made longer in large steps without blocks. The blocks
   of a window are there before the window is used: a full disk is noticed here,
   never as SIGBUS. */
#include "runtime.h"
#include "text.h"

enum {
	STEP = 1 << 30,       /* bytes the file grows by */
	LARGE = 4 << 20,      /* bytes of a window, and its alignment in the file: with both, file systems use large folios, and a page costs a tenth */
	SMALL = 64 << 10,     /* of a process's first windows: most processes are short */
	FEW = 4,              /* how many those are */
	FIRST = 256 << 10,    /* of the window of a process that is alone and has the file open: what is written there first costs little, too */
	HEADER_ROOM = 64 << 10, /* size of the header in files made here, so that chunks are aligned */
	PATH = 4096,
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

static char *path; /* of the file */
static u64 file_end, file_dev, file_ino; /* length as far as it is known; identity */

/* struct stat of the kernel, x86-64; arm64's is shorter, and has these at the same places */
struct stat { u64 dev, ino; u8 rest[128]; };
enum { STAT_SIZE = 48 }; /* offset of st_size */

static u64 stat_size(struct stat *st) { return *(u64 *)((u8 *)st + STAT_SIZE); }

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

/* extend makes the file at least size bytes long. It never makes it shorter,
   whatever other processes do meanwhile. */
static i64 extend(i64 fd, u64 size)
{
	struct stat st;
	struct { u64 cur, max; } limit = { ~0UL, ~0UL };
	i64 r = sys(SYS_fstat, fd, &st, 0, 0, 0, 0);
	if (failed(r))
		return r;
	if (stat_size(&st) >= size) {
		file_end = stat_size(&st);
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
		sys(SYS_flock, fd, 2 /* LOCK_EX */, 0, 0, 0, 0);
		r = sys(SYS_fstat, fd, &st, 0, 0, 0, 0);
		if (!failed(r) && stat_size(&st) < size)
			r = sys(SYS_ftruncate, fd, to, 0, 0, 0, 0);
		sys(SYS_flock, fd, 8 /* LOCK_UN */, 0, 0, 0, 0);
		if (failed(r))
			return r;
	}
	file_end = to;
	return 0;
}

/* reopen opens the file again. There may be another one by its name. */
static i64 reopen(void)
{
	struct stat st;
	i64 fd = open(path, O_RDWR_ | O_CLOEXEC_, 0);
	if (failed(fd))
		return fd;
	if (failed(sys(SYS_fstat, fd, &st, 0, 0, 0, 0)) || st.dev != file_dev || st.ino != file_ino) {
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
	i64 r = extend(fd, size);
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
	if (r == -EINVAL_ || pretended()) { /* a kernel before 5.14 */
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
	u64 *next = HEADER(u64, FT_H_NEXT), header = *HEADER(u32, FT_H_HEADER_SIZE), cs = source.chunk_size;
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
	if (source.chunk_size > size || fentry_config.mode == MODE_PROFILE || !alone())
		return; /* another thread might close the descriptor */
	u8 *zero = map_private(PIECE);
	if (!zero)
		return;
	u64 off = reserve(size);
	i64 r = failed(extend(fd, off + size)) ? 0 : PIECE;
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

/* use starts writing to the file fd, whose name is in path. */
static i64 use(i64 fd)
{
	struct stat st;
	i64 r = sys(SYS_fstat, fd, &st, 0, 0, 0, 0);
	if (failed(r))
		return r;
	file_dev = st.dev;
	file_ino = st.ino;
	file_end = stat_size(&st);
	r = sys(SYS_mmap, 0, 4096, PROT_RW, MAP_SHARED_, fd, 0);
	if (failed(r))
		return r;
	source.header = (u8 *)r;
	source.chunk_size = *HEADER(u32, FT_H_CHUNK_SIZE);
	windows = map_private(sizeof *windows);
	if (!windows)
		return -ENOMEM_;
	wipe_on_fork(windows, sizeof *windows);
	source.kind = FILE;
	first_window(fd);
	return 0;
}

/* file_join writes to a trace that exists. */
hidden int file_join(i64 fd, const char *name)
{
	path = map_private(PATH);
	if (!path || !join(path, PATH, name, 0, 0))
		return 0;
	return !failed(use(fd));
}

/* write_header makes an empty file a trace of this process. */
static i64 write_header(i64 fd)
{
	u64 h[FT_STATES_OFF / 8];
	u8 *b = (u8 *)h;
	memset(h, 0, sizeof h);
	i64 r = extend(fd, HEADER_ROOM + LARGE);
	if (failed(r))
		return r;
	*(u64 *)(b + FT_H_MAGIC) = FT_FILE_MAGIC;
	*(u32 *)(b + FT_H_VERSION) = FT_VERSION;
	*(u32 *)(b + FT_H_HEADER_SIZE) = HEADER_ROOM;
	*(u32 *)(b + FT_H_CHUNK_SIZE) = FT_CHUNK_SIZE;
	*(u32 *)(b + FT_H_POLICY) = fentry_config.policy;
	*(u32 *)(b + FT_H_LAYOUT) = FT_LAYOUT_SLOTS;
	*(u32 *)(b + FT_H_LEADER) = getpid();
	*(u64 *)(b + FT_H_LEADER_START) = start_time();
	*(u64 *)(b + FT_H_COUNTER) = counter();
	*(u64 *)(b + FT_H_MONOTONIC) = clock_ns(CLOCK_MONOTONIC_);
	*(u64 *)(b + FT_H_REALTIME) = clock_ns(CLOCK_REALTIME_);
	r = sys(SYS_pwrite64, fd, h, sizeof h, 0, 0, 0);
	return failed(r) ? r : r == (i64)sizeof h ? 0 : -ENOSPC_;
}

/* What is at the place of a trace directory? */
enum { MINE, OLD, EMPTY, FOREIGN };

/* holds_trace says whether name is a trace file. */
static int holds_trace(const char *name)
{
	u64 magic = 0;
	i64 fd = open(name, O_NOFOLLOW_ | O_NONBLOCK_ | O_CLOEXEC_, 0);
	if (failed(fd))
		return 0;
	sys(SYS_pread64, fd, &magic, sizeof magic, 0, 0, 0);
	close(fd);
	return magic == FT_FILE_MAGIC;
}

/* entry returns the next name in a directory other than . and .., 0 at the end.
   buf has room for PATH bytes; n and at are its state, 0 at first. */
static const char *entry(i64 fd, char *buf, i64 *n, i64 *at)
{
	for (;;) {
		if (*at >= *n) {
			*n = sys(SYS_getdents64, fd, buf, PATH, 0, 0, 0);
			*at = 0;
			if (failed(*n) || *n == 0)
				return 0;
		}
		/* struct linux_dirent64: u64 ino, i64 off, u16 reclen, u8 type, char name[] */
		const char *name = buf + *at + 19;
		*at += *(unsigned short *)(buf + *at + 16);
		if (!equal(name, ".") && !equal(name, ".."))
			return name;
	}
}

/* look_at_old joins the trace that is there already if the process that began it
   lives (MINE): an ancestor, or another program of the same pipeline. OLD is a trace that may be put aside, EMPTY a directory made for one.
   Anything else is none of ours, whatever the environment says, and stays as it
   is: FOREIGN. */
static int look_at_old(const char *dir, char *buf)
{
	u8 head[FT_H_LAYOUT + 4] __attribute__((aligned(8)));
	i64 n = 0, at = 0;
	int is = FOREIGN, link = 0;
	i64 fd = open(dir, O_DIRECTORY_ | O_NOFOLLOW_ | O_CLOEXEC_, 0);
	if (failed(fd)) {
		link = 1;
		fd = open(dir, O_DIRECTORY_ | O_CLOEXEC_, 0);
		if (failed(fd))
			return FOREIGN;
	}
	if (!entry(fd, buf, &n, &at))
		is = EMPTY;
	close(fd);
	if (is == EMPTY || !holds_trace(path))
		return is;
	fd = open(path, O_RDWR_ | O_CLOEXEC_, 0);
	if (!failed(fd)) {
		n = sys(SYS_pread64, fd, head, sizeof head, 0, 0, 0);
		if (n == (i64)sizeof head && header_ok(head) && *(u32 *)(head + FT_H_CHUNKS) == 0 && !*(u32 *)(head + FT_H_RECORDER) &&
		    lives(*(u32 *)(head + FT_H_LEADER), *(u64 *)(head + FT_H_LEADER_START)) && !failed(use(fd)))
			is = MINE;
		/* A recorder, which holds a lock, is writing it, whose pool is out of reach or
		   not for this process. */
		if (is != MINE) {
			if (sys(SYS_flock, fd, 1 | 4 /* LOCK_SH | LOCK_NB */, 0, 0, 0, 0) == -11 /* EWOULDBLOCK */)
				is = FOREIGN, link = 1;
			else
				sys(SYS_flock, fd, 8 /* LOCK_UN */, 0, 0, 0, 0);
		}
		if (n == (i64)sizeof head && *(u32 *)(head + FT_H_RECORDER) && !*(u32 *)(head + FT_H_CLOSED) &&
		    lives(*(u32 *)(head + FT_H_RECORDER), ANY_TIME))
			is = FOREIGN, link = 1;
		close(fd);
	}
	return is == MINE ? MINE : link ? FOREIGN : OLD;
}

/* ours says whether a file in a trace directory is of the kind we put there. */
static int ours(const char *name)
{
	u64 n = length(name);
	return equal(name, "events") || equal(name, "info.json") || (n > 4 && equal(name + n - 4, ".sym"));
}

/* remove_trace removes an old trace. What is not ours stays, and with it the directory. */
static void remove_trace(const char *dir, char *buf)
{
	char *name = buf + PATH;
	i64 n = 0, at = 0;
	if (!join(name, PATH, dir, "/events", 0) || !holds_trace(name))
		return;
	i64 fd = open(dir, O_DIRECTORY_ | O_NOFOLLOW_ | O_CLOEXEC_, 0);
	if (failed(fd))
		return;
	for (const char *e; (e = entry(fd, buf, &n, &at));)
		if (ours(e) && join(name, PATH, dir, "/", e))
			remove_file(name);
	close(fd);
	remove_dir(dir);
}

/* lock_parent keeps others from making or putting aside a trace in the directory
   that name is in, until the descriptor it returns is closed. */
static i64 lock_parent(const char *name, char *buf)
{
	if (!join(buf, PATH, name, 0, 0))
		return -1;
	u64 n = length(buf);
	while (n > 1 && buf[n - 1] != '/')
		n--;
	buf[n > 1 ? n - 1 : 1] = 0;
	i64 fd = open(buf, O_DIRECTORY_ | O_CLOEXEC_, 0);
	while (!failed(fd) && sys(SYS_flock, fd, 2 /* LOCK_EX */, 0, 0, 0, 0) == -EINTR_)
		;
	return fd;
}

/* file_create starts a trace in the directory dir, or joins the one of an ancestor
   that is there. An older one is kept as dir.old. */
hidden int file_create(const char *dir)
{
	path = map_private(PATH);
	char *abs = map_private(4 * PATH), *old = abs + PATH, *buf = old + PATH;
	i64 r = 0, fd, guard = -1;
	int ok = 0;
	if (!path || !abs)
		return 0;
	if (dir[0] != '/') {
		r = sys(SYS_getcwd, old, PATH, 0, 0, 0, 0);
		if (failed(r) || !join(abs, PATH, old, "/", dir))
			goto fail;
	} else if (!join(abs, PATH, dir, 0, 0))
		goto fail;
	if (!join(old, PATH, abs, ".old", 0) || !join(path, PATH, abs, "/events", 0))
		goto fail;
	guard = lock_parent(abs, buf);
	for (u32 tries = 0;; tries++) {
		r = mkdir(abs, 0777);
		if (r != -EEXIST_ || tries == 2)
			break;
		int is = look_at_old(abs, buf);
		if (is == EMPTY) {
			r = 0;
			break;
		}
		if (is == MINE) {
			ok = 1;
			goto out;
		}
		if (is == FOREIGN) {
			say("no trace: ", abs, " is there and is not a trace directory, or is being recorded", 0);
			goto out;
		}
		remove_trace(old, buf);
		r = rename(abs, old);
		if (failed(r) && r != -ENOENT_)
			break;
	}
	if (failed(r))
		goto fail;
	fd = open(path, O_RDWR_ | O_CREAT_ | O_EXCL_ | O_CLOEXEC_, 0666);
	if (failed(r = fd))
		goto fail;
	r = write_header(fd);
	if (!failed(r))
		r = use(fd);
	close(fd);
	if (failed(r))
		goto fail;
	ok = 1;
	goto out;
fail:
	say("no trace, cannot write to ", abs[0] ? abs : dir, 0, r);
out:
	if (!failed(guard))
		close(guard);
	sys(SYS_munmap, abs, 4 * PATH, 0, 0, 0, 0);
	return ok;
}
