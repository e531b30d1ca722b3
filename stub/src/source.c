/* Where chunks come from: a recorder's pool, or a file. There is one a process, and it
   is closed for good when tracing ends.

   Fast paths do not look here: they go on in the chunk they have, and find out when it
   is full. So the end of tracing needs no other thread to be stopped. */
#include "image.h"
#include "say.h"
#include "source.h"

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
	if (was && why)
		say("tracing stopped: ", why, 0, err);
}

/* only_count goes on without a trace to write to: what is lost is counted. */
hidden void only_count(i64 err)
{
	if (swap(&source.kind, CLOSED) != CLOSED)
		say("the trace ends here, what follows is lost", 0, 0, err);
}
