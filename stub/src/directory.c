/* The trace directory of a program that writes its trace itself: made, joined, or put
   aside when it is an old one. What is at its place and is none of ours stays as it is,
   whatever the environment says.

   The place is often one where others can write, and the program root's. So all names are
   looked up below descriptors, of the parent directory and of the trace's, and no symbolic
   link is followed there; what is used, put aside or removed belongs to this process's
   user; and what is made is for that user only (0700, 0600). The recorder does the same
   (session/internal/tracedir).

   All of it happens while the parent directory is locked (flock), so programs that start
   at the same time agree on whose trace it is. Anybody who can read the directory can hold
   that lock, so it is not waited for long; without it a new trace is made and a live one
   joined, and nothing else is touched.

   A program can be killed at any moment. What is left then is a trace, or an empty
   directory, or one with an events file that has no header: the next program goes on from
   there. */
#include "configuration.h"
#include "file.h"
#include "machine.h"
#include "owner.h"
#include "process.h"
#include "recorder.h"
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
	*(u32 *)(b + FT_H_CHUNK_SIZE) = fentry_config.mode == MODE_COUNT ? FT_COUNT_CHUNK_SIZE : FT_CHUNK_SIZE;
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

/* A file system call below a directory. */
static i64 make_dir(i64 dir, const char *name) { return sys(SYS_mkdirat, dir, name, 0700, 0, 0, 0); }
static i64 unlink(i64 dir, const char *name, u32 flags) { return sys(SYS_unlinkat, dir, name, flags, 0, 0, 0); }
static i64 open_dir(i64 dir, const char *name)
{
	return open_at(dir, name, O_DIRECTORY_ | O_NOFOLLOW_, 0);
}

/* What is at the place of a trace directory? */
enum { NOTHING, MINE, OLD, LEFT, EMPTY, FOREIGN };

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

/* contents says whether a directory is empty, or holds files of a trace and nothing else:
   EMPTY, OLD or FOREIGN. */
static int contents(i64 dir, char *buf)
{
	i64 n = 0, at = 0, fd = open_dir(dir, "."); /* with an offset of its own */
	int is = EMPTY;
	if (failed(fd))
		return FOREIGN;
	for (const char *e; is != FOREIGN && (e = entry(fd, buf, &n, &at));)
		is = ours(e) ? OLD : FOREIGN;
	close(fd);
	return failed(n) ? FOREIGN : is;
}

/* holds says what is in a directory of this user's; any other is FOREIGN. */
static int holds(i64 dir, char *buf)
{
	struct file_state s;
	if (failed(file_state(dir, &s)) || !file_is_ours(&s))
		return FOREIGN;
	int is = contents(dir, buf);
	if (is != EMPTY || !(s.mode & OTHERS_WRITE))
		return is;
	/* Others cannot put anything there from now on. */
	return failed(sys(SYS_fchmod, dir, s.mode & 07755, 0, 0, 0, 0)) ? FOREIGN : contents(dir, buf);
}

/* locked says whether somebody holds the lock of the events file fd: a recorder, as long as it
   records, or who is about to write the header. */
static int locked(i64 fd)
{
	if (sys(SYS_flock, fd, LOCK_SH_ | LOCK_NB_, 0, 0, 0, 0) == -EWOULDBLOCK_)
		return 1;
	sys(SYS_flock, fd, LOCK_UN_, 0, 0, 0, 0);
	return 0;
}

/* live says whether the trace whose events file is fd is being written by somebody. */
static int live(i64 fd, const u8 *head)
{
	u32 recorder = *(u32 *)(head + FT_H_RECORDER);
	return (recorder && !*(u32 *)(head + FT_H_CLOSED) && process_alive(recorder, ANY_TIME)) || locked(fd);
}

/* begun_by says what the events file fd is, in a directory that holds files of a trace and
   nothing else: OLD, or LEFT by a start that was killed before it had written the header.
   It reads size bytes of the header. */
static int begun_by(i64 fd, u8 *head, u64 size)
{
	struct file_state s;
	if (failed(fd) || failed(file_state(fd, &s)) || !file_is_ours(&s) || (s.mode & S_IFMT_) != S_IFREG_)
		return FOREIGN;
	i64 n = sys(SYS_pread64, fd, head, size, 0, 0, 0);
	if (n == (i64)size && *(u64 *)(head + FT_H_MAGIC) == FT_FILE_MAGIC)
		return OLD;
	for (i64 i = 0; i < n; i++)
		if (head[i])
			return FOREIGN;
	return failed(n) ? FOREIGN : LEFT;
}

/* look_at says what the directory name is. The trace that is there is joined (MINE) if join
   is set and the process that began it lives: an ancestor, or another program of the same
   pipeline; or if its recorder answers. OLD is a trace that may be put aside, LEFT one that
   was never begun, EMPTY a directory made for one. Anything else is none of ours, whatever
   the environment says, and stays as it is: FOREIGN. */
static int look_at(i64 parent, const char *name, int join, char *buf)
{
	u8 head[FT_H_LAYOUT + 4] __attribute__((aligned(8)));
	i64 dir = open_dir(parent, name);
	if (failed(dir))
		return dir == -ENOENT_ ? NOTHING : FOREIGN;
	int is = holds(dir, buf);
	i64 fd = is == OLD ? open_at(dir, FT_FILE_EVENTS, O_RDWR_ | O_NOFOLLOW_, 0) : -1;
	if (is == OLD)
		is = begun_by(fd, head, sizeof head);
	if (is == OLD && join && header_ok(head) && *(u32 *)(head + FT_H_CHUNKS) == 0 && !*(u32 *)(head + FT_H_RECORDER) &&
	    process_alive(*(u32 *)(head + FT_H_LEADER), *(u64 *)(head + FT_H_LEADER_START)) && !failed(file_use(fd, head)))
		is = MINE;
	if (is == OLD && join && *(u32 *)(head + FT_H_RECORDER) && !(fentry_config.flags & FLAG_NO_RECORDER) &&
	    recorder_join(dir))
		is = MINE;
	if ((is == OLD && live(fd, head)) || (is == LEFT && locked(fd)))
		is = FOREIGN;
	if (!failed(fd))
		close(fd);
	close(dir);
	return is;
}

/* remove_trace removes an old trace of this user's. The events go last: what is left if this
   process is killed meanwhile still is a trace. */
static void remove_trace(i64 parent, const char *name, char *buf)
{
	i64 n = 0, at = 0, dir = open_dir(parent, name);
	struct file_state s;
	if (failed(dir))
		return;
	if (!failed(file_state(dir, &s)) && file_is_ours(&s)) {
		for (const char *e; (e = entry(dir, buf, &n, &at));)
			if (ours(e) && !equal(e, FT_FILE_EVENTS))
				unlink(dir, e, 0);
		unlink(dir, FT_FILE_EVENTS, 0);
	}
	close(dir);
	unlink(parent, name, AT_REMOVEDIR_);
}

/* lock_parent keeps others from making or putting aside a trace in a directory until the
   descriptor it returns is closed. had says whether it does: not, if somebody else does not
   let go of the lock. Where there can be no lock, nobody has it. */
static i64 lock_parent(i64 parent, int *had)
{
	enum { TRIES = 400 };
	const u64 nap = 5000000; /* ns */
	u32 never = 0;
	i64 r = 0, fd = open_at(parent, ".", O_DIRECTORY_, 0);
	for (u32 i = 0; !failed(fd) && i < TRIES; i++) {
		r = sys(SYS_flock, fd, LOCK_EX_ | LOCK_NB_, 0, 0, 0, 0);
		if (r != -EWOULDBLOCK_)
			break;
		futex_wait(&never, 0, nap);
	}
	*had = r != -EWOULDBLOCK_;
	return fd;
}

/* make_place makes the directory name for a trace, or finds an empty one. An older trace is
   kept as old; without the parent's lock (had) it is left alone, because who has the lock may
   be putting it aside, too, and what one of them has just kept the other would remove. It
   returns 0, MINE if a trace was joined, or an error: -EEXIST_ if there is something that is
   none of ours, -EWOULDBLOCK_ without the lock. */
static i64 make_place(i64 parent, const char *name, const char *old, int had, char *buf)
{
	for (u32 tries = 0;; tries++) {
		i64 r = make_dir(parent, name);
		if (r != -EEXIST_ || tries == 2)
			return r;
		int is = look_at(parent, name, 1, buf);
		if (is == EMPTY)
			return 0;
		if (is == MINE)
			return MINE;
		if (is == FOREIGN)
			return -EEXIST_;
		if (is == NOTHING)
			continue;
		if (!had)
			return -EWOULDBLOCK_;
		if (is == LEFT) {
			remove_trace(parent, name, buf);
			continue;
		}
		int was = look_at(parent, old, 0, buf);
		if (was == FOREIGN)
			return -EEXIST_;
		if (was != NOTHING)
			remove_trace(parent, old, buf);
		r = sys(SYS_renameat, parent, name, parent, old, 0, 0);
		if (failed(r) && r != -ENOENT_)
			return r;
	}
}

/* begin starts a trace in the directory name. */
static i64 begin(i64 parent, const char *name)
{
	u8 head[FT_H_LAYOUT + 4] __attribute__((aligned(8)));
	struct file_state s;
	i64 dir = open_dir(parent, name), fd = -1;
	if (failed(dir))
		return dir;
	i64 r = file_state(dir, &s);
	if (!failed(r) && (!file_is_ours(&s) || (s.mode & OTHERS_WRITE)))
		r = -EEXIST_; /* another one, put there in the meantime */
	if (!failed(r))
		r = fd = open_at(dir, FT_FILE_EVENTS, O_RDWR_ | O_CREAT_ | O_EXCL_ | O_NOFOLLOW_, 0600);
	close(dir);
	if (failed(r))
		return r;
	sys(SYS_flock, fd, LOCK_EX_ | LOCK_NB_, 0, 0, 0, 0); /* it is not one that somebody has left */
	r = write_header(fd);
	if (!failed(r))
		r = sys(SYS_pread64, fd, head, sizeof head, 0, 0, 0);
	if (!failed(r))
		r = file_use(fd, head);
	close(fd);
	return r;
}

/* split opens the directory that the path abs is in and points name to the rest. */
static i64 split(char *abs, char **name)
{
	u64 n = length(abs);
	while (n > 1 && abs[n - 1] == '/')
		abs[--n] = 0;
	while (n > 1 && abs[n - 1] != '/')
		n--;
	*name = abs + n;
	char first = **name;
	**name = 0; /* the path up to the slash */
	i64 fd = open_at(AT_FDCWD_, abs, O_PATH_ | O_DIRECTORY_, 0);
	**name = first;
	return fd;
}

/* file_create starts a trace in the directory dir, or joins the one of an ancestor
   that is there. An older one is kept as dir.old. */
hidden int file_create(const char *dir)
{
	file_path = map_private(PATH);
	char *abs = map_private(4 * PATH), *old = abs + PATH, *buf = old + PATH, *name;
	i64 r = -36 /* ENAMETOOLONG */, guard, parent;
	int had;
	if (!file_path || !abs)
		return 0;
	int fits = dir[0] == '/' ? join(abs, PATH, dir, 0, 0)
				 : !failed(sys(SYS_getcwd, old, PATH, 0, 0, 0, 0)) && join(abs, PATH, old, "/", dir);
	if (fits && !failed(parent = r = split(abs, &name))) {
		guard = lock_parent(parent, &had);
		if (join(old, PATH, name, ".old", 0) && join(file_path, PATH, abs, "/" FT_FILE_EVENTS, 0))
			r = make_place(parent, name, old, had, buf);
		if (!r)
			r = begin(parent, name);
		if (!failed(guard))
			close(guard);
		close(parent);
	}
	if (r == -EEXIST_)
		say("no trace: ", abs, " or an older trace beside it is not this user's trace, or is being recorded", 0);
	else if (r == -EWOULDBLOCK_)
		say("no trace: an older one is at ", abs, ", and another process keeps its directory locked", 0);
	else if (failed(r))
		say("no trace: cannot write to ", abs[0] ? abs : dir, 0, r);
	sys(SYS_munmap, abs, 4 * PATH, 0, 0, 0, 0);
	return !failed(r);
}
