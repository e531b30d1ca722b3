/* Start of the runtime, and the end of tracing. */
#include "runtime.h"
#include "text.h"

hidden u32 fentry_armed;
hidden u64 fentry_thunks, fentry_thunks_size;

/* How far the start is. */
enum { NOT_STARTED, STARTING, READY, OFF };
static u32 state, starter;

hidden u64 fentry_first_thread[8]; /* see early_thread */

static const char *error_text(i64 err)
{
	static const struct { i32 err; char text[36]; } known[] = {
		{ 1, "operation not permitted" }, { 2, "no such file or directory" }, { 12, "out of memory" }, { 13, "permission denied" },
		{ 17, "file exists" }, { 20, "not a directory" }, { 23, "too many open files in system" }, { 24, "too many open files" },
		{ 27, "file too large" }, { 28, "no space left on device" }, { 30, "read-only file system" }, { 36, "name too long" },
		{ 39, "directory not empty" }, { 40, "too many symbolic links" }, { 122, "disk quota exceeded" },
	};
	for (u32 i = 0; i < lengthof(known); i++)
		if (known[i].err == -err)
			return known[i].text;
	return 0;
}

/* say writes one line to standard error. err is a system call's result, 0: none. */
hidden void say(const char *a, const char *b, const char *c, i64 err)
{
	char line[320], num[32] = ": error ";
	const char *parts[] = { "fentry: ", a, b, c, 0, 0 };
	u64 n = 0;
	if (fentry_config.flags & FLAG_QUIET)
		return;
	if (failed(err)) {
		parts[4] = error_text(err) ? ": " : num;
		parts[5] = error_text(err);
		decimal(num + 8, (u64)-err);
	}
	for (u32 i = 0; i < lengthof(parts); i++)
		for (const char *s = parts[i]; s && *s && n < sizeof line - 1; s++)
			line[n++] = *s;
	line[n++] = '\n';
	sys(SYS_write, 2, line, n, 0, 0, 0);
}

/* stop_tracing ends tracing in this process for good. The first one gives the reason. */
hidden void stop_tracing(const char *why, i64 err)
{
	u32 was = swap(&fentry_armed, 0);
	source.kind = CLOSED;
	if (was && why)
		say("tracing stopped: ", why, 0, err);
}

/* only_count goes on without a trace to write to: what is lost is counted. */
hidden void only_count(i64 err)
{
	if (swap(&source.kind, CLOSED) != CLOSED)
		say("the trace ends here, what follows is lost", 0, 0, err);
}

/* counter_hz is how many times a second the counter ticks: what the trace says, or
   measured, to 1 in 10000 or so. */
hidden u64 counter_hz(void)
{
	u64 hz = source.header ? *HEADER(u64, FT_H_COUNTER_HZ) : 0;
	if (!hz)
		hz = counter_frequency();
	if (hz)
		return hz;
	u64 t0 = clock_ns(CLOCK_MONOTONIC_), c0 = counter(), t, c1;
	do {
		t = clock_ns(CLOCK_MONOTONIC_);
		c1 = counter();
	} while (t - t0 < 3000000);
	return (c1 - c0) * 1000 / ((t - t0) / 1000) * 1000;
}

/* environment makes a list of the process's environment where the stack at its
   start is not at hand. */
static char **environment(void)
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

hidden u64 page_size = 0;

/* privileged says whether the kernel told the program to distrust its environment
   (setuid and the like). It finds the size of a page and what the machine has, too. */
static int privileged(u64 *auxv)
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
	for (; auxv[0]; auxv += 2) {
		if (auxv[0] == 23 /* AT_SECURE */)
			secure = auxv[1] != 0;
		if (auxv[0] == 6 /* AT_PAGESZ */)
			page_size = auxv[1];
		auxiliary(auxv[0], auxv[1]);
	}
	return secure;
}

/* alone says whether this is the only thread: others would have no control block. */
hidden int alone(void)
{
	char buf[512];
	u32 n = 0;
	i64 fd = open("/proc/self/task", O_DIRECTORY_ | O_CLOEXEC_, 0);
	if (failed(fd))
		return 1;
	i64 r = sys(SYS_getdents64, fd, buf, sizeof buf, 0, 0, 0);
	close(fd);
	for (i64 i = 0; i < r; i += *(unsigned short *)(buf + i + 16))
		n += buf[i + 19] != '.';
	return n <= 1;
}

static int start(u64 *sp)
{
	u64 base = OWN_BASE ? 0 : control_base(), *auxv = 0;
	char **env;
	if (fentry_config.magic != CONFIG_MAGIC || fentry_config.version != CONFIG_VERSION)
		return 0;
	if (sp) {
		env = (char **)(sp + 1 + sp[0] + 1);
		char **e = env;
		while (*e)
			e++;
		auxv = (u64 *)(e + 1);
	} else
		env = environment();
	if ((privileged(auxv) || !open_source(env)) && !CALLBACKS)
		return 0;
	/* Threads that are there already have not inherited a control base of ours. */
	if (!OWN_BASE && base != (u64)&fentry_null_cb && (base != 0 || !alone()) && !share_base())
		return 0;
	frames_init(fentry_config.threshold ? counter_hz() : 0);
	early_thread(fentry_first_thread);
	return 1;
}

/* announce writes what readers need to know of this image. */
static int announce(void)
{
	struct control *c = this_thread();
	if (!c)
		return 0;
	sys(SYS_prctl, PR_GET_NAME_, c->comm, 0, 0, 0, 0);
	write_image();
	put(c, counter(), FT_EV_START);
	return source.kind != CLOSED;
}

/* fentry_init starts tracing. sp is the stack at the program's start, where argc
   is; 0 when it is not known. */
hidden void fentry_init(u64 *sp)
{
	struct sigset old = block();
	if (!cas(&state, NOT_STARTED, STARTING)) {
		unblock(old);
		return;
	}
	store(&starter, gettid());
	int ok = start(sp);
	if (ok) {
		store(&state, READY); /* announcing needs it */
		ok = announce();
	}
	if (!ok && !(CALLBACKS && load(&state) == READY))
		store(&state, OFF);
	store(&fentry_armed, ok);
	unblock(old);
}

/* ready says whether the runtime has started; if not, it starts it. A recorder arms
   programs before they run, so that functions called before the program's entry
   point are traced: constructors of libraries call them. */
hidden int ready(void)
{
	u32 s = load(&state);
	if (s == READY)
		return 1;
	if (s == NOT_STARTED)
		fentry_init(0);
	while (load(&state) == STARTING) {
		u32 tid = load(&starter);
		if (tid && !thread_alive(getpid(), tid))
			store(&state, OFF); /* a child forked at that moment */
		sys(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
	}
	return load(&state) == READY;
}
