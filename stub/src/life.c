/* Whether the memory of images is there.

   A loader unmaps a library when the program has closed it, without a word, or when loading it has
   failed, and then nothing of it has run but the relocation by which it has registered. So
   an image says itself how far it is: it COMES when it is relocated, is HERE from its initialisation
   on, and GOES from its finalisation on, which comes when it is unloaded, and when the process ends: then
   its functions are still called.

   Its functions are traced all that time, as whoever calls one knows that it is there. Only the memory of
   images that are HERE is touched in the name of others, between images_use and images_used: an image that
   GOES waits until nobody does. As a fork can come at any moment, who does is counted for one process;
   and as a thread can be stopped at any moment, nobody waits for long. */
#include "life.h"
#include "process.h"
#include "sys.h"

#define PATIENCE 1000000000UL /* ns */

static u64 users; /* how many threads use images' memory, and in the high half of which process */

/* image_there says whether an image is where it was, for whoever has an address of it: then it does not
   go at this moment. */
hidden int image_there(const struct image *m)
{
	const struct image_info *info = (const struct image_info *)m->at;
	return load(&m->stage) == IMAGE_HERE ||
	       (readable(m->at) && readable((u64)&info->id) && info->magic == IMAGE_MAGIC && info->id == m->id);
}

hidden void images_use(void)
{
	u64 pid = (u64)getpid() << 32, w;
	do
		w = load(&users);
	while (!cas(&users, w, ((w ^ pid) >> 32 ? pid : w) + 1));
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

hidden void images_used(void)
{
	u64 pid = (u64)getpid() << 32, w;
	do
		w = load(&users);
	while (!((w ^ pid) >> 32) && (u32)w && !cas(&users, w, w - 1));
}

/* images_unused returns when nobody uses the memory of an image that was HERE. */
hidden void images_unused(void)
{
	u64 pid = (u64)getpid() << 32, w, from = clock_ns(CLOCK_MONOTONIC_);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	while (w = load(&users), (u32)w && !((w ^ pid) >> 32) && clock_ns(CLOCK_MONOTONIC_) - from < PATIENCE)
		sys(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
}
