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
#include "home.h"
#include "image.h"
#include "poolmap.h"
#include "stack.h"
#include "sys.h"

/* fentry_attach starts the runtime, or has the image join the one that is there. sp is as
   for fentry_init. It returns 0 if the image is not traced: somebody else has the runtime's
   page, or the recorder's pool cannot be opened. */
hidden u64 fentry_attach(u64 *sp)
{
	home_begin(sp);
	return images_armed() || (fentry_words.self && fentry_words.self != &fentry_own);
}

/* fentry_areas tells on which areas stacks were seen, at most room. It returns how many there
   are. */
hidden u64 fentry_areas(struct area *to, u64 room) { return stacks_areas(to, room); }

/* fentry_leave unmaps all that the runtime has mapped, but for the image that it is in. It
   returns 0 if it must stay, because other images have joined than the recorder has brought,
   which are so many with this one. */
hidden u64 fentry_leave(u64 brought)
{
	u64 n = 0;
	for (struct image *m = images_first(); m; m = m->next)
		n++;
	if (n > brought)
		return 0;
	images_arm(0);
	blocks_leave();
	stacks_leave();
	pool_leave();
	images_leave();
	home_leave();
	return 1;
}
