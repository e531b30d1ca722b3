/* A guest: an image whose process has a runtime already, the home (home.c). It has thunks
   and fast paths of its own, as branches reach 2 GiB and libraries are farther apart, and
   the words those look at. What they cannot do, the home does. */
#include "home.h"
#include "sys.h"

hidden int fentry_join(void);
hidden void fentry_leave(void);

/* What guest-slow.S jumps through: the home's. */
hidden int (*fentry_home_enter)(u64 slot, u32 id, struct image *m, u64 ret, u64 fp);
hidden u64 (*fentry_home_exit)(u64 slot, u32 id, struct image *m);
hidden struct control *(*fentry_home_record)(void);

static const struct home *home;
static struct image *joined;

/* find_home returns the home of this process, 0 if it has none. */
static const struct home *find_home(void)
{
	const struct home *h = (const struct home *)HOME_PAGE;
	i64 r = sys(SYS_mmap, h, HOME_SIZE, 0, MAP_PRIVATE_ | MAP_ANON | MAP_FIXED_NOREPLACE_, -1, 0);
	if (!failed(r))
		sys(SYS_munmap, r, HOME_SIZE, 0, 0, 0, 0);
	if (r == (i64)h)
		return 0; /* there was nothing */
	/* Something is there that may not be readable: the kernel reads the set before it
	   refuses the operation. */
	if (sys(SYS_rt_sigprocmask, -1, h, 0, 8, 0, 0) != -EINVAL_)
		return 0;
	return h->magic == HOME_MAGIC && h->version == HOME_VERSION && h->size >= sizeof *h ? h : 0;
}

/* fentry_join registers this image. It returns 0 when it is not traced: there is no
   home, or what that does is not what the thunks are made for. */
hidden int fentry_join(void)
{
	home = find_home();
	if (!home)
		return 0;
	fentry_home_enter = home->enter;
	fentry_home_exit = home->exit;
	fentry_home_record = home->record;
	joined = home->register_image(&fentry_image, &fentry_words);
	return joined != 0;
}

/* fentry_leave is for an image that is about to be unmapped. */
hidden void fentry_leave(void)
{
	if (joined)
		home->unregister_image(joined);
	joined = 0;
}
