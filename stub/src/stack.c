/* The stacks a thread runs on, and the shadow of their return addresses.

   The shadow of a stack address is that address with bits flipped (machine.h), so
   a frame's return address is found without any search, and longjmp, exceptions,
   coroutines and signal handlers need no repair. Shadow memory is mapped in
   pieces when a stack first reaches them, never unmapped, and shared by whatever
   uses those stack addresses later. Pieces are small: a program that locks all its
   memory pays for each of them.

   Which frames are open is a chain from the control block's top through the
   shadow's previous-top words. It only serves to notice frames that ended without
   an exit. A chain belongs to a stack: struct stack. That has a range of pieces,
   and to it belongs what else is in the same windows, until it gets there. */
#include "chunk.h"
#include "configuration.h"
#include "image.h"
#include "say.h"
#include "stack.h"
#include "sys.h"

enum { PIECE_SHIFT = 17, PIECE = 1 << PIECE_SHIFT, WINDOW = 4 << 20, MOST_STACKS = 24 << 10 };

/* What is known of every piece of the address space, a byte each, in three levels. The first
   one is part of every patched program, so it is small. What the third one has of 64 GB is mapped
   at once, and locked in a program that locks its memory: 512 KB. A piece that a thread is
   mapping right now says in which process: a child forked meanwhile has the byte, but nobody
   who will ever change it. Children that share their parent's memory (vfork) run under its
   name here, as they use its control blocks. */
enum { P_UNKNOWN, P_MAPPED, P_REFUSED, P_BUSY, P_LAST = 255 };
static u8 busy_in(u32 pid) { return (u8)(P_BUSY + pid % (P_LAST - P_BUSY + 1)); }

/* How long a thread waits for another that maps a piece. The other one needs the lock of
   the address space, which thousands of threads want, and a processor, which others may
   have: seconds are nothing out of the ordinary. What the limit is there for is a killed
   process that shared this one's memory. */
#define PIECE_LONGEST 30000000000UL /* ns */
#define PIECE_NAP     1000000UL     /* ns between looks */
enum { PIECE_YIELDS = 100 }; /* looks before the first nap */
enum { L1_SHIFT = 42, L2_SHIFT = 36, L2_TABLES = 1 << (L1_SHIFT - L2_SHIFT), L3_PIECES = 1 << (L2_SHIFT - PIECE_SHIFT) };
static u8 **pieces[1 << (ADDRESS_BITS - L1_SHIFT)];

/* level returns what is at a place of a table: zeroes, if nothing was there; 0: there is no memory. */
static void *level(void **at, u64 size)
{
	void *p = load(at);
	if (p)
		return p;
	void *n = map_private(size);
	if (n && !cas(at, (void *)0, n))
		sys(SYS_munmap, n, size, 0, 0, 0, 0);
	return load(at);
}

static u8 *piece_state(u64 a)
{
	if (a >> ADDRESS_BITS)
		return 0;
	u8 **l2 = level((void **)&pieces[a >> L1_SHIFT], L2_TABLES * sizeof *l2);
	u8 *l3 = l2 ? level((void **)&l2[(a >> L2_SHIFT) % L2_TABLES], L3_PIECES) : 0;
	return l3 ? &l3[a / PIECE % L3_PIECES] : 0;
}

static int map_at(u64 a)
{
	i64 flags = MAP_PRIVATE_ | MAP_ANON | MAP_NORESERVE_ | MAP_FIXED_NOREPLACE_;
	i64 r = sys(SYS_mmap, a, PIECE, PROT_RW, flags, -1, 0);
	if (r == -ENOMEM_) /* RLIMIT_DATA is not about stacks, and this belongs to one */
		r = sys(SYS_mmap, a, PIECE, PROT_RW, flags | MAP_GROWSDOWN_, -1, 0);
	if ((u64)r == a) {
		/* A huge page for a few touched words would be a waste. */
		sys(SYS_madvise, a, PIECE, MADV_NOHUGEPAGE_, 0, 0, 0);
		return 1;
	}
	if (!failed(r)) /* a kernel before 4.17, which takes the address for a hint */
		sys(SYS_munmap, r, PIECE, 0, 0, 0, 0);
	return 0;
}

/* extra: frames have more in their shadow than return addresses; wide: that is mapped, which comes first; late: since a
   recorder has asked for more than what was planned. */
static u32 extra, late, wide;

/* extra_late says whether frames have times and depths in their shadow because a recorder has asked for that since the
   start. */
hidden int extra_late(void) { return load(&late) != 0; }

/* stacks_init finds out what frames have in their shadow, once the process's first image is there. */
hidden void stacks_init(void)
{
	extra = fentry_config.mode == MODE_PROFILE || fentry_config.depth || fentry_config.threshold || fentry_own.roots ||
		fentry_own.without || fentry_image.options & 1; /* of actions, in any image */
	wide = extra;
	images_plain(fentry_config.mode == MODE_GRAPH && !clockless() && !extra);
}

/* extra_shadow says whether frames have times and depths in their shadow. */
hidden int extra_shadow(void) { return load(&extra) != 0; }

/* shadow_windows is how many windows are mapped of a piece. */
static u32 shadow_windows(void) { return load(&wide) ? SHADOW_WINDOWS : SHADOW_FEW; }

/* unmap_windows unmaps the windows from first to n, without that, of the piece at a. */
static void unmap_windows(u64 a, u32 first, u32 n)
{
	for (u32 i = first; i < n; i++)
		sys(SYS_munmap, shadow_window(a, i), PIECE, 0, 0, 0, 0);
}

/* map_windows maps them. It returns 0, and maps none, if one of them cannot be. */
static int map_windows(u64 a, u32 first, u32 n)
{
	for (u32 i = first; i < n; i++) {
		if (map_at(shadow_window(a, i)))
			continue;
		unmap_windows(a, first, i);
		return 0;
	}
	return 1;
}

/* map_piece maps the shadow of the piece at a, for which *s is busy, and says so there. It returns 0 if that cannot be, or
   nobody waits for it any more. */
static int map_piece(u64 a, u8 *s, u8 busy)
{
	u32 n = shadow_windows();
	int ok = map_windows(a, 0, n);
	if (cas(s, busy, ok ? P_MAPPED : P_REFUSED))
		return ok;
	if (ok)
		unmap_windows(a, 0, n);
	return 0;
}

/* others_piece waits while another thread of this process maps a piece, and returns what
   has become of it. A piece that is refused stays so, and all calls on it are lost: that
   takes more than a wait that has been long. */
static u8 others_piece(struct control *c, u8 *s)
{
	u8 busy = busy_in(c->pid), v;
	u64 end = 0;
	for (u32 looks = 0; (v = load(s)) >= P_BUSY; looks++) {
		if (v != busy)
			goto nobody;
		if (looks < PIECE_YIELDS) {
			sys(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
			continue;
		}
		/* Yielding is for naught where the other one waits, too, or has a lower priority. */
		static u32 never;
		futex_wait(&never, 0, PIECE_NAP);
		u64 now = clock_ns(CLOCK_MONOTONIC_);
		if (!end)
			end = now + PIECE_LONGEST;
		else if (now >= end)
			goto nobody;
	}
	return v;
nobody: /* what is mapped is not known */
	return cas(s, v, P_REFUSED) ? P_REFUSED : load(s);
}

/* have_piece makes sure that the piece that holds stack address a has a shadow. */
static int have_piece(struct control *c, u64 a)
{
	u8 *s = piece_state(a);
	if (!s)
		return 0;
	for (;;) {
		u8 v = load(s);
		if (v >= P_BUSY)
			v = others_piece(c, s);
		if (v == P_MAPPED)
			return 1;
		if (v == P_REFUSED)
			return 0;
		if (v >= P_BUSY || !cas(s, v, busy_in(c->pid)))
			continue;
		int ok = map_piece(a & -(u64)PIECE, s, busy_in(c->pid));
		static u32 said;
		if (!ok && !swap(&said, 1))
			say("calls on a stack are lost: the program uses the memory where return addresses would be kept", 0, 0, 0);
		return ok;
	}
}

/* have_shadow makes sure that all from lo to hi has a shadow. */
static int have_shadow(struct control *c, u64 lo, u64 hi)
{
	for (u64 a = lo & -(u64)PIECE; a < hi; a += PIECE)
		if (!have_piece(c, a))
			return 0;
	return 1;
}

/* Goroutines have an entry of the table, too, as no address is theirs: calls of Go's functions are none that the shadow knows,
   and the goroutine that a thread runs changes often. Its number is the block's, and the entry's while another stack is
   the current one; the block has none then. So C's fast paths meet a stack that is not theirs, and Go's a goroutine
   that is not the newest one, and both come to slow paths where the thread changes from one to the other. */
enum { NOWHERE = 8, NOWHERE_END = 16 };

/* of_goroutine says whether an entry is that one, on_goroutine whether the current stack is. */
static int of_goroutine(const struct stack *s) { return (s->id & FT_GOROUTINE_STACK) != 0; }
hidden int on_goroutine(struct control *c) { return c->begun && of_goroutine(&c->stacks[c->cur]); }

/* save puts the fast path's copy of the current stack back into the table. */
static void save(struct control *c)
{
	struct stack *s = &c->stacks[c->cur];
	s->lo = c->lo;
	s->top = c->top;
	if (of_goroutine(s))
		s->id = c->stack;
}

static void resume(struct control *c, u32 i)
{
	struct stack *s = &c->stacks[i];
	c->cur = i;
	c->stack = s->id;
	c->goroutine = of_goroutine(s) ? s->id & ~FT_GOROUTINE_STACK : 0;
	forget_ahead(c);
	c->lo = s->lo;
	c->top = s->top;
	shadow_distances(c->shadow, s->lo);
	s->used = ++c->switches;
}

static void switch_to(struct control *c, u32 i)
{
	if (i == c->cur)
		return;
	save(c);
	resume(c, i);
	record1(c, counter(), FT_REC_STACK, c->stacks[i].id);
}

/* on_signal_stack says whether slot is on the thread's alternate signal stack and
   that is in use. So is the room of slow paths if a handler comes while one is there. */
hidden int on_signal_stack(struct control *c, u64 slot, struct sigaltstack *ss)
{
	if (c->room && c->room - slot <= ROOM) {
		*ss = (struct sigaltstack){ .sp = c->room - ROOM, .size = ROOM };
		return 1;
	}
	ss->flags = 0;
	sys(SYS_sigaltstack, 0, ss, 0, 0, 0, 0);
	return ss->flags & SS_ONSTACK_ && slot - ss->sp < ss->size;
}

/* find returns the index of the stack that slot is on, or -1. The narrowest wins:
   a signal stack may lie between the pieces of another. */
static i32 find(struct control *c, u64 slot)
{
	i32 best = -1;
	for (u32 i = 0; i < c->nstacks; i++) {
		struct stack *s = &c->stacks[i];
		if (slot - s->lo < s->hi - s->lo && (best < 0 || s->hi - s->lo < c->stacks[best].hi - c->stacks[best].lo))
			best = (i32)i;
	}
	return best;
}

/* fresh returns the index of an unused entry of the table. When there is none, the
   table gets larger; when that cannot be, the stack that was left longest ago is
   forgotten. */
static u32 fresh(struct control *c)
{
	u32 k = 0;
	for (u32 i = 0; i < c->nstacks; i++) {
		if (c->stacks[i].hi == 0)
			return i;
		if (c->stacks[k].used > c->stacks[i].used)
			k = i;
	}
	struct stack *t = c->nstacks >= MOST_STACKS ? 0 : map_private(stacks_size(4 * c->nstacks));
	if (!t)
		return k; /* not the current one, which was entered last */
	memcpy(t, c->stacks, c->nstacks * sizeof *t);
	*stacks_before(t, 4 * c->nstacks) = c->stacks; /* frames_adopt may look there */
	k = c->nstacks;
	store(&c->stacks, t);
	store(&c->nstacks, 4 * k);
	return k;
}

/* grown makes the stack that slot belongs to reach it, and returns its index: one
   that is in the same window, or in the next one, then the current one rather than
   another. If there is none, or it cannot, it returns the length of the table. */
static u32 grown(struct control *c, u64 slot)
{
	u64 w = slot & -(u64)WINDOW, a = slot & -(u64)PIECE;
	u32 k = c->nstacks;
	for (u32 i = 0; i < c->nstacks; i++) {
		struct stack *s = &c->stacks[i];
		u64 lo = s->lo & -(u64)WINDOW, hi = (s->hi + WINDOW - 1) & -(u64)WINDOW;
		if (s->back || s->hi <= WINDOW || w + WINDOW < lo || w > hi || shadow_apart(w, s->lo))
			continue;
		if (w >= lo && w < hi) {
			k = i;
			break;
		}
		if (k == c->nstacks || i == c->cur)
			k = i;
	}
	if (k == c->nstacks)
		return k;
	struct stack *s = &c->stacks[k];
	if (!have_shadow(c, a < s->lo ? a : s->hi, a < s->lo ? s->lo : a + PIECE))
		return c->nstacks;
	if (a < s->lo)
		s->lo = a;
	else
		s->hi = a + PIECE;
	return k;
}

/* stack_number is a new number for a stack: they are unique in the process, as another
   thread may go on where this one has stopped. */
hidden u64 stack_number(void)
{
	static u64 last;
	return add(&last, 1) + 1;
}

static void begin(struct control *c, u32 i, u64 lo, u64 hi)
{
	struct stack *s = &c->stacks[i];
	s->lo = lo;
	s->hi = hi;
	s->top = empty_top(c, hi);
	s->id = c->begun++ ? stack_number() : c->stack;
	s->back = 0;
}

/* enter_stack makes the stack that slot is on the current one. It returns 0 when
   there is no shadow for it. */
hidden int enter_stack(struct control *c, u64 slot)
{
	u64 a = slot & -(u64)PIECE;
	struct sigaltstack ss;
	int on_signal = -1;
	if (c->begun != 0) {
		struct stack *s = &c->stacks[c->cur];
		save(c);
		if (slot - s->lo < s->hi - s->lo) {
			/* Above the open frames may be a signal stack in the same piece. */
			if (slot < top_slot(s->top) || s->back)
				return 1;
			on_signal = on_signal_stack(c, slot, &ss);
			if (!on_signal)
				return 1;
		}
	}
	if (on_signal < 0)
		on_signal = on_signal_stack(c, slot, &ss);
	if (c->begun == 0) {
		/* A new thread. If its first event is in a signal handler, the stack it
		   began on is not known yet: an entry that no address is on stands for it. */
		if (!on_signal && !have_piece(c, slot))
			return 0;
		begin(c, 0, on_signal ? NOWHERE : a, on_signal ? NOWHERE_END : a + PIECE);
		resume(c, 0);
		if (!on_signal)
			return 1;
	}
	u32 from = c->cur;
	i32 i = find(c, slot);
	if (i >= 0 && (!on_signal || c->stacks[i].back)) {
		switch_to(c, (u32)i);
		/* A handler that has called a goroutine goes back to what it has interrupted. */
		if (c->stacks[i].back && !of_goroutine(&c->stacks[from]))
			c->stacks[i].back = from + 1;
		return 1;
	}
	if (on_signal) {
		/* A signal stack has the bounds that the program gave it. */
		if (shadow_apart(ss.sp, ss.sp + ss.size - 1) || !have_shadow(c, ss.sp, ss.sp + ss.size))
			return 0;
		u32 k = fresh(c);
		begin(c, k, ss.sp, ss.sp + ss.size);
		c->stacks[k].back = from + 1;
		switch_to(c, k);
		return 1;
	}
	if (!have_piece(c, slot))
		return 0;
	u32 k = grown(c, slot);
	if (k == c->nstacks) {
		k = fresh(c);
		begin(c, k, a, a + PIECE);
	} else if (k == c->cur) {
		resume(c, k);
	}
	switch_to(c, k);
	return 1;
}

/* enter_goroutine makes a goroutine what the thread runs. */
hidden void enter_goroutine(struct control *c, u64 goroutine)
{
	u64 id = goroutine | FT_GOROUTINE_STACK;
	if (c->begun == 0) { /* what it began on is not known yet */
		begin(c, 0, NOWHERE, NOWHERE_END);
		resume(c, 0);
	}
	save(c);
	u32 k = 0;
	while (k < c->nstacks && !of_goroutine(&c->stacks[k]))
		k++;
	if (k == c->nstacks) {
		k = fresh(c);
		begin(c, k, NOWHERE, NOWHERE_END);
	}
	c->stacks[k].id = id;
	resume(c, k);
	record1(c, counter(), FT_REC_STACK, id);
}

/* leave_stack goes back to the stack that a signal interrupted. */
hidden void leave_stack(struct control *c)
{
	u32 back = c->stacks[c->cur].back;
	if (back != 0)
		switch_to(c, back - 1);
}

/* next_in returns the first stack address from a on of whose shadow that is known which is from lo to hi; -1: there is
   none. */
static u64 next_in(u64 a, u8 lo, u8 hi)
{
	while (a < 1UL << ADDRESS_BITS) {
		u8 **l2 = load(&pieces[a >> L1_SHIFT]), *l3 = l2 ? load(&l2[(a >> L2_SHIFT) % L2_TABLES]) : 0;
		u8 v = l3 ? load(&l3[a / PIECE % L3_PIECES]) : P_UNKNOWN;
		if (v >= lo && v <= hi)
			return a;
		u32 known = l3 ? PIECE_SHIFT : l2 ? L2_SHIFT : L1_SHIFT;
		a = ((a >> known) + 1) << known;
	}
	return -1UL;
}

/* next_piece returns the first stack address from a on whose shadow is mapped; -1: there is none. */
static u64 next_piece(u64 a) { return next_in(a, P_MAPPED, P_MAPPED); }

/* await_pieces waits for threads that map a piece without knowing of more windows, and then gives these pieces up. There is
   none but those of killed processes that shared this one's memory, unless the recorder is killed just now. */
static void await_pieces(void)
{
	enum { NAPS = 20 };
	static u32 never;
	for (u64 a = next_in(0, P_BUSY, P_LAST); a != -1UL; a = next_in(a + PIECE, P_BUSY, P_LAST)) {
		u8 *s = piece_state(a), v = load(s);
		for (u32 i = 0; i < NAPS && v == busy_in(getpid()); i++) {
			futex_wait(&never, 0, PIECE_NAP);
			v = load(s);
		}
		if (v >= P_BUSY)
			cas(s, v, P_REFUSED);
	}
}

/* stacks_extend gives all stacks the rest of the shadow, those that were seen and those from now on. It returns 0 if there is
   no room: then they have what they had. */
hidden int stacks_extend(void)
{
	u64 a;
	store(&wide, 1);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	await_pieces();
	for (a = next_piece(0); a != -1UL; a = next_piece(a + PIECE))
		if (!map_windows(a, SHADOW_FEW, SHADOW_WINDOWS))
			break;
	if (a == -1UL)
		return 1;
	store(&wide, 0);
	for (u64 b = next_piece(0); b < a; b = next_piece(b + PIECE))
		unmap_windows(b, SHADOW_FEW, SHADOW_WINDOWS);
	return 0;
}

/* stacks_extended has all frames be opened and closed with depths and times from now on: their shadow is there. */
hidden void stacks_extended(void)
{
	store(&late, 1);
	store(&extra, 1);
	images_plain(0);
}

/* stacks_areas tells on which areas stacks were seen, at most room of them, and returns how many
   there are. */
hidden u64 stacks_areas(struct area *to, u64 room)
{
	u64 n = 0, last = 0;
	for (u64 a = next_piece(0); a != -1UL; a = next_piece(a + PIECE)) {
		if (n && a == last) {
			last += PIECE;
			if (n <= room)
				to[n - 1].to = last;
			continue;
		}
		last = a + PIECE;
		if (n < room)
			to[n] = (struct area){ a, last };
		n++;
	}
	return n;
}

/* stacks_leave unmaps the shadow of all stacks. */
hidden void stacks_leave(void)
{
	for (u64 a = next_piece(0); a != -1UL; a = next_piece(a + PIECE))
		unmap_windows(a, 0, shadow_windows());
	for (u32 i = 0; i < lengthof(pieces); i++) {
		for (u32 k = 0; pieces[i] && k < L2_TABLES; k++)
			if (pieces[i][k])
				sys(SYS_munmap, pieces[i][k], L3_PIECES, 0, 0, 0, 0);
		if (pieces[i])
			sys(SYS_munmap, pieces[i], L2_TABLES * sizeof **pieces, 0, 0, 0, 0);
	}
	memset(pieces, 0, sizeof pieces);
}
