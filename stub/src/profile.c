/* Tables of counts, of the tracers profile and count, in the trace file, which holds what has
   been counted at any time. A thread has one for each image: one for all threads would need
   locked additions, which cost more than all the rest, and one for all images would have to
   grow under whoever adds to it.

   A table has an entry a function, by local id. Fast paths find it in the block, where the
   image's words say: at CB_TABLE or in an array at the block's end. Threads call few of the
   functions of few libraries, so a table is made at the first call that comes to it, by a
   slow path. The thunks of the tracer count add to the table at CB_TABLE without looking
   whether it is there. So that is the first image's, which a thread has from its begin;
   the switches of all others send calls to a routine (SWITCH_SLOW). On arm64, where thunks
   call one anyway, CB_TABLE is the executable's, as its fast paths look at nothing but the
   block.

   With profile, a thread that begins goes on with the tables of one that has ended. With
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
enum { MANY_TABLES = 4096, MANY_BYTES = 1 << 30 };
static u32 made;
static u64 bytes;

static int counts(void) { return fentry_config.mode == MODE_COUNT; }

static u64 table_size(const struct image *m)
{
	return FT_CHUNK_HEADER + (counts() ? FT_COUNT_ENTRY : FT_PROFILE_ENTRY) * (m->sites + 1UL);
}

static u64 active_size(const struct image *m) { return 8 * (m->sites + 1UL); }

/* table_of returns where a thread's table of an image is. */
static struct table *table_of(struct control *c, const struct image *m)
{
	return (struct table *)((u64)c + m->tables);
}

/* has_table says whether a thread has one of an image. */
hidden int has_table(struct control *c, const struct image *m) { return table_of(c, m)->entries != 0; }

/* in_file makes a table in the trace file. It returns the address of its chunk, 0 where
   there is none to be had. */
static u64 in_file(struct control *c, const struct image *m)
{
	struct chunk k = { 0 };
	u64 size = table_size(m);
	if (source.kind != FILE || !file_chunks(&k, (u32)((size + source.chunk_size - 1) / source.chunk_size)))
		return 0;
	add(&made, 1);
	add(&bytes, size);
	*(u32 *)(k.base + FT_C_SIZE) = (u32)size;
	sys(SYS_prctl, PR_GET_NAME_, c->comm, 0, 0, 0, 0);
	*(u32 *)(k.base + FT_C_FIRST) = m->base;
	chunk_header(c, k.base, counts() ? FT_KIND_COUNT : FT_KIND_PROFILE, fentry_image.id, 0);
	return k.base;
}

/* image_table returns a thread's table of an image, which is made if there is none. Where the
   file has no room, it is one that nobody will read. 0: there is no memory, and so a call
   more that is not counted. Signals are blocked. */
hidden struct table *image_table(struct control *c, const struct image *m)
{
	struct table *t = table_of(c, m);
	if (t->entries)
		return t;
	u64 *active = 0, base;
	if (!counts() && !(active = map_private(active_size(m)))) {
		uncounted(1);
		return 0;
	}
	if (!(base = in_file(c, m)) && !(base = (u64)map_private(table_size(m)))) {
		if (active)
			sys(SYS_munmap, active, active_size(m), 0, 0, 0, 0);
		uncounted(1);
		return 0;
	}
	if (source.kind != FILE)
		uncounted(1);
	t->active = active;
	store(&t->entries, (u64 *)(base + FT_CHUNK_HEADER));
	return t;
}

/* begin_tables gives a thread that begins its table of the first image, and those that an
   ended thread has left in its block, first and the array, if it is to go on with them. */
hidden int begin_tables(struct control *c, struct table first)
{
	if (counts() && load(&made) < MANY_TABLES && load(&bytes) < MANY_BYTES) {
		memset(c->tables, 0, sizeof c->tables);
	} else {
		c->table = first;
		for (const struct image *m = images_first(); m; m = m->next)
			if (table_of(c, m)->active)
				memset(table_of(c, m)->active, 0, active_size(m));
	}
	return image_table(c, &fentry_own) != 0;
}

/* profile_skipped forgets the calls whose slots are in [from, to): they were left by a jump. */
hidden void profile_skipped(struct control *c, u64 from, u64 to)
{
	for (const struct image *m = images_first(); m; m = m->next) {
		u64 *active = table_of(c, m)->active;
		for (u64 i = 1; active && i <= m->sites; i++)
			if (active[i] - from < to - from)
				active[i] = 0;
	}
}
