/* The trace directory of a program that writes its trace itself: made, joined, or put
   aside when it is an old one. What is at its place and is none of ours stays as it is,
   whatever the environment says.

   All of it happens while the parent directory is locked (flock), so programs that start
   at the same time agree on whose trace it is. */
#include "configuration.h"
#include "file.h"
#include "machine.h"
#include "process.h"
#include "say.h"
#include "source.h"
#include "sys.h"
#include "text.h"

/* write_header makes an empty file a trace of this process. The table of id ranges is
   written, too, so that it has its blocks. */
static i64 write_header(i64 fd)
{
	i64 r = file_extend(fd, HEADER_ROOM + LARGE);
	if (failed(r))
		return r;
	u8 *b = map_private(RANGES_END);
	if (!b)
		return -ENOMEM_;
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
	*(u32 *)(b + FT_H_RANGES) = FT_STATES_OFF;
	*(u32 *)(b + FT_H_RANGES_ROOM) = (RANGES_END - FT_STATES_OFF) / FT_RANGE_ENTRY;
	r = sys(SYS_pwrite64, fd, b, RANGES_END, 0, 0, 0);
	sys(SYS_munmap, b, RANGES_END, 0, 0, 0, 0);
	return failed(r) ? r : r == RANGES_END ? 0 : -ENOSPC_;
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
   lives (MINE): an ancestor, or another program of the same pipeline. OLD is a trace
   that may be put aside, EMPTY a directory made for one. Anything else is none of ours,
   whatever the environment says, and stays as it is: FOREIGN. */
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
	if (is == EMPTY || !holds_trace(file_path))
		return is;
	fd = open(file_path, O_RDWR_ | O_CLOEXEC_, 0);
	if (!failed(fd)) {
		n = sys(SYS_pread64, fd, head, sizeof head, 0, 0, 0);
		if (n == (i64)sizeof head && header_ok(head) &&
		    *(u32 *)(head + FT_H_CHUNKS) == 0 && !*(u32 *)(head + FT_H_RECORDER) &&
		    process_alive(*(u32 *)(head + FT_H_LEADER), *(u64 *)(head + FT_H_LEADER_START)) &&
		    !failed(file_use(fd)))
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
		    process_alive(*(u32 *)(head + FT_H_RECORDER), ANY_TIME))
			is = FOREIGN, link = 1;
		close(fd);
	}
	return is == MINE ? MINE : link ? FOREIGN : OLD;
}

/* ours says whether name is that of a file in a trace directory. */
static int ours(const char *name)
{
	enum { ID = 16 }; /* hex digits of an image id */
	for (const char *n = FT_FILES; *n; n += length(n) + 1)
		if (equal(name, n))
			return 1;
	for (u32 i = 0; i < ID; i++)
		if ((name[i] < '0' || name[i] > '9') && (name[i] < 'a' || name[i] > 'f'))
			return 0;
	return equal(name + ID, FT_FILE_SYM);
}

/* remove_trace removes an old trace. What is not ours stays, and with it the directory. */
static void remove_trace(const char *dir, char *buf)
{
	char *name = buf + PATH;
	i64 n = 0, at = 0;
	if (!join(name, PATH, dir, "/" FT_FILE_EVENTS, 0) || !holds_trace(name))
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
	file_path = map_private(PATH);
	char *abs = map_private(4 * PATH), *old = abs + PATH, *buf = old + PATH;
	i64 r = 0, fd, guard = -1;
	int ok = 0;
	if (!file_path || !abs)
		return 0;
	if (dir[0] != '/') {
		r = sys(SYS_getcwd, old, PATH, 0, 0, 0, 0);
		if (failed(r) || !join(abs, PATH, old, "/", dir))
			goto fail;
	} else if (!join(abs, PATH, dir, 0, 0))
		goto fail;
	if (!join(old, PATH, abs, ".old", 0) || !join(file_path, PATH, abs, "/" FT_FILE_EVENTS, 0))
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
			say("no trace: ", abs, " exists and is not a trace directory, or is being recorded", 0);
			goto out;
		}
		remove_trace(old, buf);
		r = rename(abs, old);
		if (failed(r) && r != -ENOENT_)
			break;
	}
	if (failed(r))
		goto fail;
	fd = open(file_path, O_RDWR_ | O_CREAT_ | O_EXCL_ | O_CLOEXEC_, 0666);
	if (failed(r = fd))
		goto fail;
	r = write_header(fd);
	if (!failed(r))
		r = file_use(fd);
	close(fd);
	if (failed(r))
		goto fail;
	ok = 1;
	goto out;
fail:
	say("no trace: cannot write to ", abs[0] ? abs : dir, 0, r);
out:
	if (!failed(guard))
		close(guard);
	sys(SYS_munmap, abs, 4 * PATH, 0, 0, 0, 0);
	return ok;
}
