/* Where the trace goes: a recorder's pool, the trace of a parent, a new trace. */
#include "runtime.h"
#include "text.h"

hidden struct source source;

/* header_ok says whether a header page is one that this runtime can write behind. */
hidden int header_ok(const u8 *h)
{
	u32 size = *(u32 *)(h + FT_H_CHUNK_SIZE);
	return *(u64 *)(h + FT_H_MAGIC) == FT_FILE_MAGIC && *(u32 *)(h + FT_H_VERSION) == FT_VERSION &&
	       size >= 4096 && size <= 16 << 20 && (size & (size - 1)) == 0 && *(u32 *)(h + FT_H_LAYOUT) == FT_LAYOUT_SLOTS;
}

/* An ancestor of this process. The process itself is the first. */
struct process { u32 pid, parent; u64 start; };

/* read_process reads /proc/PID/task/PID/stat. */
static int read_process(u32 pid, struct process *p)
{
	char path[48], b[512];
	char *e = path;
	join(path, sizeof path, "/proc/", 0, 0);
	e = decimal(path + 6, pid);
	/* The first thread has the process's numbers. Emulators of user programs answer
	   for /proc/PID/stat with what they think of. */
	memcpy(e, "/task/", 6);
	e = decimal(e + 6, pid);
	memcpy(e, "/stat", 6);
	i64 fd = open(path, O_CLOEXEC_, 0);
	if (failed(fd))
		return 0;
	i64 n = sys(SYS_read, fd, b, sizeof b - 1, 0, 0, 0);
	close(fd);
	if (failed(n))
		return 0;
	b[n] = 0;
	/* The name may hold anything; its closing parenthesis is the last one. */
	const char *s = b + n;
	while (s > b && *s != ')')
		s--;
	p->pid = pid;
	p->parent = 0;
	p->start = 0;
	for (u32 field = 2; *s; s++) {
		if (*s != ' ')
			continue;
		field++;
		u64 v = 0;
		const char *d = s + 1;
		while (*d >= '0' && *d <= '9')
			v = v * 10 + (u64)(*d++ - '0');
		if (field == 4)
			p->parent = (u32)v;
		if (field == 22) {
			p->start = v;
			return 1;
		}
	}
	return 0;
}

/* lives says whether the process pid that started at start (ANY_TIME: whenever)
   is there. */
hidden int lives(u32 pid, u64 start)
{
	struct process p;
	return read_process(pid, &p) && (start == ANY_TIME || p.start == start);
}

hidden u64 start_time(void)
{
	struct process p;
	return read_process(getpid(), &p) ? p.start : 0;
}

/* open_path opens a recorder's pool or trace file. */
static int open_path(const char *path)
{
	u8 head[FT_H_LAYOUT + 4] __attribute__((aligned(8)));
	i64 fd = open(path, O_RDWR_ | O_CLOEXEC_, 0);
	if (failed(fd))
		return 0;
	int ok = 0;
	if (sys(SYS_pread64, fd, head, sizeof head, 0, 0, 0) == (i64)sizeof head && header_ok(head))
		ok = *(u32 *)(head + FT_H_CHUNKS) ? pool_open(fd, head) : file_join(fd, path);
	close(fd);
	return ok;
}

/* own_proc says whether /proc shows this process by its own number. It does not
   where it is another PID namespace's. */
static int own_proc(void)
{
	char number[24], target[24];
	i64 n = readlink("/proc/self", target, sizeof target - 1);
	if (failed(n))
		return 0;
	target[n] = 0;
	*decimal(number, getpid()) = 0;
	return starts_with(target, number) && target[length(number)] == 0;
}

/* find_recorder looks for a recorder among the ancestors: its pool is at a
   descriptor with a number of its own. A recorder outside of this PID namespace
   knows its tasks by other numbers: it is not found. */
static int find_recorder(void)
{
	struct process p = { 0, 0, 0 };
	char path[48], target[64];
	u32 next = getpid();
	if (!own_proc())
		return 0;
	for (u32 i = 0; i < 1024 && next != 0; i++) {
		if (!read_process(next, &p))
			return 0;
		char *e = path;
		join(path, sizeof path, "/proc/", 0, 0);
		e = decimal(path + 6, next);
		memcpy(e, "/fd/1000", 9);
		i64 n = readlink(path, target, sizeof target - 1);
		if (!failed(n)) {
			target[n] = 0;
			if (starts_with(target, "/memfd:fentry-pool") && open_path(path))
				return 1;
		}
		next = p.parent;
	}
	return 0;
}

/* variable finds an environment variable; name ends in "=". */
static const char *variable(char **env, const char *name)
{
	for (; env && *env; env++)
		if (starts_with(*env, name))
			return *env + length(name);
	return 0;
}

static int find_source(char **env)
{
	const struct config *f = &fentry_config;
	if (f->session[0] && open_path(f->session))
		return 1;
	if (variable(env, "FENTRY_OFF="))
		return 0;
	if (!(f->flags & FLAG_NO_RECORDER) && find_recorder())
		return 1;
	if (f->flags & FLAG_NO_FILE)
		return 0;
	const char *dir = variable(env, "FENTRY_DATA=");
	if (!dir || !*dir)
		dir = f->dir;
	if (!*dir)
		dir = "fentry.data";
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
