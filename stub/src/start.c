/* Start of the runtime.

   It happens once a process, at the new entry point or, before that, by a relocation
   that the dynamic loader processes; the classic tracer's at the first call of mcount.
   A recorder lets the entry point's part run before the loader, so that the
   constructors of libraries, and what they call back, are traced. Whoever comes to a
   slow path meanwhile waits. The last step switches the functions on: until then thunks
   do nothing, so a program without a place for its trace runs as if it was not patched. */
#include "announce.h"
#include "blocks.h"
#include "configuration.h"
#include "frame.h"
#include "image.h"
#include "process.h"
#include "session.h"
#include "source.h"
#include "stack.h"
#include "start.h"
#include "sys.h"
#include "thread.h"

/* How far the start is. */
enum { NOT_STARTED, STARTING, READY, OFF };
static u32 state, starter;

static int start(u64 *sp)
{
	u64 base = OWN_BASE ? 0 : control_base(), *auxv = 0;
	char **env;
	if (fentry_config.magic != CONFIG_MAGIC || fentry_config.version != CONFIG_VERSION)
		return 0;
	if (fentry_image.magic != IMAGE_MAGIC || fentry_image.version != IMAGE_VERSION ||
	    fentry_image.mode != fentry_config.mode)
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
	if (OWN_BASE && !has_base() && !share_base())
		return 0;
	frames_init(fentry_config.threshold ? counter_hz() : 0);
	early_thread(fentry_first_thread);
	i64 ids = allocate_ids(fentry_image.id, fentry_image.sites);
	int same;
	if (ids < 0 || !image_add(&fentry_image, &fentry_words, (u32)ids, &same))
		return 0;
	fentry_own.stage = IMAGE_HERE; /* the home stays */
	stacks_init();
	return 1;
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
	int started = start(sp), ok = 0;
	if (started) {
		struct control *c = this_thread();
		ok = c && announce(c);
	}
	if (started && !ok)
		uncounted(1); /* none of its functions is switched on */
	store(&state, ok || (CALLBACKS && started) ? READY : OFF);
	if (ok)
		images_arm(1);
	unblock(old);
}

/* ready says whether the runtime has started; if not, it starts it. */
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

/* is_off says whether the runtime has found nowhere to record to, and will not any more. */
hidden int is_off(void) { return load(&state) == OFF; }

/* traced_thread returns the running thread's block, for a thread that has come to a
   slow path; 0: it cannot be traced. Signals are blocked. */
hidden struct control *traced_thread(void) { return ready() ? this_thread() : 0; }
