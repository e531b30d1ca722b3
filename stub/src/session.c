/* Where the trace goes: a recorder's pool, the trace of a parent, a new trace.

   What is named in the configuration comes first: a recorder that patches a process says
   there where its pool is, and without that recorder there is nothing to be traced for. A
   patched file says nothing, and looks among its ancestors: a recorder holds its pool at a
   descriptor with a known number. An environment variable would get lost where a program
   cleans the environment of those it starts. FENTRY_OFF and FENTRY_DATA are for people, and
   for traces that the program writes itself. */
#include "configuration.h"
#include "file.h"
#include "machine.h"
#include "owner.h"
#include "pool.h"
#include "process.h"
#include "say.h"
#include "session.h"
#include "source.h"
#include "sys.h"
#include "text.h"

enum { NONE, OPEN, STRANGER };

/* given is the descriptor that a text is the number of; -1: it is a path. */
static i64 given(const char *text)
{
	i64 fd = 0;
	for (; *text >= '0' && *text <= '9'; text++)
		fd = fd * 10 + (*text - '0');
	return *text ? -1 : fd;
}

/* open_path opens a recorder's pool or trace file. STRANGER: it is not for this process's
   user, or not safe to share. A number is a descriptor, which the recorder has given to this
   process, because it cannot open what the recorder has: it is in another PID namespace, or
   without /proc. With a + in front the recorder closes it. */
static int open_path(const char *path)
{
	u8 head[FT_H_SCARCE + 4] __attribute__((aligned(8)));
	struct file_state s;
	int lent = *path == '+';
	i64 fd = given(path + lent);
	int found = failed(fd), ok = NONE;
	if (found)
		fd = open_at(AT_FDCWD_, path, O_RDWR_, 0);
	if (failed(fd))
		return NONE;
	if (found && (failed(file_state(fd, &s)) || !file_is_safe(fd, &s)))
		ok = STRANGER;
	else if (sys(SYS_pread64, fd, head, sizeof head, 0, 0, 0) == (i64)sizeof head && header_ok(head))
		ok = *(u32 *)(head + FT_H_CHUNKS) ? pool_open(fd, head) : file_join(fd, head, path);
	if (!lent)
		close(fd);
	return ok;
}

/* A recorder's pool is at one of two descriptors: at the last of those that a
   process has room for from its beginning, or, if that is in use, at a high one. */
enum { LOW_FD = 63, HIGH_FD = 1000 };

/* find_at looks for a pool at a descriptor of a process. */
static int find_at(u32 pid, u32 fd)
{
	char path[48], target[64];
	join(path, sizeof path, "/proc/", 0, 0);
	char *e = decimal(path + 6, pid);
	memcpy(e, "/fd/", 4);
	decimal(e + 4, fd);
	i64 n = readlink(path, target, sizeof target - 1);
	if (failed(n))
		return 0;
	target[n] = 0;
	if (!starts_with(target, "/memfd:fentry-pool"))
		return 0;
	int is = open_path(path);
	if (is == STRANGER)
		say("the recorder at ", path, " belongs to another user, and is not joined", 0);
	return is == OPEN;
}

/* find_recorder looks for a recorder among the ancestors. A recorder outside of
   this PID namespace knows its tasks by other numbers: it is not found. */
static int find_recorder(void)
{
	struct process p = { 0, 0, 0, 0 };
	u32 next = getpid();
	if (!own_proc())
		return 0;
	for (u32 i = 0; i < 1024 && next != 0; i++) {
		if (!read_process(next, &p))
			return 0;
		if (find_at(next, LOW_FD) || find_at(next, HIGH_FD))
			return 1;
		next = p.parent;
	}
	return 0;
}

static int find_source(char **env)
{
	const struct config *f = &fentry_config;
	if (f->session[0] && open_path(f->session) == OPEN)
		return 1;
	if (variable(env, "FENTRY_OFF="))
		return 0;
	if (!(f->flags & FLAG_NO_RECORDER) && find_recorder())
		return 1;
	if (f->flags & FLAG_NO_FILE || f->session[0])
		return 0;
	const char *dir = variable(env, "FENTRY_DATA=");
	if (!dir || !*dir)
		dir = f->dir;
	if (!*dir)
		dir = FT_DIR_DEFAULT;
	return file_create(dir);
}

/* open_source finds where the trace goes. It returns 0 when there is nowhere. */
hidden int open_source(char **env)
{
	if (!find_source(env))
		return 0;
	u64 hz = counter_frequency();
	if (hz && !*HEADER(u64, FT_H_COUNTER_HZ))
		*HEADER(u64, FT_H_COUNTER_HZ) = hz;
	return 1;
}
