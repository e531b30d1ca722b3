/* The home: the one runtime of a process, where several images are traced.

   Two runtimes in a process would each map the shadow of the same stacks, and the second
   lose every call. So the first one that starts does all the work, and others, guests,
   register their image: from then on their fast paths use the same control blocks, and
   their slow paths are jumps to this one's.

   A guest has to find the home without a name to look up, as no loader need know either
   of them, and without asking the thread, as a thread may have no block yet, or be a
   forked child whose blocks are wiped. So a page at a fixed address says where the
   home is, to be read only. Programs do not have that address: no stack's shadow, and
   nothing that the kernel places, comes there. If one has, it has no guests.

   Refused is an image whose thunks call routines for something else than this process is
   traced for, and every image where threads have tables of counts: those have an entry a
   function of the home's image (profile.c). A refused image's switches stay off, and it
   runs untraced. On arm64 there are no guests at all (machine.h). */
#include "announce.h"
#include "configuration.h"
#include "costly.h"
#include "home.h"
#include "slow.h"
#include "source.h"
#include "stack.h"
#include "start.h"
#include "sys.h"

/* fits says whether the thunks of an image call routines that do what this process is
   traced for. Tables of counts are the home's. */
static int fits(const struct image_info *info)
{
	return info->magic == IMAGE_MAGIC && info->version == IMAGE_VERSION && info->mode == fentry_config.mode &&
	       !tables() && info->options == ((u32)extra_shadow() | (u32)clockless() << 1) && info->sites;
}

static struct image *register_image(const struct image_info *info, struct words *words)
{
	struct image *m = 0;
	struct sigset old = block();
	struct control *c = traced_thread();
	if (c && fits(info)) {
		i64 ids = allocate_ids(info->id, info->sites);
		if (ids >= 0)
			m = image_add(info, words, (u32)ids);
		if (m && !announce_images(c)) {
			image_remove(m);
			m = 0;
		}
		if (m)
			follow_from_start();
	}
	unblock(old);
	return m;
}

static void unregister_image(struct image *m)
{
	struct sigset old = block();
	struct control *c = traced_thread();
	image_remove(m);
	if (c)
		announce_images(c);
	unblock(old);
}

/* receive lets guests find this runtime. */
static void receive(void)
{
	i64 r = sys(SYS_mmap, HOME_PAGE, HOME_SIZE, PROT_RW, MAP_PRIVATE_ | MAP_ANON | MAP_FIXED_NOREPLACE_, -1, 0);
	if (r != (i64)HOME_PAGE) {
		if (!failed(r)) /* a kernel before 4.17, which takes the address for a hint */
			sys(SYS_munmap, r, HOME_SIZE, 0, 0, 0, 0);
		return;
	}
	*(struct home *)HOME_PAGE = (struct home){
		.magic = HOME_MAGIC, .version = HOME_VERSION, .size = sizeof(struct home),
		.enter = fentry_slow_enter, .exit = fentry_slow_exit, .record = fentry_slow_record,
		.register_image = register_image, .unregister_image = unregister_image,
	};
	sys(SYS_mprotect, HOME_PAGE, HOME_SIZE, PROT_READ_, 0, 0, 0);
}

/* fentry_begin starts the runtime of a program: sp is as for fentry_init. */
hidden void fentry_begin(u64 *sp)
{
	fentry_init(sp);
	if (GUESTS && images_armed())
		receive();
}
