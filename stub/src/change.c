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

/* set_roots takes the bitmaps that follow a change over. */
static int set_roots(const struct change *to)
{
	const struct changed_roots *r = (const struct changed_roots *)(to + 1);
	for (struct image *m = images_first(); m && !to->roots; m = m->next)
		if (!image_roots(m, 0))
			return 0;
	for (u32 i = 0; i < to->roots; i++) {
		struct image *m = has_image(r[i].image);
		if (!m || !image_roots(m, (const u8 *)r[i].bitmap))
			return 0;
	}
	return 1;
}

/* set_actions takes the actions that follow a change over: of images all of which there are. */
static int set_actions(const struct change *to)
{
	const struct changed_roots *r = (const struct changed_roots *)(to + 1);
	const struct changed_actions *a = (const struct changed_actions *)(r + to->roots);
	for (u32 i = 0; i < to->acted; i++)
		if (!has_image(a[i].image))
			return 0;
	for (u32 i = 0; i < to->acted; i++)
		if (image_there((struct image *)a[i].image))
			image_actions((struct image *)a[i].image, a + i);
	return 1;
}

/* fentry_change makes a change. It returns 0 if that cannot be: because of what the process is traced with, or because
   there is no memory. */
hidden u64 fentry_change(const struct change *to)
{
	struct control *c;
	int frames = (to->flags & CHANGE_FRAMES) != 0;
	if (fentry_config.mode != MODE_GRAPH || (to->flags & (CHANGE_FRAMES | CHANGE_FLAT) && clockless()) || !set_actions(to))
		return 0;
	if (!frames)
		return 1;
	if ((to->flags & CHANGE_ROOTS) && !set_roots(to)) /* first: where nothing looks at roots yet they do no harm */
		return 0;
	if (!extra_shadow()) {
		if (!stacks_extend())
			return 0;
		for (u32 i = 0; (c = next_block(&i));)
			frames_adopt(c);
	}
	frames_limit(to->depth, to->threshold, counter_hz());
	for (struct image *m = images_first(); m; m = m->next) {
		if (!image_there(m))
			continue;
		m->words->depth = fentry_words.depth;
		m->words->threshold = fentry_words.threshold;
	}
	for (u32 i = 0; (to->flags & CHANGE_FORGET) && (c = next_block(&i));)
		frames_forget(c);
	return 1;
}
