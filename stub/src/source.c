/* Where chunks come from: a recorder's pool, or a file. There is one a process, and it
   is closed for good when tracing ends.

   Fast paths do not look here: they go on in the chunk they have, and find out when it
   is full. So the end of tracing needs no other thread to be stopped. */
#include "filter.h"
#include "image.h"
#include "machine.h"
#include "say.h"
#include "source.h"
#include "sys.h"

hidden struct source source;

/* header_ok says whether a header page is one that this runtime can write behind. */
hidden int header_ok(const u8 *h)
{
	u32 size = *(u32 *)(h + FT_H_CHUNK_SIZE);
	return *(u64 *)(h + FT_H_MAGIC) == FT_FILE_MAGIC && *(u32 *)(h + FT_H_VERSION) == FT_VERSION &&
	       size >= 4096 && size <= 16 << 20 && (size & (size - 1)) == 0 && *(u32 *)(h + FT_H_LAYOUT) == FT_LAYOUT_SLOTS;
}

/* stop_tracing ends tracing in this process for good. The first one gives the reason. */
hidden void stop_tracing(const char *why, i64 err)
{
	int was = images_arm(0);
	source.kind = CLOSED;
	if (!was || !why)
		return;
	uncounted(1);
	say("tracing stopped: ", why, 0, err);
}

/* only_count goes on without a trace to write to: what is lost is counted. */
hidden void only_count(i64 err)
{
	if (swap(&source.kind, CLOSED) != CLOSED)
		say("the trace ends here, what follows is lost", 0, 0, err);
}

/* uncounted says in the trace that from now on events are lost that nobody counts, in n
   more places; or, with n below 0, that in so many they are counted now. */
hidden void uncounted(i32 n)
{
	if (!source.header)
		return;
	cas(HEADER(u64, FT_H_UNCOUNTED_FROM), 0, counter());
	add(HEADER(u32, FT_H_UNCOUNTED), (u32)n);
}

/* watch_filters looks whether a system call, of which a has the first three arguments, installs a filter. In strict mode,
   which leaves no call for the mask of signals, nor the clock, tracing ends. */
hidden int watch_filters(u64 nr, const u64 *a)
{
	int comes = filter_comes(nr, a);
	if (comes == STRICT && images_arm(0))
		uncounted(1);
	return comes != NO_FILTER;
}

/* allocate_ids returns what is to be added to an image's local ids, 1 to count, for ids
   that are unique in the trace, or -1 if there are none left. The header has a table of
   ranges, to which all processes of the trace add without a lock: an entry is taken by
   setting first id and count at once, and then says whose it is. An image has the same
   range in all of them. Without a table, the home's ids are its local ones. */
hidden i64 allocate_ids(u64 image, u32 count)
{
	u32 off = source.header ? *HEADER(u32, FT_H_RANGES) : 0, room = off ? *HEADER(u32, FT_H_RANGES_ROOM) : 0;
	u64 next = 1;
	if (!count)
		return 0; /* its system calls are recorded, which have none */
	if (!off)
		return images_first() ? -1 : 0;
	if (off % 8 || off > source.header_size || room > (source.header_size - off) / FT_RANGE_ENTRY)
		return -1;
	for (u32 i = 0; i < room; i++) {
		u8 *e = source.header + off + i * FT_RANGE_ENTRY;
		u64 *range = (u64 *)(e + FT_R_FIRST), v = load(range);
		if (!v && next + count - 1 > FT_ID_MAX)
			break;
		if (!v) {
			if (cas(range, 0, next | (u64)count << 32)) {
				store((u64 *)(e + FT_R_IMAGE), image);
				return (i64)next - 1;
			}
			v = load(range);
		}
		if (v >> 32 == count && (u32)v && load((u64 *)(e + FT_R_IMAGE)) == image)
			return (u32)v - 1;
		next = (u32)v + (v >> 32);
	}
	say("an image is not traced: the trace has no ids left", 0, 0, 0);
	return -1;
}
_Static_assert(FT_R_FIRST % 8 == 0 && FT_R_COUNT == FT_R_FIRST + 4, "set at once");

/* pair reads the clock, and the counter at about that moment: of eight readings the one
   with the least counter time around it, since a thread can be held up at any of them.
   It returns the clock in ns. */
static u64 pair(u64 *at)
{
	u64 t = 0, least = ~(u64)0;
	for (int i = 0; i < 8; i++) {
		u64 before = counter(), now = clock_ns(CLOCK_MONOTONIC_), width = counter() - before;
		if (width >= least)
			continue;
		least = width;
		*at = before + width / 2;
		t = now;
	}
	return t;
}

/* counter_hz is how many times a second the counter ticks: what the trace says, or
   measured, to 1 in 10000 or so, and once: all threads can be stopped meanwhile. */
hidden u64 counter_hz(void)
{
	static u64 measured;
	u64 hz = source.header ? *HEADER(u64, FT_H_COUNTER_HZ) : 0;
	if (!hz)
		hz = counter_frequency();
	if (hz || (hz = load(&measured)))
		return hz;
	u64 c0, c1, t0 = pair(&c0), t;
	do
		t = pair(&c1);
	while (t - t0 < 1000000);
	hz = (c1 - c0) * 1000000 / (t - t0) * 1000;
	store(&measured, hz);
	return hz;
}
