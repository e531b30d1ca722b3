/* The profile tracer's tables: one a thread, in the trace file, which holds what
   has been counted at any time. A thread that begins goes on with the table of one
   that has ended. One table for all threads would need locked additions, which cost as
   much as the rest of the call.

   A table has an entry a function of the home image, by local id, and its size is settled
   when the thread begins. So in this mode there are no other images (home.c): those would
   need tables that grow, or one more load at every call. */
#include "chunk.h"
#include "file.h"
#include "image.h"
#include "profile.h"
#include "source.h"
#include "sys.h"

static u64 table_size(void) { return FT_CHUNK_HEADER + (u64)FT_PROFILE_ENTRY * (fentry_image.sites + 1UL); }

/* profile_thread gives a new thread its table. Where there is none to be had, it
   gets one that nobody will read. */
hidden int profile_thread(struct control *c)
{
	if (c->table)
		return 1;
	u64 size = table_size();
	u64 *active = map_private(8UL * (fentry_image.sites + 1UL));
	if (!active)
		return 0;
	struct chunk k = { 0 };
	u32 n = (u32)((size + source.chunk_size - 1) / source.chunk_size);
	if (source.kind == FILE && file_chunks(&k, n)) {
		store((u32 *)(k.base + FT_C_SIZE), (u32)size);
		sys(SYS_prctl, PR_GET_NAME_, c->comm, 0, 0, 0, 0);
		*(u32 *)(k.base + FT_C_FIRST) = fentry_own.base;
		chunk_header(c, k.base, FT_KIND_PROFILE, 0);
	} else {
		k.base = (u64)map_private(size);
		if (!k.base) {
			sys(SYS_munmap, active, 8UL * (fentry_image.sites + 1UL), 0, 0, 0, 0);
			return 0;
		}
	}
	if (source.kind != FILE)
		lose(c, 1); /* how much it will be is not known */
	c->table = (u64 *)(k.base + FT_CHUNK_HEADER);
	c->active = active;
	return 1;
}

/* profile_skipped forgets the calls whose slots are in [from, to): they were left by a jump. */
hidden void profile_skipped(struct control *c, u64 from, u64 to)
{
	for (u64 i = 1; i <= fentry_image.sites; i++)
		if (c->active[i] - from < to - from)
			c->active[i] = 0;
}
