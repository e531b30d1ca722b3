/* Tables of counts, of the tracers profile and count: one a thread, in the trace file, which
   holds what has been counted at any time. One table for all threads would need locked
   additions, which cost more than all the rest.

   A table has an entry a function of the home image, by local id, and its size is settled
   when the thread begins. So in these modes there are no other images (home.c): those would
   need tables that grow, or one more load at every call.

   With profile, a thread that begins goes on with the table of one that has ended. With
   count, whose tables are small, each thread has its own, up to a limit: programs can have
   millions of threads one after another. */
#include "chunk.h"
#include "configuration.h"
#include "file.h"
#include "image.h"
#include "profile.h"
#include "source.h"
#include "sys.h"

/* How many tables, and bytes of them, a process makes before threads that count go on with
   those of ended ones. */
enum { MOST_TABLES = 4096, MOST_BYTES = 1 << 30 };
static u32 ntables;

static int counts(void) { return fentry_config.mode == MODE_COUNT; }

static u64 table_size(void)
{
	return FT_CHUNK_HEADER + (counts() ? FT_COUNT_ENTRY : FT_PROFILE_ENTRY) * (fentry_image.sites + 1UL);
}

/* table_inherit gives a new thread the table of one that has ended. */
hidden void table_inherit(struct control *c, u64 *table, u64 *active)
{
	u32 n = load(&ntables);
	if (counts() && n < MOST_TABLES && n * table_size() < MOST_BYTES)
		return;
	c->table = table;
	c->active = active;
	if (active)
		memset(active, 0, 8UL * (fentry_image.sites + 1UL));
}

/* table_thread gives a new thread its table. Where there is none to be had, it
   gets one that nobody will read. */
hidden int table_thread(struct control *c)
{
	if (c->table)
		return 1;
	u64 size = table_size();
	u64 *active = 0;
	if (!counts() && !(active = map_private(8UL * (fentry_image.sites + 1UL))))
		return 0;
	struct chunk k = { 0 };
	u32 n = (u32)((size + source.chunk_size - 1) / source.chunk_size);
	if (source.kind == FILE && file_chunks(&k, n)) {
		add(&ntables, 1);
		store((u32 *)(k.base + FT_C_SIZE), (u32)size);
		sys(SYS_prctl, PR_GET_NAME_, c->comm, 0, 0, 0, 0);
		*(u32 *)(k.base + FT_C_FIRST) = fentry_own.base;
		chunk_header(c, k.base, counts() ? FT_KIND_COUNT : FT_KIND_PROFILE, fentry_image.id, 0);
	} else {
		k.base = (u64)map_private(size);
		if (!k.base) {
			if (active)
				sys(SYS_munmap, active, 8UL * (fentry_image.sites + 1UL), 0, 0, 0, 0);
			return 0;
		}
	}
	if (source.kind != FILE)
		uncounted(1);
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
