/* A thread goes on in its next chunk without entering the kernel.

   A slow path keeps signals away, which takes two system calls, and so do the thread's name and the recorder that is to be
   woken: of a call without a clock, of 17 cycles, that is three. So a thread that fills chunks quickly takes some at once,
   which lie one behind the other, and writes their headers (take_ahead in chunk.c). Numbers of events go by addresses, so
   theirs follow each other as well, and to go on in the next chunk is to move next and end: one instruction does both. Until
   then, nothing has changed; from then on, all has. So a signal handler can come anywhere, and do anything, also the same.

   That instruction compares what next and end were. If a handler has changed them, it fails, and whoever comes from a fast
   path tries again there. If they are what they were, the thread is at the end of that same chunk, and end says that there is
   a prepared one behind it: so it is right to go on there, whatever has happened meanwhile.

   A full chunk has no slot that is never written: a recorder would wait for it. So the last few words are reserved first, as
   for an event, and become a record that says nothing, by one store. Everything else that belongs to a change is done by the next slow
   path (catch_up in chunk.c): the chunks left behind are handed over, and the recorder is woken. It is never far away: there
   are few chunks, and they are given up when numbers are late, when the recorder wants something, or a thread's
   name, stack or losses, which headers say, are others. */
#include "ahead.h"
#include "chunk.h"
#include "costly.h"
#include "source.h"

/* undisturbed says whether there is nothing that a slow path should look at. */
static int undisturbed(void)
{
	return load(&source.kind) == POOL && !load(HEADER(u32, FT_H_CLOSED)) && !load(HEADER(u32, FT_H_SCARCE)) &&
	       !recorder_wants();
}

/* go_ahead goes on in the chunk that is prepared, with signals as they are. It returns 0 if that is for a slow path. */
hidden int go_ahead(struct control *c)
{
	u64 end = load(&c->end), next = load(&c->next), left = end & AHEAD_LEFT, size = source.chunk_size;
	u64 to = end - left + 8 + AHEAD_ROOM, begin = to + FT_CHUNK_HEADER;
	u32 order = load(&c->order);
	if (!left || next < to - AHEAD_ROOM || next > to - AHEAD_ROOM + 8)
		return 0;
	if ((i32)((u32)counter() - ((u32)begin + order)) > LATE + load(&later) || !undisturbed())
		return 0;
	if (!own_cas(&c->next, next, to))
		return 1;
	u32 rest = FT_RECORD_BASE | FT_REC_SYNC << FT_RECORD_TYPE_SHIFT | ((u32)(to - next) / 8 - 1);
	store((u64 *)next, (u64)rest << 32 | ((u32)next + order));
	own_cas_pair(&c->next, to, end, begin, left > 1 ? ahead_end(to, size, left - 1) : to + size - 8);
	return 1;
}
