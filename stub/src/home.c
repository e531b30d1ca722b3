/* The home: the one runtime of a process, where several images are traced.

   Two runtimes in a process would each map the shadow of the same stacks, and the second
   lose every call. So the first one that starts is the home and does all the work. Others
   are guests: they register their image, and from then on their fast paths use the home's
   control blocks, and their slow paths are the home's. Guests have fast paths of their own,
   as branches reach 2 GiB and libraries are farther apart. Which image is first depends on
   the process: a file is patched before anybody knows, so each brings all of the runtime.
   An executable that a recorder patches at its exec starts before the loader does; else
   libraries are relocated before what uses them, and one of them is the home.

   A guest has to find the home without a name to look up, as no loader need know either
   of them, and without asking the thread, as a thread may have no block yet, or be a
   forked child whose blocks are wiped. So a page at a fixed address says where the home
   is, to be read only. Whoever gets the page is the home: the kernel gives it to one.
   Programs do not have that address: no stack's shadow, and nothing that the kernel
   places, comes there. If one has, its first image has no guests, and no other is traced.

   Refused is an image whose thunks call routines for something else than this process is
   traced for. Its switches stay off, and it runs untraced. */
#include "act.h"
#include "announce.h"
#include "blocks.h"
#include "change.h"
#include "configuration.h"
#include "costly.h"
#include "exec.h"
#include "gomodule.h"
#include "home.h"
#include "life.h"
#include "place.h"
#include "say.h"
#include "slow.h"
#include "source.h"
#include "stack.h"
#include "start.h"
#include "sys.h"
#include "syscall.h"

/* misfit says why the thunks of an image do not suit what this process is traced for; 0:
   they do. */
static const char *misfit(const struct image_info *info)
{
	if (info->magic != IMAGE_MAGIC || info->version != IMAGE_VERSION)
		return "another version of fentry made it: ";
	/* Frames of the tracer profile always have more in their shadow. */
	u32 extra = fentry_config.mode != MODE_PROFILE && extra_shadow();
	u32 options = (info->options & ~OPTIONS_FLAT) | (extra && extra_late()); /* as those that were there before */
	if (info->mode != fentry_config.mode || options != (extra | (u32)clockless() << 1))
		return "its tracer or options are others than those of the process: ";
	return 0;
}

/* findable sees to it that the fast paths of an image can find blocks: by a word of its own, or
   else by the table, where the control base is not for it. */
static int findable(const struct words *words)
{
	if (words->word)
		return !has_base();
	return !OWN_BASE || share_base();
}

static LANDS void register_image(const struct image_info *info, struct words *words)
{
	struct sigset old = block();
	struct control *c = traced_thread();
	const char *why = c ? misfit(info) : 0;
	if (why)
		say("an image is not traced, because ", why, info->path, 0);
	i64 ids = c && !why && findable(words) ? allocate_ids(info->id, info->sites) : -1;
	int same = 0, ok = 0;
	struct image *m = ids >= 0 ? image_add(info, words, (u32)ids, &same) : 0;
	if (m) {
		if (words->word) {
			blocks_bases();
			set_word(words->word);
			publish(c);
		}
		announce_joined(c);
		int told = same && !extra_late() && !load(&fentry_switched);
		if (!told)
			announce_image(c, info, m);
		if (told || announce_images(c)) {
			if (extra_late() && !(info->options & 1))
				image_hold(m); /* until the recorder has led its routines to those that know of limits */
			image_begin(m);
			follow_from_start();
			ok = 1;
		}
	}
	if (!ok && !why)
		words->self = 0; /* it says nothing more, and its functions stay off */
	if (!ok && m)
		m->at = 0;
	unblock(old);
}

static LANDS void stage(struct image *m, u32 stage)
{
	struct sigset old = block();
	image_stage(m, stage);
	if (stage == IMAGE_HERE)
		follow_from_start(); /* what was switched off while it came */
	unblock(old);
}

/* claim maps the page that makes this image the home. It returns a system call's result. */
static i64 claim(void)
{
	i64 r = sys(SYS_mmap, HOME_PAGE, HOME_SIZE, PROT_RW, MAP_PRIVATE_ | MAP_ANON | MAP_FIXED_NOREPLACE_, -1, 0);
	if (!failed(r) && r != (i64)HOME_PAGE) { /* a kernel before 4.17, which takes the address for a hint */
		sys(SYS_munmap, r, HOME_SIZE, 0, 0, 0, 0);
		return -EEXIST_;
	}
	return r;
}

/* receive lets guests find this runtime. */
static void receive(void)
{
	struct home *h = (struct home *)HOME_PAGE;
	h->version = HOME_VERSION;
	h->size = sizeof *h;
	h->register_image = register_image;
	h->images = images_list();
	h->armed = &fentry_armed;
	h->silent = &fentry_silent;
	if (CHANGES) {
		h->remote = fentry_remote;
		h->change = fentry_change;
	}
	h->stage = stage;
	h->switched = &fentry_switched;
	store(&h->magic, MEETING_MAGIC);
	sys(SYS_mprotect, HOME_PAGE, HOME_SIZE, PROT_READ_, 0, 0, 0);
}

/* join registers this image with the home. It returns 0 where there is none. */
static int join(void)
{
	const struct home *h = (const struct home *)HOME_PAGE;
	if (!readable(HOME_PAGE) || h->magic != MEETING_MAGIC)
		return 0;
	if (h->version == HOME_VERSION && h->size >= offsetof(struct home, images))
		h->register_image(&fentry_image, &fentry_words);
	else
		say("an image is not traced, because another version of fentry traces its process: ", fentry_image.path, 0, 0);
	return 1;
}

/* has_runtime says whether this thread has a block of another image, which could not become
   the home. */
static int has_runtime(void)
{
	if (OWN_BASE)
		return !has_base(); /* the executable's would be found by its word alone */
	u64 base = control_base();
	return base && base % 4096 == 0 && readable(base) && *(u64 *)(base + CB_SELF) == base;
}

/* home_begin starts the runtime of an image, or joins the one that is there. */
hidden void home_begin(u64 *sp)
{
	fentry_words.enter = fentry_home_enter_routine;
	fentry_words.exit = fentry_home_exit_routine;
	fentry_words.record = fentry_home_record_routine;
	fentry_words.act = fentry_home_act_routine;
	fentry_words.act_exit = fentry_home_act_exit_routine;
	fentry_words.place = fentry_home_place_routine;
	fentry_words.word = own_word();
	fentry_words.syscall = fentry_slow_syscall;
	if (SETTLES)
		fentry_words.settle = fentry_slow_settle;
	if (claim() == (i64)HOME_PAGE) {
		fentry_init(sp);
		receive();
	} else if (!join()) {
		if (has_runtime())
			say("an image is not traced, because the process uses the address where images meet: ",
			    fentry_image.path, 0, 0);
		else
			fentry_init(sp);
	}
}

/* fentry_begin starts the runtime of an image, or joins the one that is there: sp is as for
   fentry_init. The second time, at the entry point, it has started. */
hidden void fentry_begin(u64 *sp)
{
	static u32 begun;
	int again = swap(&begun, 1) != 0;
	if (!again) {
		link_module();
		home_begin(sp);
		if (is_off())
			restore_code();
	}
	if (FOLLOWS)
		follow_programs(sp, again || !fentry_config.session[0]);
}

/* tell tells the home how far this image is, if it is a guest. That one which has joined stays, and whether it is there is not
   asked at the end: the process may have forbidden itself that, which only the home knows. */
static void tell(u32 stage)
{
	const struct home *h = (const struct home *)HOME_PAGE;
	struct image *m = fentry_words.self;
	if (m && m != &fentry_own && (stage == IMAGE_GOES || readable(HOME_PAGE)) && h->magic == MEETING_MAGIC &&
	    h->version == HOME_VERSION)
		h->stage(m, stage);
}

/* library_begins is called when a shared object is initialised, and library_ends when it is finalised. */
hidden void fentry_library_begins(void)
{
	fentry_begin(0);
	tell(IMAGE_HERE);
}

hidden void fentry_library_ends(void) { tell(IMAGE_GOES); }

/* home_leave gives the page back that made this image the home. */
hidden void home_leave(void)
{
	const struct home *h = (const struct home *)HOME_PAGE;
	if (readable(HOME_PAGE) && h->magic == MEETING_MAGIC && h->register_image == register_image)
		sys(SYS_munmap, HOME_PAGE, HOME_SIZE, 0, 0, 0, 0);
}
