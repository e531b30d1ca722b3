/* What a recorder has a process do that runs already, and that it has attached to.

   All threads of the process are stopped then, and none is anywhere in this code. The
   recorder has one of them call a routine of these on a stack of its own (attach.S).
   So nothing here waits, and nothing that a slow path changes is half changed. The
   program's own memory is the recorder's business: what the image had where sites are,
   and which return addresses are on stacks.

   At the end a process gives back all that the runtime has mapped. It is asked of
   each file that maps something; a list of all mappings would have been one more thing
   that a thread can be in the middle of when the process forks. */
#include "attach.h"
#include "blocks.h"
#include "filter.h"
#include "format.h"
#include "home.h"
#include "image.h"
#include "poolmap.h"
#include "process.h"
#include "request.h"
#include "source.h"
#include "stack.h"
#include "sys.h"
#include "walk.h"

/* fentry_attach starts the runtime, or has the image join the one that is there. sp is as
   for fentry_init. It returns 0 if the image is not traced: somebody else has the runtime's
   page, or the recorder's pool cannot be opened. */
hidden u64 fentry_attach(u64 *sp)
{
	home_begin(sp);
	return images_armed() || (fentry_words.self && fentry_words.self != &fentry_own);
}

/* What the recorder has this thread do: the number of the step, what it is, and what became of it. */
struct step { u32 number, kind; u64 a, b, c; i64 result; };
enum { STEP_NONE, STEP_MAP, STEP_CALL, STEP_NOTHING };

#define STEPS_NAP     1000000UL    /* ns: between questions */
#define STEPS_SILENCE 5000000000UL /* ns: without a heartbeat, until the recorder counts as gone */

static i64 take(const struct step *s)
{
	if (s->kind == STEP_MAP)
		return sys(SYS_mmap, s->a, s->b, s->c, MAP_PRIVATE_ | MAP_ANON | MAP_FIXED_NOREPLACE_, -1, 0);
	return s->kind == STEP_CALL ? (i64)((u64 (*)(u64 *))s->a)(0) : 0;
}

/* fentry_loader_changed is where the dynamic loader comes when it has mapped libraries, before it relocates them, and when
   it has unmapped some: it does so to tell debuggers, holding its locks. The recorder looks at the process's mappings, puts
   what it has planned for new ones into them, and has this thread do what only the process itself can. So nobody traces
   it, and nobody is stopped: what is changed nobody runs yet. Therefore it is waited for as long as the recorder lives,
   which without an answer is known by its heartbeat. */
hidden void fentry_loader_changed(void)
{
	static u32 gone;
	if (source.kind != POOL || !request_server() || load(&gone))
		return;
	struct sigset old = block();
	static struct step s; /* the loader's locks are held; and a recorder that was stopped may write here late */
	s = (struct step){ 0 };
	u32 word = 0, beat = load(HEADER(u32, FT_H_HEARTBEAT));
	for (u64 since = clock_ns(CLOCK_MONOTONIC_);;) {
		u32 answer = request(FT_ASK_LOADED, (u64)&s), now = load(HEADER(u32, FT_H_HEARTBEAT));
		if (answer == FT_ANSWER_LATER)
			futex_wait(&word, 0, STEPS_NAP);
		else if (answer == FT_ANSWER_DONE && s.kind != STEP_NONE) {
			s.result = take(&s);
			s.kind = STEP_NONE;
		} else if (answer != FT_ANSWER_NONE)
			break;
		if (answer != FT_ANSWER_NONE || now != beat) {
			beat = now;
			since = clock_ns(CLOCK_MONOTONIC_);
		} else if (source.kind != POOL || clock_ns(CLOCK_MONOTONIC_) - since > STEPS_SILENCE) {
			store(&gone, 1);
			break;
		}
	}
	unblock(old);
}

/* fentry_areas tells on which areas stacks were seen, at most room. It returns how many there
   are. */
hidden u64 fentry_areas(struct area *to, u64 room) { return stacks_areas(to, room); }

/* others says whether other images have joined than the recorder has brought. */
static int others(u64 brought)
{
	u64 n = 0;
	for (struct image *m = images_first(); m; m = m->next)
		n++;
	return n > brought;
}

/* fentry_shed unmaps parts of the pool, at most so many, and returns how many: of a large one that takes long, and
   fentry_leave, before which it is called, is one stop of all threads. */
hidden u64 fentry_shed(u64 brought, u64 most)
{
	if (others(brought))
		return 0;
	u32 forbids = swap(&fentry_forbids, 0); /* a recorder that has a thread come here has put its filters off */
	u64 n = pool_shed(most);
	store(&fentry_forbids, forbids);
	return n;
}

/* fentry_leave unmaps all that the runtime has mapped, but for the image that it is in. It
   returns 0 if it must stay, because other images have joined than the recorder has brought,
   which are so many with this one. */
hidden u64 fentry_leave(u64 brought)
{
	if (others(brought))
		return 0;
	store(&fentry_forbids, 0);
	images_arm(0);
	walk_leave();
	blocks_leave();
	stacks_leave();
	pool_leave();
	images_leave();
	home_leave();
	return 1;
}
