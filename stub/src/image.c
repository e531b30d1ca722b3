/* The images of this process whose functions are traced: the one that this runtime came
   with, and others that have registered with it.

   Fast paths know their own image only, by words at a fixed distance. Slow ones look an
   image up by the address of a thunk, in a table sorted by address, which is replaced as
   a whole when an image comes. So readers need no lock, and a fork at any moment leaves a
   table that is whole. Images can go (life.c), and come again: then what is known
   of them is used again, and if they are where they were, the table stays.

   A function has a byte that its thunk tests: bit 0 is derived, and says that its calls
   are traced; others but SWITCH_SLOW and SWITCH_ACTS say why they are not. So zeroed memory is off,
   and tracing ends with a store a function and no look at any thread. Frames that are open then
   are closed by their exits as ever. While tracing pauses, functions that have actions are on
   (act.c): one of them may make it go on. */
#include "configuration.h"
#include "control.h"
#include "image.h"
#include "life.h"
#include "process.h"
#include "say.h"
#include "sys.h"
#include "text.h"

hidden struct image fentry_own;    /* the image of this runtime */
static struct image *newest;
static u32 tabled;     /* images that threads have tables of, beside the one at CB_TABLE */
static u32 executable, entering; /* CB_ID_BASE and CB_ID_ENTER of the image that fast paths find blocks for by the control base */
enum { OFF = ARMED_OFF, ON = ARMED_ON, PAUSED = ARMED_PAUSED };
hidden u32 fentry_armed; /* one of these; the classic tracer, which has no switches and no pauses, looks here */
hidden u32 fentry_silent; /* not 0: system calls are not traced */
hidden u32 fentry_switched; /* not 0: a recorder has switched functions, and wants to hear of each image that comes */

static u32 plain; /* not 0: what is captured in registers is recorded in place (act.S) */

/* The images by the addresses that bodies return to in their thunks, which are in the table, as an image that is loaded again has others. A
   table that was replaced is used again for the one after the next; whoever reads one looks at rewritten before and
   behind. */
struct entry { u64 backs; struct image *m; };
static struct images {
	u64 n, room;
	struct images *next; /* of those that are in use no more */
	struct entry at[];
} *images, *spare, *retired;
static u64 rewritten;

static void retire(struct images *t)
{
	do
		t->next = load(&retired);
	while (!cas(&retired, t->next, t));
}

/* new_table returns one with room for n images; 0: there is no memory. */
static struct images *new_table(u64 n)
{
	struct images *t = swap(&spare, (struct images *)0);
	if (t && t->room >= n) {
		add(&rewritten, 1);
		return t;
	}
	if (t)
		retire(t);
	u64 size = (sizeof(struct images) + n * sizeof(struct entry) + page_size - 1) & -page_size;
	if ((t = map_private(size)))
		t->room = (size - sizeof(struct images)) / sizeof(struct entry);
	return t;
}

/* enter_image adds an image to the table, and takes out those that are no more. glibc's loader adds one at a time; musl's
   runs initialisers of several at once. It returns 0 where there is no memory. */
static int enter_image(struct image *m)
{
	for (;;) {
		struct images *old = load(&images), *t = new_table(old ? old->n + 1 : 1);
		u64 k = 0, n;
		if (!t)
			return 0;
		for (u64 i = 0; old && i < old->n && k + 1 < t->room; i++)
			if (old->at[i].m != m && image_there(old->at[i].m))
				t->at[k++] = old->at[i];
		n = k + 1;
		for (; k > 0 && t->at[k - 1].backs > m->backs; k--)
			t->at[k] = t->at[k - 1];
		t->at[k] = (struct entry){ m->backs, m };
		store(&t->n, n);
		if (cas(&images, old, t)) {
			if ((old = swap(&spare, old)))
				retire(old);
			return 1;
		}
		retire(t);
	}
}

/* entered says whether an image is in the table. */
static int entered(const struct image *m)
{
	for (u64 i = 0; images && i < images->n; i++)
		if (images->at[i].m == m && images->at[i].backs == m->backs)
			return 1;
	return 0;
}

/* syscalls_recorded is what is recorded of system calls. A thread can wait in one for as long as it likes, and whoever
   began one comes back by its thunk: ends are recorded until tracing ends. */
static u32 syscalls_recorded(u32 armed)
{
	if (armed == OFF)
		return 0;
	return armed == ON && !load(&fentry_silent) ? SYSCALLS_BEGINS | SYSCALLS_ENDS : SYSCALLS_ENDS;
}

/* set_switches derives bit 0 of all of an image's switches: eight at a time, as there is
   room for whole words. A bit that another thread changes meanwhile is kept. */
static void set_switches(struct image *m, u32 armed)
{
	enum { HARMLESS = SWITCH_SLOW | SWITCH_ACTS };
	static const u64 ones = 0x0101010101010101, bits = SWITCH_ON * ones;
	u64 *w = (u64 *)m->switches;
	store(&m->words->syscalls, syscalls_recorded(armed));
	store(&m->words->plain, armed == ON && load(&plain));
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
		armed = load(&fentry_armed);
		images_use();
		for (struct image *all = m ? 0 : load(&newest); all; all = all->next)
			if (load(&all->stage) == IMAGE_HERE)
				set_switches(all, armed);
		images_used();
		if (m)
			set_switches(m, armed);
	} while (armed != load(&fentry_armed));
}

/* images_switch_off switches a function off for good, by its id in the trace, because recording
   it costs too much. Calls that are open end as ever. What functions have actions for goes on. */
hidden void images_switch_off(u32 id)
{
	images_use();
	for (struct image *m = load(&newest); m; m = m->next) {
		u32 local = id - m->base - 1;
		u8 *switches = load(&m->stage) == IMAGE_HERE ? m->switches : m->kept;
		if (!switches || local >= m->sites || switches[local] & SWITCH_ACTS)
			continue;
		__atomic_fetch_or(&switches[local], SWITCH_COSTLY, __ATOMIC_ACQ_REL);
		clear_bits(&switches[local], (u8)SWITCH_ON);
	}
	images_used();
}

/* set_slow tells thunks that look at the control base themselves, those that count, to look
   there no more. */
static void set_slow(struct image *m)
{
	for (u32 i = 0; m->switches && i < m->sites; i++)
		__atomic_fetch_or(&m->switches[i], SWITCH_SLOW, __ATOMIC_ACQ_REL);
}

/* follow_base sets what an image's fast paths find blocks by: whoever gave up the control base may not have seen
   the image. */
static void follow_base(struct image *m)
{
	store(&m->words->blocks, load(&fentry_words.blocks));
	if (m->words->blocks || (tables() && m->tables != CB_TABLE))
		set_slow(m);
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
	if (i == MOST_TABLED)
		say("images that are loaded from now on are not traced, because the process has too many whose calls are counted; the first is ",
		    info->path, 0, 0);
	return 0;
}

/* known returns what is left of an image that was unloaded; 0: it was not there before. Only
   whoever loads it comes here. */
static struct image *known(const struct image_info *info)
{
	for (struct image *m = load(&newest); m; m = m->next)
		if (m->id == info->id && m->sites == info->sites && m->stage != IMAGE_HERE && (m->at == (u64)info || !image_there(m)))
			return m;
	return 0;
}

/* restore sets the switches of an image as they were when it went. */
static void restore(struct image *m)
{
	for (u32 i = 0; m->kept && i < m->sites; i++)
		m->switches[i] |= m->kept[i] & (u8)~(SWITCH_ON | SWITCH_ACTS);
}

/* begin_off switches functions off which only a recorder switches on. */
static void begin_off(struct image *m, const u8 *off)
{
	for (u32 i = 0; m->switches && i < m->sites; i++)
		if (off[(i + 1) / 8] >> (i + 1) % 8 & 1)
			m->switches[i] |= SWITCH_FILTERED;
}

/* mark_actions tells by the switches of an image which functions have actions. */
static void mark_actions(struct image *m)
{
	const struct acting *a = m->acting;
	for (u32 i = 0; a && m->switches && i < a->count; i++)
		__atomic_fetch_or(&m->switches[acting_table(a)[i].id - 1], SWITCH_ACTS, __ATOMIC_ACQ_REL);
}

/* set_acting changes what is done at calls of an image's functions, at once. */
static void set_acting(struct image *m, struct acting to)
{
	const struct acting *was = m->acting;
	struct acting *a = was == m->actings ? m->actings + 1 : m->actings;
	for (u32 i = 0; was && m->switches && i < was->count; i++)
		clear_bits(&m->switches[acting_table(was)[i].id - 1], (u8)SWITCH_ACTS);
	*a = to;
	store(&m->acting, to.count ? a : 0);
	mark_actions(m);
}

/* image_add adds an image, whose ids begin behind base. words are what its fast paths look
   at, which are this home's own as far as they are about the process. Its functions are
   not traced yet. It returns 0 where there is no memory. same is set to whether all that
   readers have been told of it is still true. */
hidden struct image *image_add(const struct image_info *info, struct words *words, u32 base, int *same)
{
	u64 a = (u64)info;
	struct image *m = known(info);
	u32 at = m ? m->tables : place_tables(info);
	int again = m != 0;
	*same = again && m->at == a && !m->told_gone;
	if (!m)
		m = load(&newest) ? map_private(sizeof *m) : &fentry_own;
	if (!m || !at)
		return 0;
	m->stage = info->stages ? IMAGE_COMES : IMAGE_HERE;
	m->stays = !info->stages;
	m->tables = at;
	m->unloaded = 0;
	m->told_gone = 0;
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
	m->thunk_size = info->thunk_size;
	m->size = info->thunks ? (u64)info->thunks_count * info->thunk_size : 0;
	m->backs = !BACKS_APART ? m->thunks : info->backs ? a + (u64)info->backs : 0;
	m->backs_size = m->backs ? (u64)info->thunks_count * back_size(info->thunk_size) : 0;
	m->switches = info->switches ? (u8 *)a + info->switches : 0;
	m->roots = m->changed_roots ? m->changed_roots : info->roots ? (u8 *)a + info->roots : 0;
	m->without = info->without ? (u8 *)a + info->without : 0;
	m->table = info->table ? (u8 *)a + info->table : 0;
	m->unwind = info->unwind ? (const u8 *)(a + (u64)info->unwind) : 0;
	/* What a recorder has changed refers to where the image was: it comes again. */
	m->acting = 0;
	restore(m);
	if (info->off && !m->kept)
		begin_off(m, (u8 *)a + info->off);
	if (info->actions)
		set_acting(m, (struct acting){ a + (u64)info->actions, a + (u64)info->counts, info->actions_count, { 0 } });
	*words = (struct words){
		fentry_words.blocks, m->backs, m->backs_size, 0, 0, 0, fentry_words.depth, base,
		fentry_words.enter, fentry_words.exit, fentry_words.record, fentry_words.syscall, fentry_words.settle, words->word,
		fentry_words.act, fentry_words.act_exit, at, 0, m->roots, fentry_words.threshold, m, 0, 0,
		fentry_words.place,
	};
	/* The tables of the tracer profile are by local id. */
	id_words(&words->id_scale, m->thunks, m->thunk_size, fentry_config.mode == MODE_PROFILE ? 0 : base);
	if (!info->library)
		store(&executable, base), store(&entering, (u32)words->id_enter);
	if (!(*same && entered(m)) && !enter_image(m))
		return 0;
	while (!again && !cas(&newest, m->next = load(&newest), m))
		;
	follow_base(m);
	return m;
}

/* image_stage takes notice of how far an image is, which that tells itself: a loader calls it when all that it
   loads has been relocated, and when it has run its destructors. */
hidden void image_stage(struct image *m, u32 stage)
{
	if (stage == IMAGE_HERE && m->stage == IMAGE_COMES) {
		/* What was changed meanwhile has left it out. */
		store(&m->stage, IMAGE_HERE);
		follow_base(m);
		follow_armed(m);
	} else if (stage == IMAGE_GOES && m->stage == IMAGE_HERE) {
		m->unloaded = counter();
		swap(&m->stage, IMAGE_GOES);
		images_unused();
		if (m->switches && !m->kept)
			m->kept = map_private(m->sites);
		if (m->switches && m->kept)
			memcpy(m->kept, m->switches, m->sites);
	}
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

/* unmap_roots unmaps a copy of a bitmap. */
static void unmap_roots(const struct image *m, u8 **copy)
{
	if (*copy)
		sys(SYS_munmap, *copy, roots_size(m), 0, 0, 0, 0);
	*copy = 0;
}

/* image_copy_roots copies which of an image's functions are to be graph roots. It returns 0 where there is no memory. */
hidden int image_copy_roots(struct image *m, const u8 *bitmap)
{
	image_drop_roots(m);
	if (!(m->next_roots = map_private(roots_size(m))))
		return 0;
	memcpy(m->next_roots, bitmap, roots_size(m));
	return 1;
}

/* image_drop_roots drops what was copied. */
hidden void image_drop_roots(struct image *m) { unmap_roots(m, &m->next_roots); }

/* image_take_roots has an image's graph roots be those that were copied; all functions, if none were. */
hidden void image_take_roots(struct image *m)
{
	u8 *gone = m->old_roots;
	m->old_roots = m->changed_roots;
	m->changed_roots = m->next_roots;
	m->next_roots = 0;
	store(&m->roots, m->changed_roots);
	if (image_there(m))
		store(&m->words->roots, m->roots);
	unmap_roots(m, &gone);
}

static void unmap_memory(struct memory *at)
{
	if (at->size)
		sys(SYS_munmap, at->at, at->size, 0, 0, 0, 0);
	*at = (struct memory){ 0, 0 };
}

/* image_actions changes what is done at calls of an image's functions. */
hidden void image_actions(struct image *m, const struct changed_actions *to)
{
	struct memory gone = m->old;
	m->old = m->changed;
	m->changed = (struct memory){ to->memory, to->size };
	set_acting(m, (struct acting){ to->memory, to->counts, to->count, { 0 } });
	unmap_memory(&gone);
}

/* images_bases is where the ids of the executable begin, as CB_ID_BASE and CB_ID_ENTER have it. */
hidden void images_bases(u32 *base, u32 *enter)
{
	store(base, load(&executable));
	store(enter, load(&entering));
}

/* images_list is where a recorder finds the images. */
hidden struct image **images_list(void) { return &newest; }

/* images_first returns the image that registered last; the others are behind next. */
hidden struct image *images_first(void) { return load(&newest); }

/* image_at returns the image that has the back of a thunk at an address; 0: none has. */
static struct image *image_at(u64 addr)
{
	struct image *m;
	struct entry at;
	u64 before;
	do {
		before = load(&rewritten);
		struct images *t = load(&images);
		u64 lo = 0, hi = t ? t->n : 0; /* the first one whose are above addr */
		while (lo < hi) {
			u64 mid = lo + (hi - lo) / 2;
			if (t->at[mid].backs <= addr)
				lo = mid + 1;
			else
				hi = mid;
		}
		at = lo ? t->at[lo - 1] : (struct entry){ 0, 0 };
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
	} while (before != load(&rewritten));
	m = at.m;
	return m && m->backs == at.backs && addr - at.backs < m->backs_size && image_there(m) ? m : 0;
}

/* image_returns_to finds the function whose body returns to an address, which is in its
   thunk: the call that is there has been replaced by a tail call. */
hidden int image_returns_to(u64 ret, struct function *f)
{
	struct image *m = ret % BACK_SIZE == THUNK_RET ? image_at(ret) : 0;
	if (!m || (ret - m->backs) % back_size(m->thunk_size) != THUNK_RET)
		return 0;
	f->image = m;
	f->id = (u32)((ret - m->backs) / back_size(m->thunk_size)) + 1;
	return 1;
}

/* The table of an image's sites, as package sitetable has it. */
enum { TABLE_BASE = 16, TABLE_WIDTH = 24, TABLE_SITES = 32 };

/* image_site is the address of a function's site; 0: it is not known. */
hidden u64 image_site(struct function f)
{
	const struct image *m = f.image;
	return m->table && f.id - 1 < m->sites ?
	       m->bias + *(const u64 *)(m->table + TABLE_BASE) + ((const u32 *)(m->table + TABLE_SITES))[f.id - 1] : 0;
}

/* image_function finds the function that begins at an address, if it is traced. Rows are in the order of sites,
   of which a function has one at its beginning or behind. */
hidden int image_function(u64 addr, struct function *f)
{
	int found = 0;
	images_use();
	for (struct image *m = load(&newest); !found && m; m = m->next) {
		if (load(&m->stage) != IMAGE_HERE)
			continue;
		u64 from = addr - m->bias - (m->table ? *(const u64 *)(m->table + TABLE_BASE) : 0);
		if (!m->table || from >> 32)
			continue;
		const u32 *site = (const u32 *)(m->table + TABLE_SITES);
		const u8 *distance = (const u8 *)(site + m->sites);
		u32 lo = 0, hi = m->sites; /* the first one whose site is there or behind */
		while (lo < hi) {
			u32 mid = lo + (hi - lo) / 2;
			if (site[mid] < from)
				lo = mid + 1;
			else
				hi = mid;
		}
		if (lo == m->sites)
			continue;
		u32 width = *(const u32 *)(m->table + TABLE_WIDTH);
		u32 before = width == 4 ? ((const u32 *)distance)[lo] : width ? distance[lo] : 0;
		if ((u32)(site[lo] - before) != from)
			continue;
		*f = (struct function){ m, lo + 1 };
		found = 1;
	}
	images_used();
	return found;
}

hidden int images_armed(void) { return load(&fentry_armed) == ON; }

hidden int images_paused(void) { return load(&fentry_armed) == PAUSED; }

/* images_plain says whether calls have nothing but return addresses in their shadow, and a clock: then what is captured of
   them in registers can be recorded in place. */
hidden void images_plain(int is)
{
	store(&plain, (u32)is);
	follow_armed(0);
}

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
	images_use();
	for (struct image *m = load(&newest); m; m = m->next)
		if (image_there(m))
			follow_base(m);
	images_used();
	return 1;
}

static void unmap_tables(struct images *t)
{
	for (struct images *next; t; t = next) {
		next = t->next;
		sys(SYS_munmap, t, sizeof *t + t->room * sizeof *t->at, 0, 0, 0, 0);
	}
}

/* images_leave forgets all images, and unmaps what is known of them. */
hidden void images_leave(void)
{
	for (struct image *m = newest, *next; m; m = next) {
		next = m->next;
		unmap_roots(m, &m->old_roots);
		unmap_roots(m, &m->changed_roots);
		unmap_memory(&m->old);
		unmap_memory(&m->changed);
		if (m->kept)
			sys(SYS_munmap, m->kept, m->sites, 0, 0, 0, 0);
		if (m != &fentry_own)
			sys(SYS_munmap, m, sizeof *m, 0, 0, 0, 0);
	}
	unmap_tables(images);
	unmap_tables(spare);
	unmap_tables(retired);
	images = spare = retired = 0;
	newest = 0;
}
