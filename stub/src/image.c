/* The images of this process whose functions are traced: the one that this runtime came
   with, and others that have registered with it.

   Fast paths know their own image only, by words at a fixed distance. Slow ones look an
   image up by the address of a thunk, in a table sorted by address, which is replaced as
   a whole by every registration. So readers need no lock, a fork at any moment leaves a
   table that is whole, and an old table is never unmapped: somebody may be reading it.

   A function has a byte that its thunk tests: bit 0 is derived, and says that its calls
   are traced; others say why they are not. So zeroed memory is off, and tracing ends
   with a store a function and no look at any thread. Frames that are open then are
   closed by their exits as ever. */
#include "image.h"
#include "sys.h"
#include "text.h"

hidden struct image fentry_own; /* the image of this runtime */

/* What the fast paths look at. */
hidden u64 fentry_thunks, fentry_thunks_size;
hidden const u8 *fentry_roots;

hidden u32 fentry_armed; /* the classic tracer, which has no switches, looks here */

/* The images by the addresses of their thunks. */
static struct images {
	u32 n;
	struct image *at[];
} *images;

static u64 table_size(u32 n) { return sizeof(struct images) + n * sizeof(struct image *); }

/* insert adds an image to the table. */
static int insert(struct image *m)
{
	for (;;) {
		struct images *old = load(&images), *t;
		u32 n = old ? old->n : 0, k = 0;
		t = map_private(table_size(n + 1));
		if (!t)
			return 0;
		while (k < n && old->at[k]->thunks < m->thunks) {
			t->at[k] = old->at[k];
			k++;
		}
		t->at[k] = m;
		for (; k < n; k++)
			t->at[k + 1] = old->at[k];
		t->n = n + 1;
		if (cas(&images, old, t))
			return 1;
		sys(SYS_munmap, t, table_size(n + 1), 0, 0, 0, 0);
	}
}

/* set_switches derives bit 0 of all of an image's switches: eight at a time, as there is
   room for whole words. A bit that another thread changes meanwhile is kept. */
static void set_switches(struct image *m, int on)
{
	static const u64 bits = SWITCH_ON * 0x0101010101010101;
	u64 *w = (u64 *)m->switches;
	for (u32 i = 0; w && i < m->info->sites; i += 8, w++) {
		u64 was, now;
		do {
			was = load(w);
			now = was & ~bits;
			for (u32 k = 0; on && now && k < 64; k += 8)
				if (!(now >> k & 0xff))
					now |= (u64)SWITCH_ON << k;
			if (on && !(was & ~bits))
				now = bits;
		} while (was != now && !cas(w, was, now));
	}
}

/* image_register adds an image; its functions are traced if others are. */
hidden int image_register(struct image *m, const struct image_info *info)
{
	u64 a = (u64)info;
	m->info = info;
	m->thunks = info->thunks ? a + (u64)info->thunks : 0;
	m->size = info->thunks ? (u64)info->sites * THUNK_SIZE : 0;
	m->switches = info->switches ? (u8 *)a + info->switches : 0;
	m->roots = info->roots ? (u8 *)a + info->roots : 0;
	if (m == &fentry_own) {
		fentry_roots = m->roots;
		fentry_thunks = m->thunks;
		fentry_thunks_size = m->size;
	}
	if (!insert(m))
		return 0;
	/* Whoever ends tracing meanwhile may not have seen the image. */
	if (load(&fentry_armed))
		set_switches(m, 1);
	if (!load(&fentry_armed))
		set_switches(m, 0);
	return 1;
}

/* image_returns_to finds the function whose body returns to an address, which is in its
   thunk: the call that is there has been replaced by a tail call. */
hidden int image_returns_to(u64 ret, struct function *f)
{
	struct images *t = load(&images);
	if (ret % THUNK_SIZE != THUNK_RET || !t)
		return 0;
	u32 lo = 0, hi = t->n; /* the first one whose thunks are above ret */
	while (lo < hi) {
		u32 mid = lo + (hi - lo) / 2;
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

hidden int images_armed(void) { return load(&fentry_armed) != 0; }

/* images_arm begins tracing in all images, or ends it. It returns how it was. */
hidden int images_arm(int on)
{
	int was = swap(&fentry_armed, (u32)on) != 0;
	struct images *t = load(&images);
	for (u32 i = 0; t && i < t->n; i++)
		set_switches(t->at[i], on);
	return was;
}
