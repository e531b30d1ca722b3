/* Functions that the recorder has switched off, because recording them costs too much.

   The recorder sees how often functions are called, and decides (session/internal/adapt). It
   adds their ids to a list in the pool's header, which only grows, and each process follows
   at its own pace: whenever a thread begins a chunk, which a program that makes many events
   does thousands of times a second, and the others need not. The switches themselves are in
   memory of the process, so thunks find them at a fixed distance, a forked child has those
   of its parent, and no other process can change them. A page of switches that the recorder
   writes would save the few events until the next chunk; it would need a mapping for each
   image, at an address that the image's thunks reach, before it starts.

   The list is followed once a chunk's header has its time. So a chunk that began after a
   function was switched off has no calls of it but those that were open, and the recorder
   can tell what its decision has changed. */
#include "image.h"
#include "source.h"
#include "costly.h"

static u32 followed; /* entries of the list that this process has followed */

/* list returns the ids that are switched off, and how many; 0: there is no list. */
static const u32 *list(u32 *n)
{
	if (source.kind != POOL)
		return 0;
	u32 off = *HEADER(u32, FT_H_SWITCHED_OFF), room = *HEADER(u32, FT_H_SWITCHED_OFF_ROOM);
	if (!off || off % 8 || off > source.header_size || room > (source.header_size - off) / sizeof(u32))
		return 0;
	u32 count = load(HEADER(u32, FT_H_SWITCHED_OFF_COUNT));
	*n = count < room ? count : room;
	return HEADER(u32, off);
}

/* recorder_wants says whether the recorder has added something. */
hidden int recorder_wants(void)
{
	u32 n = 0;
	return list(&n) && n != load(&followed);
}

/* follow_recorder switches off what the recorder has added to its list. Two threads may do
   the same at once. */
hidden void follow_recorder(void)
{
	u32 n = 0, from = load(&followed);
	const u32 *ids = list(&n);
	for (u32 i = from; ids && i < n; i++)
		images_switch_off(ids[i]);
	while (from < n && !cas(&followed, from, n))
		from = load(&followed);
}

/* follow_from_start does it for an image that is new in the process. */
hidden void follow_from_start(void)
{
	store(&followed, 0);
	follow_recorder();
}
