/* The images of this process whose functions are traced: the one that this runtime came
   with, and others that have registered with it.

   Fast paths know their own image only, by words at a fixed distance. Slow ones look an
   image up by the address of a thunk, in a table sorted by address, which is replaced as
   a whole when an image comes. So readers need no lock, a fork at any moment leaves a
   table that is whole, and an old table is never unmapped: somebody may be reading it. It
   is a page for every 510 images. Images do not go: a loader that unmaps one does not say
   whether the process goes on, so those that it might unmap are marked to stay (package
   patch).

   A function has a byte that its thunk tests: bit 0 is derived, and says that its calls
   are traced; others but SWITCH_SLOW and SWITCH_ACTS say why they are not. So zeroed memory is off,
   and tracing ends with a store a function and no look at any thread. Frames that are open then
   are closed by their exits as ever. While tracing pauses, functions that have actions are on
   (act.c): one of them may make it go on. */
#include "configuration.h"
#include "control.h"
#include "image.h"
#include "say.h"
#include "sys.h"
#include "text.h"

hidden struct image fentry_own;    /* the image of this runtime */
static struct image *newest;
static void (*home_syscall)(struct sysregs *r, int exit);
static u32 tabled;     /* images that threads have tables of, beside the one at CB_TABLE */
static u32 executable; /* base of the image that fast paths find blocks for by the control base */
enum { OFF = ARMED_OFF, ON = ARMED_ON, PAUSED = ARMED_PAUSED };
hidden u32 fentry_armed; /* one of these; the classic tracer, which has no switches and no pauses, looks here */
hidden u32 fentry_silent; /* not 0: system calls are not traced */

/* The images by the addresses of their thunks. */
static struct images {
	u64 n;
	struct images *before; /* the table that this one has replaced */
	struct image *at[];
} *images;

static u64 table_size(u64 n) { return sizeof(struct images) + n * sizeof(struct image *); }

/* enter_image adds an image to the table. It returns 0 where there is no memory. */
static int enter_image(struct image *m)
{
	for (;;) {
		struct images *old = load(&images), *t;
		u64 n = old ? old->n : 0, k = 0;
		t = map_private(table_size(n + 1));
		if (!t)
			return 0;
		for (u64 i = 0; i < n; i++)
			if (old->at[i]->thunks <= m->thunks)
				t->at[k++] = old->at[i];
		t->at[k] = m;
		while (k++ < n)
			t->at[k] = old->at[k - 1];
		t->n = k;
		t->before = old;
		if (cas(&images, old, t))
			return 1;
		sys(SYS_munmap, t, table_size(n + 1), 0, 0, 0, 0);
	}
}

/* set_switches derives bit 0 of all of an image's switches: eight at a time, as there is
   room for whole words. A bit that another thread changes meanwhile is kept. */
static void set_switches(struct image *m, u32 armed)
{
	enum { HARMLESS = SWITCH_SLOW | SWITCH_ACTS };
	static const u64 ones = 0x0101010101010101, bits = SWITCH_ON * ones;
	u64 *w = (u64 *)m->switches;
	store(&m->words->syscall, armed == ON && !load(&fentry_silent) ? home_syscall : 0);
	for (u32 i = 0; w && i < m->sites; i += 8, w++) {
		u64 was, now;
		do {
			was = load(w);
			now = was & ~bits;
			if (armed == ON && !(now & ~(HARMLESS * ones)))
				now |= bits;
			else
				for (u32 k = 0; armed != OFF && now && k < 64; k += 8)
					if (!(now >> k & 0xff & ~HARMLESS) && (armed == ON || now >> k & SWITCH_ACTS))
						now |= (u64)SWITCH_ON << k;
		} while (was != now && !cas(w, was, now));
	}
}

/* follow_armed sets the switches of all images, or of m if it is not 0. Threads may arm and disarm at
   once, so it goes on until what it has set is what is wanted: then whoever changes that comes later. */
static void follow_armed(struct image *m)
{
	u32 armed;
	do {
		struct images *t = load(&images);
		armed = load(&fentry_armed);
		for (u64 i = 0; !m && t && i < t->n; i++)
			set_switches(t->at[i], armed);
		if (m)
			set_switches(m, armed);
	} while (armed != load(&fentry_armed));
}

/* images_switch_off switches a function off for good, by its id in the trace, because recording
   it costs too much. Calls that are open end as ever. What functions have actions for goes on. */
hidden void images_switch_off(u32 id)
{
	struct images *t = load(&images);
	for (u64 i = 0; t && i < t->n; i++) {
		struct image *m = t->at[i];
		u32 local = id - m->base - 1;
		if (!m->switches || local >= m->sites || m->switches[local] & SWITCH_ACTS)
			continue;
		__atomic_fetch_or(&m->switches[local], SWITCH_COSTLY, __ATOMIC_ACQ_REL);
		clear_bits(&m->switches[local], (u8)SWITCH_ON);
	}
}

/* set_slow tells thunks that look at the control base themselves, those that count, to look
   there no more. */
static void set_slow(struct image *m)
{
	for (u32 i = 0; m->switches && i < m->sites; i++)
		__atomic_fetch_or(&m->switches[i], SWITCH_SLOW, __ATOMIC_ACQ_REL);
}

/* place_tables returns where the tables of a new image are in blocks (profile.c); 0: nowhere,
   as there are too many. */
static u32 place_tables(const struct image_info *info)
{
	if (!tables() || (OWN_BASE ? !info->library : !load(&newest)))
		return CB_TABLE;
	u32 i = add(&tabled, 1);
	if (i < MOST_TABLED)
		return (u32)(offsetof(struct control, tables) + i * sizeof(struct table));
	say("an image is not traced, because the process has too many whose calls are counted: ", info->path, 0, 0);
	return 0;
}

/* image_add adds an image, whose ids begin behind base. words are what its fast paths look
   at, which are this home's own as far as they are about the process. Its functions are
   not traced yet. It returns 0 where there is no memory. */
hidden struct image *image_add(const struct image_info *info, struct words *words, u32 base)
{
	u64 a = (u64)info;
	u32 at = place_tables(info);
	struct image *m = load(&newest) ? map_private(sizeof *m) : &fentry_own;
	if (!m || !at)
		return 0;
	m->id = info->id;
	m->sites = info->sites;
	m->base = base;
	m->bias = a - info->address;
	m->loaded = counter();
	m->words = words;
	m->at = a;
	m->code = a - info->before;
	m->code_size = info->runtime;
	m->detours = info->detours ? a + (u64)info->detours : 0;
	m->thunks = info->thunks ? a + (u64)info->thunks : 0;
	m->size = info->thunks ? (u64)info->sites * THUNK_SIZE : 0;
	m->switches = info->switches ? (u8 *)a + info->switches : 0;
	m->roots = info->roots ? (u8 *)a + info->roots : 0;
	m->without = info->without ? (u8 *)a + info->without : 0;
	m->table = info->table ? (u8 *)a + info->table : 0;
	m->unwind = info->unwind ? (const u8 *)(a + (u64)info->unwind) : 0;
	if (info->actions) {
		m->actions = (const struct action *)(a + (u64)info->actions);
		m->nactions = info->actions_count;
		m->counts = (u32 *)(a + (u64)info->counts);
	}
	for (u32 i = 0; m->switches && i < m->nactions; i++)
		m->switches[m->actions[i].id - 1] |= SWITCH_ACTS;
	*words = (struct words){
		fentry_words.blocks, m->thunks, m->size, m->roots, fentry_words.threshold, m, fentry_words.depth, base,
		fentry_words.enter, fentry_words.exit, fentry_words.record, 0, fentry_words.settle, words->word,
		fentry_words.act, fentry_words.act_exit, at,
	};
	if (!info->library)
		store(&executable, base);
	if (!enter_image(m))
		return 0;
	while (!cas(&newest, m->next = load(&newest), m))
		;
	/* Whoever gave up the control base may not have seen the image. */
	store(&words->blocks, load(&fentry_words.blocks));
	if (words->blocks || (tables() && at != CB_TABLE))
		set_slow(m);
	return m;
}

/* image_begin traces the functions of an image that was added, if others are. */
hidden void image_begin(struct image *m)
{
	follow_armed(m); /* whoever ends tracing may be too early for it */
}

/* image_hold switches the functions of a new image off until the recorder comes to it. */
hidden void image_hold(struct image *m)
{
	for (u32 i = 0; m->switches && i < m->sites; i++)
		__atomic_fetch_or(&m->switches[i], SWITCH_FILTERED, __ATOMIC_ACQ_REL);
}

static u64 roots_size(const struct image *m) { return m->sites / 8 + 1; }

/* image_roots has copied which of an image's functions are graph roots from now on, as no thread looks; 0: all are.
   It returns 0 where there is no memory. */
hidden int image_roots(struct image *m, const u8 *bitmap)
{
	u8 *copy = bitmap ? map_private(roots_size(m)) : 0;
	if (bitmap && !copy)
		return 0;
	for (u64 i = 0; copy && i < roots_size(m); i++)
		copy[i] = bitmap[i];
	if (m->changed_roots)
		sys(SYS_munmap, m->changed_roots, roots_size(m), 0, 0, 0, 0);
	m->changed_roots = copy;
	m->roots = m->words->roots = copy;
	return 1;
}

/* images_base is where the ids of the executable begin, as CB_ID_BASE has it. */
hidden u32 images_base(void) { return load(&executable); }

/* images_list is where a recorder finds the images. */
hidden struct image **images_list(void) { return &newest; }

/* images_first returns the image that registered last; the others are behind next. */
hidden struct image *images_first(void) { return load(&newest); }

/* image_returns_to finds the function whose body returns to an address, which is in its
   thunk: the call that is there has been replaced by a tail call. */
hidden int image_returns_to(u64 ret, struct function *f)
{
	struct images *t = load(&images);
	if (ret % THUNK_SIZE != THUNK_RET || !t)
		return 0;
	u64 lo = 0, hi = t->n; /* the first one whose thunks are above ret */
	while (lo < hi) {
		u64 mid = lo + (hi - lo) / 2;
		if (t->at[mid]->thunks <= ret)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == 0 || ret - t->at[lo - 1]->thunks >= t->at[lo - 1]->size)
		return 0;
	f->image = t->at[lo - 1];
	f->id = (u32)((ret - f->image->thunks) / THUNK_SIZE) + 1;
	return 1;
}

/* image_function finds the function that begins at an address, if it is traced. Rows are in the order of sites,
   of which a function has one at its beginning or behind. */
hidden int image_function(u64 addr, struct function *f)
{
	enum { BASE = 16, ROWS = 24, ROW = 8 };
	struct images *t = load(&images);
	for (u64 i = 0; t && i < t->n; i++) {
		const struct image *m = t->at[i];
		u64 from = addr - m->bias - (m->table ? *(const u64 *)(m->table + BASE) : 0);
		if (!m->table || from >> 32)
			continue;
		u32 lo = 0, hi = m->sites; /* the first one whose site is there or behind */
		while (lo < hi) {
			u32 mid = lo + (hi - lo) / 2;
			if (*(const u32 *)(m->table + ROWS + (u64)mid * ROW + 4) < from)
				lo = mid + 1;
			else
				hi = mid;
		}
		if (lo == m->sites || *(const u32 *)(m->table + ROWS + (u64)lo * ROW) != from)
			continue;
		*f = (struct function){ t->at[i], lo + 1 };
		return 1;
	}
	return 0;
}

/* images_syscalls says what the slow path of system calls is. */
hidden void images_syscalls(void (*slow)(struct sysregs *r, int exit)) { home_syscall = slow; }

hidden int images_armed(void) { return load(&fentry_armed) == ON; }

hidden int images_paused(void) { return load(&fentry_armed) == PAUSED; }

/* images_arm begins tracing in all images, or ends it. It returns how it was. */
hidden int images_arm(int on)
{
	int was = swap(&fentry_armed, on ? ON : OFF) != OFF;
	follow_armed(0);
	return was;
}

/* images_pause has tracing pause in all images, or go on. It returns 0 if that changes nothing. */
hidden int images_pause(int pause)
{
	if (!cas(&fentry_armed, pause ? ON : PAUSED, pause ? PAUSED : ON))
		return 0;
	follow_armed(0);
	return 1;
}

/* images_share_base gives up the control base, for good and in all images: blocks are in
   table t. It returns 0 if another thread has done it. */
hidden int images_share_base(struct control **t)
{
	if (!cas(&fentry_words.blocks, (struct control **)0, t))
		return 0;
	struct images *all = load(&images);
	for (u64 i = 0; all && i < all->n; i++) {
		store(&all->at[i]->words->blocks, t);
		set_slow(all->at[i]);
	}
	return 1;
}

/* images_leave forgets all images, and unmaps what is known of them. */
hidden void images_leave(void)
{
	for (struct image *m = newest, *next; m; m = next) {
		next = m->next;
		image_roots(m, 0);
		if (m != &fentry_own)
			sys(SYS_munmap, m, sizeof *m, 0, 0, 0, 0);
	}
	for (struct images *t = images, *before; t; t = before) {
		before = t->before;
		sys(SYS_munmap, t, table_size(t->n), 0, 0, 0, 0);
	}
	images = 0;
	newest = 0;
}
