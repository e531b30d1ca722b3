/* What a program is about to execute: the recorder is told (follow.c says why, and how the
   program comes here). It comes here with filters of its system calls, too (filter.c).

   A child that has been forked, or shares its parent's memory (vfork), asks for itself:
   nothing here is written but the stack, and what such a child forbids itself, which its parent does without then, too.
   What is read does not change. The program
   goes on whatever the recorder answers, and the other one runs untraced then. */
#include "filter.h"
#include "machine.h"
#include "process.h"
#include "request.h"
#include "source.h"
#include "sys.h"

/* What the recorder reads of a program that is to be executed: its path, below the directory
   dir, which with an empty path is the file itself. */
struct exec_call { u64 path; i32 dir; u32 flags, tid; };

/* seen says whether the recorder is there: 1, or 0; -1 if it cannot be seen from here: in
   another PID namespace its id is another process's, or nobody's. */
static int seen(u32 recorder)
{
	u64 ns = *HEADER(u64, FT_H_RECORDER_NS);
	return ns && ns != pid_namespace() ? -1 : thread_alive(recorder, recorder);
}

/* silent says whether a request was given up, and nothing heard of the recorder since then. */
static int silent(void)
{
	return load(HEADER(u32, FT_H_SILENT)) == load(HEADER(u32, FT_H_HEARTBEAT)) + 1;
}

/* fentry_executes is for what is about to be executed, and for filters of system calls that are about to be installed; where
   code shares the instruction, it can be another system call. A path that leads nowhere, as many do while a shell looks along
   $PATH, is not worth a question. */
hidden void fentry_executes(u64 nr, u64 first, u64 second, u64 flags, u64 third)
{
	watch_filters(nr, (u64[]){ first, second, third });
	if (nr != NR_EXECVE && nr != NR_EXECVEAT)
		return;
	u32 recorder = source.kind == POOL ? *HEADER(u32, FT_H_RECORDER) : 0;
	if (recorder && load(&fentry_forbids)) {
		add(HEADER(u32, FT_H_UNFOLLOWED), 1);
		return;
	}
	struct exec_call call = { first, AT_FDCWD_, 0, gettid() };
	if (nr == NR_EXECVEAT)
		call = (struct exec_call){ second, (i32)first, (u32)flags, gettid() };
	int there = recorder ? seen(recorder) : 0;
	if (!there)
		return;
	if (nr != NR_EXECVEAT) {
		i64 fd = open((const char *)first, O_PATH_ | O_CLOEXEC_, 0);
		if (failed(fd))
			return;
		close(fd);
	}
	struct sigset old = block();
	if ((there < 0 && silent()) || request(FT_ASK_EXEC, (u64)&call) == FT_ANSWER_NONE)
		add(HEADER(u32, FT_H_UNFOLLOWED), 1);
	unblock(old);
}
