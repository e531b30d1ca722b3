/* Events of Go's functions that are not recorded in place: the first of a goroutine on a thread, those for which there is
   no room, and those on stacks that are no goroutine's.

   Calls follow goroutines, so where a thread goes on with another one the trace has a record of it, and the block the
   goroutine's number, which the fast path compares. Two kinds of events are not a goroutine's: what runs on the thread's
   own stack (g0), and what a signal's handler calls. The latter can come between any two instructions of a fast path that
   has just made sure of its goroutine. So each such event is put between two records, to the thread's own stack and
   back, and leaves nothing behind that anybody could notice.

   Static programs of Go's have no thread pointer in the sense of the ABI. What takes its place is a word of the thread's
   structure (runtime.m) that the program does not use on Linux, and that is 0 at first: own_thread in machine.h. With C
   code there is a thread pointer, and such a structure is one thread's of C's after the other. */
#include "chunk.h"
#include "configuration.h"
#include "image.h"
#include "machine.h"
#include "quick.h"
#include "stack.h"
#include "thread.h"
#include "start.h"
#include "sys.h"
#include "syscall.h"

hidden void fentry_slow_go(u32 id, u64 g, const struct goregs *r);

/* runtime.g, behind the number of the goroutine's parent */
enum { MADE_AT = 8, START = 24 };

enum { END = 1u << 31 };

/* Of what an event consists: words of the call itself, and a record before, behind or between them. Some of the runtime's
   functions tell what nobody else knows: runtime.gopark is called with the reason why a goroutine waits, runtime.ready with
   one that can go on, on behalf of the goroutine that the thread runs, and is over at once. runtime.newproc1 returns a new
   goroutine, and runtime.goexit1 is where it ends: of these two, the record is all there is. Other functions have a record
   if they defer calls: where their frame is, by which their ends are told from those of the same function's other calls,
   if a panic has ended some of them without. */
struct parts { u32 before, behind, type, n; u64 goroutine, words[4]; };

static void look(struct parts *p, u32 id, u64 g, const struct goregs *r)
{
	const struct image_info *m = &fentry_image;
	u32 number = m->goroutine;
	p->before = 1;
	p->behind = p->n = 0;
	p->goroutine = *(u64 *)(g + number);
	if (id & m->deep) {
		p->type = FT_REC_DEPTH;
		p->n = 1;
		p->words[0] = *(u64 *)(g + GO_STACK_HI) - go_sp(r);
		if (id & END) {
			p->before = 0;
			p->behind = 1;
			p->words[0] |= FT_DEPTH_END;
		}
	} else if (id == m->park) {
		p->type = FT_REC_ARGS;
		p->n = 1;
		p->words[0] = (u8)go_argument(r, 2);
	} else if (id == m->ready) {
		u64 runs = *(u64 *)(*(u64 *)(g + GO_M) + m->curg);
		p->goroutine = runs ? *(u64 *)(runs + number) : 0;
		p->type = FT_REC_ARGS;
		p->n = p->behind = 1;
		p->words[0] = *(u64 *)(go_argument(r, 0) + number);
	} else if (id == m->ended) {
		p->type = FT_REC_DEPTH;
		p->n = 1;
		p->before = 0;
		p->words[0] = FT_DEPTH_END;
	} else if (id == (m->created | END)) {
		const u64 *parent = (const u64 *)(go_argument(r, 0) + m->parent);
		p->type = FT_REC_GOROUTINE;
		p->n = 4;
		p->before = 0;
		p->words[0] = *(u64 *)(go_argument(r, 0) + number);
		p->words[1] = *parent;
		p->words[2] = parent[START / 8];
		p->words[3] = parent[MADE_AT / 8];
	}
}

/* anywhere tells a record that belongs to no stack. */
static int anywhere(const struct parts *p) { return p->n && p->type == FT_REC_GOROUTINE; }

/* first is the id of the event before the record, last of the one behind it. */
static u32 first(u32 id) { return fentry_own.base + (id & ~fentry_image.deep); }
static u32 last(u32 id, const struct parts *p) { return first(id) | (p->before ? END : 0); }

static u32 words_of(const struct parts *p) { return p->before + p->behind + (p->n ? 1 + p->n : 0); }

static void go_to(struct control *c, u64 stack)
{
	c->stack = stack;
	record1(c, counter(), FT_REC_STACK, stack);
}

/* comes_from begins what a goroutine records, 0: none that has a number. It returns whether that is put aside: goes_back
   has to end it. */
static int comes_from(struct control *c, u64 goroutine)
{
	if (!c->goroutine)
		c->own_stack = c->stack;
	if (goroutine && goroutine != c->goroutine)
		enter_goroutine(c, goroutine);
	int aside = !goroutine && c->goroutine;
	if (aside)
		go_to(c, c->own_stack);
	return aside;
}

static void goes_back(struct control *c, int aside)
{
	if (aside)
		go_to(c, c->goroutine | FT_GOROUTINE_STACK);
}

static void event(struct control *c, u32 id, const struct parts *p)
{
	if (anywhere(p)) {
		record(c, counter(), p->type, p->words, p->n);
		return;
	}
	int aside = comes_from(c, p->goroutine);
	room(c, words_of(p));
	if (p->before)
		put(c, counter(), first(id));
	if (p->n)
		record(c, counter(), p->type, p->words, p->n);
	if (p->behind)
		put(c, counter(), last(id, p));
	goes_back(c, aside);
}

static u64 *append(u64 *w, u32 t, u32 type, const u64 *words, u32 n)
{
	w = open_record(w, t, type, n);
	for (u32 i = 0; i < n; i++)
		w[i] = words[i];
	end_record(w);
	return w + n;
}

/* quick_from reserves n words for what a goroutine records, and writes which that is if the newest words are those of
   another one, was; quick_back has to end what is of none. A handler that comes in between finds words that are reserved, and
   the goroutine that they end with. It returns 0 if there is no room. */
static u64 *quick_from(struct control *c, u64 was, u64 goroutine, u32 n, u32 *t)
{
	u64 to = goroutine | FT_GOROUTINE_STACK;
	int moved = goroutine && goroutine != was;
	if (moved) {
		store(&c->goroutine, goroutine);
		store(&c->stack, to);
	}
	u64 *w = reserve(c, n + (!goroutine ? 4 : moved ? 2 : 0), t);
	if (!w && moved) {
		store(&c->goroutine, was);
		store(&c->stack, was | FT_GOROUTINE_STACK);
	}
	if (w && !goroutine)
		w = append(w, *t, FT_REC_STACK, &c->own_stack, 1);
	else if (w && moved)
		w = append(w, *t, FT_REC_STACK, &to, 1);
	return w;
}

static void quick_back(u64 *w, u32 t, u64 was, u64 goroutine)
{
	u64 to = was | FT_GOROUTINE_STACK;
	if (!goroutine)
		append(w, t, FT_REC_STACK, &to, 1);
}

/* quick does the same without a system call, where everything is in place and there is room for all of it: goroutines
   change often. */
static int quick(u32 id, const struct parts *p)
{
	struct control *c = images_armed() ? quick_block() : 0;
	u64 was = c ? load(&c->goroutine) : 0, goroutine = anywhere(p) ? was : p->goroutine;
	u32 t;
	u64 *w = was ? quick_from(c, was, goroutine, words_of(p), &t) : 0;
	if (!w)
		return 0;
	if (p->before)
		store(w++, (u64)first(id) << 32 | t);
	if (p->n)
		w = append(w, t, p->type, p->words, p->n);
	if (p->behind)
		store(w++, (u64)last(id, p) << 32 | t);
	quick_back(w, t, was, goroutine);
	return 1;
}

/* fentry_slow_go records the event with an id of the image, of the goroutine whose structure is at g. */
hidden void fentry_slow_go(u32 id, u64 g, const struct goregs *r)
{
	struct parts p;
	own_thread(g, fentry_image.thread);
	look(&p, id, g, r);
	if (quick(id, &p))
		return;
	struct sigset old = block();
	struct control *c = traced_thread();
	if (c)
		event(c, id, &p);
	unblock(old);
}

/* quick_syscall records a system call of which nothing is captured, as syscall.S does, and with that which goroutine makes
   it. */
static int quick_syscall(const struct sysregs *r, int exit, u64 goroutine)
{
	u64 nr = syscall_number(r), result = syscall_result(r), words[7] = { nr };
	struct control *c = images_armed() ? quick_block() : 0;
	u64 was = c && load(&c->sys_end) ? load(&c->goroutine) : 0;
	if (!was || (exit ? c->sys_open != 0 : nr < SYSCALL_NUMBERS && fentry_syscalls[nr]))
		return 0;
	u32 t, n = exit ? 1 : 7;
	u64 *w = quick_from(c, was, goroutine, 1 + n, &t);
	if (!w)
		return 0;
	syscall_arguments(r, words + 1);
	w = open_record(w, t, FT_REC_SYS, n);
	if (exit)
		w[-1] |= (u64)FT_ID_EXIT << 32;
	for (u32 i = 0; i < n; i++)
		w[i] = exit ? result : words[i];
	end_record(w);
	quick_back(w + n, t, was, goroutine);
	return 1;
}

hidden void fentry_slow_go_syscall(const struct sysregs *r, int exit, u64 g);

/* fentry_slow_go_syscall records that a system call begins or ends which Go's own code makes. A child in its parent's place
   (vfork) has a block, and so a stack, of its own. */
hidden void fentry_slow_go_syscall(const struct sysregs *r, int exit, u64 g)
{
	u64 goroutine = g ? *(u64 *)(g + fentry_image.goroutine) : 0, sp = *(const u64 *)(r + 1);
	if (!is_threads(g, sp, fentry_image.thread))
		return;
	own_thread(g, fentry_image.thread);
	if (quick_syscall(r, exit, goroutine))
		return;
	struct sigset old = block();
	struct control *c = traced_thread(), *acts = c ? acting_block(c) : 0;
	if (acts) {
		int aside = acts == c && comes_from(c, goroutine);
		syscall_event(acts, r, sp, exit, counter());
		goes_back(c, aside);
	}
	unblock(old);
}
