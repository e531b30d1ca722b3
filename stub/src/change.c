/* What a recorder changes of how calls are recorded, while the process runs.

   Thunks of a plan without limits go to routines that know of none, and frames have neither
   depths nor times in their shadow. When limits are asked for, the recorder stops all threads
   at a moment when none is in a thunk or in the runtime, and has one of them come here
   (attach.S): all stacks get the rest of their shadow, and frames that are open what they would
   have there. Then it writes a jump over the beginnings of those routines, to the ones that
   know of limits (Detours), one a routine and not one a function, however many there are. The
   way back is limits that limit nothing: frames that were opened with them have to be closed
   with them.

   Actions are another table of the image's, in memory that the recorder has mapped. The recorder leads the thunks of
   functions that have some to the routines that look there, and those of others back.

   Graph roots are looked for at the bottom of a stack, and while the process runs its main is
   open there. So calls that are open when roots are set are forgotten, as far as nesting goes:
   what they call from then on is recorded inside of roots only, and they end as ever. */
#include "change.h"
#include "blocks.h"
#include "configuration.h"
#include "frame.h"
#include "image.h"
#include "life.h"
#include "stack.h"
#include "source.h"

/* has_image says whether a recorder means an image that there is. */
static struct image *has_image(u64 at)
{
	for (struct image *m = images_first(); m; m = m->next)
		if ((u64)m == at)
			return m;
	return 0;
}

static const struct changed_roots *roots_of(const struct change *to) { return (const struct changed_roots *)(to + 1); }

static const struct changed_actions *actions_of(const struct change *to)
{
	return (const struct changed_actions *)(roots_of(to) + to->roots);
}

/* understood says whether a change can be made if there is memory for it: it is about images that there are, and this
   process is traced with what it needs. */
static int understood(const struct change *to)
{
	if (fentry_config.mode != MODE_GRAPH || (to->flags & CHANGE_FRAMES && clockless()))
		return 0;
	for (u32 i = 0; i < to->roots; i++)
		if (!has_image(roots_of(to)[i].image))
			return 0;
	for (u32 i = 0; i < to->acted; i++)
		if (!has_image(actions_of(to)[i].image))
			return 0;
	return 1;
}

/* copy_roots makes copies of the bitmaps that follow a change. It returns 0 where there is no memory. */
static int copy_roots(const struct change *to)
{
	for (u32 i = 0; i < to->roots; i++)
		if (!image_copy_roots(has_image(roots_of(to)[i].image), (const u8 *)roots_of(to)[i].bitmap))
			return 0;
	return 1;
}

/* prepare does all of a change that can fail, and nothing that anybody notices. It returns 0 where there is no memory. */
static int prepare(const struct change *to)
{
	if (!(to->flags & CHANGE_FRAMES))
		return 1;
	if ((!(to->flags & CHANGE_ROOTS) || copy_roots(to)) && (extra_shadow() || stacks_extend()))
		return 1;
	for (struct image *m = images_first(); m; m = m->next)
		image_drop_roots(m);
	return 0;
}

/* limit sets depth, threshold and roots of what is recorded. */
static void limit(const struct change *to)
{
	struct control *c;
	if (!extra_shadow()) {
		for (u32 i = 0; (c = next_block(&i));)
			frames_adopt(c);
		stacks_extended();
	}
	frames_limit(to->depth, to->threshold, to->threshold ? counter_hz() : 0);
	for (struct image *m = images_first(); m; m = m->next) {
		if (to->flags & CHANGE_ROOTS && (m->next_roots || !to->roots))
			image_take_roots(m);
		if (!image_there(m))
			continue;
		m->words->depth = fentry_words.depth;
		m->words->threshold = fentry_words.threshold;
	}
	for (u32 i = 0; (to->flags & CHANGE_FORGET) && (c = next_block(&i));)
		frames_forget(c);
}

/* fentry_change makes a change, or leaves everything as it is. It returns what comes of it. */
hidden u64 fentry_change(const struct change *to)
{
	if (!understood(to))
		return CHANGED_IMPOSSIBLE;
	if (!prepare(to))
		return CHANGED_NO_MEMORY;
	if (to->flags & CHANGE_FRAMES)
		limit(to);
	for (u32 i = 0; i < to->acted; i++) {
		struct image *m = has_image(actions_of(to)[i].image);
		if (image_there(m))
			image_actions(m, actions_of(to) + i);
	}
	return CHANGED_MADE;
}
