/* This process and others, as the kernel tells of them: in /proc, by signal 0, and in
   the auxiliary vector.

   /proc may be another PID namespace's, or not be there at all. Whoever relies on what
   it says about this process asks own_proc first. */
#include "machine.h"
#include "process.h"
#include "sys.h"
#include "text.h"

hidden u64 page_size = 0;

hidden u32 proc_id(int thread)
{
	char target[64]; /* PID/task/TID */
	i64 n = readlink("/proc/thread-self", target, sizeof target - 1);
	u32 ids[2] = { 0, 0 }, k = 0;
	for (i64 i = 0; !failed(n) && i < n; i++) {
		if (target[i] >= '0' && target[i] <= '9')
			ids[k] = ids[k] * 10 + (u32)(target[i] - '0');
		else if (target[i] == '/')
			k = 1;
	}
	return ids[thread];
}

/* read_process reads /proc/PID/task/PID/stat. */
hidden int read_process(u32 pid, struct process *p)
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
	p->state = s[0] && s[1] ? s[2] : 0;
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

/* process_alive says whether the process pid that started at start (ANY_TIME: whenever)
   is there. */
hidden int process_alive(u32 pid, u64 start)
{
	struct process p;
	return read_process(pid, &p) && (start == ANY_TIME || p.start == start);
}

/* thread_alive says whether a thread is there, as far as this process may know. */
hidden int thread_alive(u32 pid, u32 tid)
{
	return sys(SYS_tgkill, pid, tid, 0, 0, 0, 0) != -3 /* ESRCH */;
}

/* start_time is when this process began, 0 where that cannot be known. */
hidden u64 start_time(void)
{
	struct process p;
	return read_process(getpid(), &p) ? p.start : 0;
}

/* own_proc says whether /proc shows this process by its own number. It does not
   where it is another PID namespace's. */
hidden int own_proc(void)
{
	char number[24], target[24];
	i64 n = readlink("/proc/self", target, sizeof target - 1);
	if (failed(n))
		return 0;
	target[n] = 0;
	*decimal(number, getpid()) = 0;
	return starts_with(target, number) && target[length(number)] == 0;
}

/* pid_namespace is the number of the namespace that this process's id is of, 0 where that
   cannot be known. */
hidden u64 pid_namespace(void)
{
	char target[40]; /* pid:[NUMBER] */
	u64 number = 0;
	i64 n = readlink("/proc/self/ns/pid", target, sizeof target - 1);
	for (i64 i = 0; !failed(n) && i < n; i++)
		if (target[i] >= '0' && target[i] <= '9')
			number = number * 10 + (u64)(target[i] - '0');
	return number;
}

/* alone says whether this is certainly the only thread: others would have no control block. Where /proc is not mounted,
   nobody knows. With a signal pending, the kernel lists one name at a time; a stop signal can be, as nobody can block it. */
hidden int alone(void)
{
	char buf[512];
	u32 n = 0;
	i64 fd = open("/proc/self/task", O_DIRECTORY_ | O_CLOEXEC_, 0), r;
	if (failed(fd))
		return 0;
	while (n <= 1 && (r = sys(SYS_getdents64, fd, buf, sizeof buf, 0, 0, 0)) > 0)
		for (i64 i = 0; i < r; i += *(unsigned short *)(buf + i + 16))
			n += buf[i + 19] != '.';
	close(fd);
	return n == 1;
}

/* environment makes a list of the process's environment where the stack at its
   start is not at hand. */
hidden char **environment(void)
{
	enum { BYTES = 256 << 10, VARS = 8192 };
	char *b = map_private(BYTES + VARS * sizeof(char *));
	if (!b)
		return 0;
	char **env = (char **)(b + BYTES);
	i64 fd = open("/proc/self/environ", O_CLOEXEC_, 0);
	if (failed(fd))
		return env;
	u64 n = 0;
	for (;;) {
		i64 r = sys(SYS_read, fd, b + n, BYTES - 1 - n, 0, 0, 0);
		if (failed(r) || r == 0)
			break;
		n += (u64)r;
	}
	close(fd);
	u32 k = 0;
	for (u64 i = 0; i < n && k < VARS - 1; i++)
		if (i == 0 || b[i - 1] == 0)
			env[k++] = b + i;
	return env;
}

/* hex reads a hexadecimal number, and goes behind it. */
static u64 hex(const char **s)
{
	u64 v = 0;
	for (;; (*s)++) {
		u32 c = (u8)**s;
		if (c - '0' < 10)
			v = v << 4 | (c - '0');
		else if (c - 'a' < 6)
			v = v << 4 | (c - 'a' + 10);
		else
			return v;
	}
}

/* mapping reads a line of /proc/self/maps, and cuts it up for that. */
static struct mapping mapping(char *text)
{
	const char *line = text;
	struct mapping m = { .lo = hex(&line) };
	line++;
	m.hi = hex(&line);
	m.access = line + 1;
	for (u32 field = 0; field < 4; field++) { /* access, offset, device, inode */
		while (*line == ' ')
			line++;
		if (field == 1) {
			const char *offset = line;
			m.offset = hex(&offset);
		}
		while (*line != ' ' && *line)
			line++;
	}
	while (*line == ' ')
		line++;
	m.path = line;
	return m;
}

/* Room for the longest line of /proc/self/maps, of a path and 80 bytes. */
enum { MAPS_ROOM = 16 << 10 };

/* mappings_begin begins to read /proc/self/maps, which mappings_end has to end. */
hidden void mappings_begin(struct mappings *s)
{
	*s = (struct mappings){ .room = map_private(MAPS_ROOM), .fd = -1 };
	if (s->room)
		s->fd = open("/proc/self/maps", O_CLOEXEC_, 0);
}

/* mappings_next reads the next line, whose text is good until the one behind it. It returns 0 at the end. */
hidden int mappings_next(struct mappings *s, struct mapping *m)
{
	u64 end = s->at;
	for (;;) {
		while (end < s->have && s->room[end] != '\n')
			end++;
		if (end < s->have)
			break;
		for (u64 i = s->at; i < end; i++)
			s->room[i - s->at] = s->room[i];
		s->have = end -= s->at;
		s->at = 0;
		i64 r = failed(s->fd) ? 0 : sys(SYS_read, s->fd, s->room + s->have, MAPS_ROOM - s->have, 0, 0, 0);
		if (failed(r) || r == 0)
			return 0;
		s->have += (u64)r;
	}
	s->room[end] = 0;
	*m = mapping(s->room + s->at);
	s->at = end + 1;
	return 1;
}

hidden void mappings_end(struct mappings *s)
{
	if (!failed(s->fd))
		close(s->fd);
	if (s->room)
		sys(SYS_munmap, s->room, MAPS_ROOM, 0, 0, 0, 0);
}

/* mapped_file finds the path of the file that is mapped at an address. It returns its
   length; 0: there is none, or it does not fit into room. No NUL follows. */
hidden u64 mapped_file(u64 addr, char *path, u64 room)
{
	struct mappings s;
	struct mapping m;
	u64 n = 0;
	for (mappings_begin(&s); !n && mappings_next(&s, &m);)
		if (addr >= m.lo && addr < m.hi && (n = length(m.path)) <= room)
			memcpy(path, m.path, n);
	mappings_end(&s);
	return n <= room ? n : 0;
}

/* variable finds an environment variable; name ends in "=". */
hidden const char *variable(char **env, const char *name)
{
	for (; env && *env; env++)
		if (starts_with(*env, name))
			return *env + length(name);
	return 0;
}

/* Segments of the program that are only to be read: literals. They are there as long as the program is, so nobody needs to
   be asked for what lies in them. */
static struct { u64 lo, hi; } literals[4];

/* find_literals finds them by the program headers that the auxiliary vector tells. */
static void find_literals(const u64 *auxv)
{
	enum { AT_PHDR_ = 3, AT_PHENT_ = 4, AT_PHNUM_ = 5, PT_LOAD_ = 1, PT_PHDR_ = 6, PF_W_ = 2, PF_R_ = 4 };
	const struct { u32 type, flags; u64 offset, vaddr, paddr, filesz, memsz, align; } *h = 0;
	u64 n = 0, size = 0, bias = 0;
	for (; auxv[0]; auxv += 2) {
		if (auxv[0] == AT_PHDR_)
			h = (const void *)auxv[1];
		if (auxv[0] == AT_PHENT_)
			size = auxv[1];
		if (auxv[0] == AT_PHNUM_)
			n = auxv[1];
	}
	if (!h || size != sizeof *h)
		return;
	int found = 0; /* the headers themselves, where they are: the bias is right */
	for (u64 i = 0; i < n; i++)
		if (h[i].type == PT_PHDR_)
			bias = (u64)h - h[i].vaddr;
	for (u64 i = 0; i < n; i++)
		found |= h[i].type == PT_LOAD_ && (u64)h - bias - h[i].vaddr < h[i].filesz;
	for (u64 i = 0, k = 0; found && i < n && k < lengthof(literals); i++)
		if (h[i].type == PT_LOAD_ && (h[i].flags & (PF_R_ | PF_W_)) == PF_R_) {
			literals[k].lo = h[i].vaddr + bias;
			literals[k++].hi = h[i].vaddr + bias + h[i].filesz;
		}
}

/* literal says whether n bytes at an address are in one of them. */
hidden int literal(u64 at, u64 n)
{
	for (u32 i = 0; i < lengthof(literals); i++)
		if (at >= literals[i].lo && at < literals[i].hi && n <= literals[i].hi - at)
			return 1;
	return 0;
}

/* privileged says whether the kernel told the program to distrust its environment
   (setuid and the like). It finds the size of a page, what the machine has, and literals, too. */
hidden int privileged(u64 *auxv)
{
	int secure = 0;
	page_size = 4096;
	u64 buf[64];
	if (!auxv) {
		memset(buf, 0, sizeof buf);
		i64 fd = open("/proc/self/auxv", O_CLOEXEC_, 0);
		if (failed(fd))
			return 1;
		sys(SYS_read, fd, buf, sizeof buf - 16, 0, 0, 0);
		close(fd);
		auxv = buf;
	}
	find_literals(auxv);
	for (; auxv[0]; auxv += 2) {
		if (auxv[0] == 23 /* AT_SECURE */)
			secure = auxv[1] != 0;
		if (auxv[0] == 6 /* AT_PAGESZ */)
			page_size = auxv[1];
		auxiliary(auxv[0], auxv[1]);
	}
	return secure;
}
