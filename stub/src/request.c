/* Requests to the recorder, for whose answers the program waits: besides chunks, the
   only way from here to there.

   There is one slot in the header of the pool, or of a file that the recorder does not write to itself. One word holds the number of the request and its
   state. The word changes only by compare-and-swap from the value seen there, so a thread
   that is stopped or killed at any point blocks the others only briefly: the recorder frees
   a slot that has not moved for a while, and whoever comes back too late finds the word
   changed. Every request has a number of its own. A thread's id in its place would be the
   same again when a thread asks once more after its time was up, or for threads of two PID
   namespaces: the recorder would then give one the answer to the other.

   The program never waits longer than the time limit, and continues without an answer:
   what it asks for makes the trace better, but nothing depends on it. On a busy machine a
   recorder can be slow, and is waited for; not for one that is dead, and for one that is
   stopped only by the first request that it does not answer. Nothing here calls libc,
   because the caller may hold any lock. */
#include "filter.h"
#include "pool.h"
#include "process.h"
#include "request.h"
#include "source.h"
#include "sys.h"

#define SLICE    100000000UL  /* ns: how long to wait until the recorder is looked for */
#define PATIENCE 3000000000UL /* ns: how long to wait for one that lives */

/* give_up says whether it is no use to wait any longer for a recorder that has not answered
   for a slice of time. */
static int give_up(u64 waited)
{
	return waited >= PATIENCE || load(HEADER(u32, FT_H_SILENT)) == load(HEADER(u32, FT_H_HEARTBEAT)) + 1 ||
	       (source.kind == POOL && recorder_is_dead());
}

/* wait_change waits until the word is no longer what it was. It returns 0 when it has waited
   for long enough. Only time that the thread has asked to sleep counts, not what it was late
   to wake: on a machine that is so busy, the recorder is late as well. */
static int wait_change(u32 *word, u32 was, u64 *waited)
{
	u64 into = *waited % SLICE, from = clock_ns(CLOCK_MONOTONIC_);
	futex_wait(word, was, SLICE - into);
	u64 slept = clock_ns(CLOCK_MONOTONIC_) - from;
	*waited += slept < SLICE - into ? slept : SLICE - into;
	if (load(word) != was || *waited % SLICE || !give_up(*waited))
		return 1;
	store(HEADER(u32, FT_H_SILENT), load(HEADER(u32, FT_H_HEARTBEAT)) + 1);
	return 0;
}

/* move changes the word from one value to another and wakes those who wait. It returns 0
   if it had another value. */
static int move(u32 *word, u32 from, u32 to)
{
	if (!cas(word, from, to))
		return 0;
	futex_wake(word, 1 << 30);
	return 1;
}

/* request_server is the process id of the recorder that answers; 0: nobody does, or the program has forbidden itself some of
   what it takes to ask. */
hidden u32 request_server(void)
{
	if (load(&fentry_forbids))
		return 0;
	return source.kind == POOL ? *HEADER(u32, FT_H_RECORDER) : source.kind == FILE ? *HEADER(u32, FT_H_SERVER) : 0;
}

/* request_value sends a request and returns the recorder's answer, and the value that came
   with it. */
hidden u32 request_value(u32 kind, u64 argument, u64 *value)
{
	*value = 0;
	if (!request_server())
		return FT_ANSWER_NONE;
	u32 *word = HEADER(u32, FT_H_REQUEST), mine, w;
	u64 waited = 0, ns = pid_namespace();
	for (;;) {
		w = load(word);
		mine = (w & ~(u32)FT_REQUEST_MASK) + (1U << FT_REQUEST_SHIFT);
		if ((w & FT_REQUEST_MASK) != FT_REQUEST_FREE) {
			if (!wait_change(word, w, &waited))
				return FT_ANSWER_NONE;
		} else if (cas(word, w, mine | FT_REQUEST_TAKEN))
			break;
	}
	*HEADER(u32, FT_H_REQUEST_KIND) = kind;
	*HEADER(u32, FT_H_REQUEST_PID) = getpid();
	*HEADER(u64, FT_H_REQUEST_NS) = ns;
	*HEADER(u64, FT_H_REQUEST_ARGUMENT) = argument;
	if (!move(word, mine | FT_REQUEST_TAKEN, mine | FT_REQUEST_ASKED))
		return FT_ANSWER_NONE;
	while ((w = load(word)) == (mine | FT_REQUEST_ASKED))
		if (!wait_change(word, w, &waited) && move(word, w, mine | FT_REQUEST_FREE))
			return FT_ANSWER_NONE;
	if (w != (mine | FT_REQUEST_ANSWERED))
		return FT_ANSWER_NONE;
	u32 answer = *HEADER(u32, FT_H_REQUEST_ANSWER);
	*value = *HEADER(u64, FT_H_REQUEST_ARGUMENT);
	move(word, w, mine | FT_REQUEST_FREE);
	return answer;
}

/* request is request_value for those that have none. */
hidden u32 request(u32 kind, u64 argument)
{
	u64 none;
	return request_value(kind, argument, &none);
}
