/* Libraries that the program loads later.

   The recorder gives the dynamic loader patched copies of libraries while it traces the
   process, until the program begins. It does not stay: strace and gdb could not be used
   then. What the loader opens later it comes here with: the recorder has put jumps in the
   place of the system calls by which the loader opens files (tracee/loaderhook.go), and
   asked here is whether another file is to take the place of the one that was opened.

   The recorder answers with a descriptor of its own, by which the file is opened below
   /proc, and with the file's inode, as in another PID namespace its process id can be
   somebody else's. Patching a large library takes longer than a request may: then the
   answer is to ask again later. The loader's locks are held all this time, and nothing
   here calls libc. Whatever goes wrong, the program has the file that it has opened. */
#include "filter.h"
#include "format.h"
#include "request.h"
#include "say.h"
#include "source.h"
#include "sys.h"

#define PATIENCE 10000000000UL /* ns: for a copy to be made */
#define NAP 2000000UL          /* ns: between questions */
#define MISSES 10              /* unanswered questions in a row until none is asked any more */

static char *text(char *p, const char *s)
{
	while (*s)
		*p++ = *s++;
	return p;
}

static char *number(char *p, u32 v)
{
	char b[10];
	u32 n = 0;
	do
		b[n++] = (char)('0' + v % 10);
	while (v /= 10);
	while (n)
		*p++ = b[--n];
	return p;
}

/* replace makes a descriptor one of a file of the recorder: the low half of with is the
   recorder's descriptor, the high half that of its inode. */
static void replace(i64 fd, u64 with)
{
	char path[48], *p = path;
	u64 stat[32]; /* struct stat: the inode follows the device */
	p = text(p, "/proc/");
	p = number(p, request_server());
	p = text(p, "/fd/");
	p = number(p, (u32)with);
	*p = 0;
	i64 other = open(path, O_CLOEXEC_ | O_NONBLOCK_ | O_NOCTTY_, 0);
	if (failed(other))
		return;
	if (!failed(sys(SYS_fstat, other, stat, 0, 0, 0, 0)) && (u32)stat[1] == (u32)(with >> 32))
		sys(SYS_dup3, other, fd, O_CLOEXEC_, 0, 0, 0);
	close(other);
}

/* fentry_loader_opened is for what the dynamic loader has just opened. */
hidden void fentry_loader_opened(i64 fd)
{
	static u32 misses;
	if (source.kind == POOL && *HEADER(u32, FT_H_RECORDER) && load(&fentry_forbids)) {
		add(HEADER(u32, FT_H_UNLOADED), 1);
		return;
	}
	if (!request_server() || load(&misses) >= MISSES)
		return;
	struct sigset old = block();
	u64 with = 0, until = clock_ns(CLOCK_MONOTONIC_) + PATIENCE;
	u32 answer, word = 0;
	/* A recorder that is only slow, as on a busy machine, is asked again. */
	while (((answer = request_value(FT_ASK_LIBRARY, (u64)fd, &with)) == FT_ANSWER_LATER ||
		(answer == FT_ANSWER_NONE && add(&misses, 1) + 1 < MISSES)) &&
	       clock_ns(CLOCK_MONOTONIC_) < until)
		if (answer == FT_ANSWER_LATER)
			futex_wait(&word, 0, NAP);
	if (answer != FT_ANSWER_NONE)
		store(&misses, 0);
	else if (load(&misses) == MISSES)
		say("libraries that are loaded from now on are not traced: the recorder does not answer", 0, 0, 0);
	if (answer == FT_ANSWER_DONE && with)
		replace(fd, with);
	unblock(old);
}
