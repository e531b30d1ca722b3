/* Programs that this one executes.

   The recorder puts the tracer into a program at its exec stop, which only a tracer of the
   process (ptrace) sees. It must not stay one: strace and gdb could not be used, and each
   signal would take the way through it. So the program says when it is about to execute
   another one, the recorder traces it from there to behind its exec stop, and leaves.

   Libraries make that system call, so they have to come here: when they are all loaded, at
   the program's entry point, the recorder is asked to put jumps in the place of the
   instructions that load the call's number. It knows where they are, and its way of writing
   to code makes none writable here, for a moment, as some systems forbid. What they jump to
   has to be near them, so it is a page of this process, and what is on it the recorder's. */
#include "configuration.h"
#include "exec.h"
#include "process.h"
#include "request.h"
#include "source.h"
#include "sys.h"

enum { AT_BASE_ = 7, AT_ENTRY_ = 9, PROT_CODE = 5 };

/* What the recorder reads: where jumps are to lead, by which page. */
struct exec_hook { u64 routine, page; };

extern hidden char fentry_exec[], fentry_orig_entry[];

/* auxiliary_vector finds it behind the environment. */
static u64 *auxiliary_vector(u64 *sp)
{
	u64 *p = sp + 1 + sp[0] + 1;
	while (*p)
		p++;
	return p + 1;
}

/* restore_entry puts back what leads here, as the program may look at it: it is where this
   runtime starts. */
static void restore_entry(u64 *aux)
{
	for (; aux[0]; aux += 2)
		if (aux[0] == AT_ENTRY_)
			aux[1] = (u64)fentry_orig_entry;
}

/* loader_base is where the dynamic loader is; 0: there is none. */
static u64 loader_base(u64 *aux)
{
	for (; aux[0]; aux += 2)
		if (aux[0] == AT_BASE_)
			return aux[1];
	return 0;
}

/* asked counts an answer that has not come. */
static u32 asked(u32 answer)
{
	if (answer == FT_ANSWER_NONE)
		add(HEADER(u32, FT_H_UNFOLLOWED), 1);
	return answer;
}

/* follow_by maps the page and asks the recorder to use it. The answer is LATER if there can be a better one. */
static u32 follow_by(struct exec_hook *hook)
{
	i64 r = sys(SYS_mmap, hook->page, page_size, PROT_CODE, MAP_PRIVATE_ | MAP_ANON | MAP_FIXED_NOREPLACE_, -1, 0);
	if (failed(r))
		return FT_ANSWER_LATER;
	u32 answer = (u64)r == hook->page ? asked(request(FT_ASK_FOLLOW, (u64)hook)) : FT_ANSWER_LATER;
	if (answer != FT_ANSWER_DONE)
		sys(SYS_munmap, r, page_size, 0, 0, 0, 0);
	return answer;
}

/* follow_programs asks the recorder to trace what this program executes. again: it is the
   second time that the runtime starts, so this is the entry point. The first time it is too
   early if a dynamic loader is still to come.

   The loader maps libraries next to itself, so a page at some distance from it is close to
   them, and not where the next ones come. Only if it is not does the recorder say where one is. */
hidden void follow_programs(u64 *sp, int again)
{
	if (!sp)
		return;
	u64 *aux = auxiliary_vector(sp), loader = loader_base(aux);
	if (again)
		restore_entry(aux);
	else if (loader)
		return;
	if (source.kind != POOL)
		return;
	struct exec_hook hook = { (u64)fentry_exec, loader - (u64)NEAR_LOADER };
	int tells = (fentry_config.flags & FLAG_EXECS) != 0;
	if (NEAR_LOADER && loader > (u64)NEAR_LOADER && !tells && follow_by(&hook) != FT_ANSWER_LATER)
		return;
	if (asked(request_value(FT_ASK_PLACE, (u64)tells, &hook.page)) == FT_ANSWER_DONE)
		follow_by(&hook);
}
