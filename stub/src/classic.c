/* The classic tracer: for programs that call mcount or __fentry__ themselves and are
   linked with the runtime. The return address of a traced function is replaced by
   return_to_handler; the caller's is in the shadow, as with thunks. Where it is
   replaced, parent, is the slot itself on amd64; on arm64 the slot is below the stack
   pointer the function was called with, and the return address in a frame record, or
   in a trampoline's copy of x30.

   No patcher has numbered the functions: an id is the distance of the call from
   the start of the image in words of 4 bytes. No two calls are that near.

   A frame's shadow has besides the return address and the chain
     - its id with FT_ID_EXIT (the entry is in the trace), and in the time's word the
       frame pointer of the caller; or
     - if the user's callbacks follow it: id, depth << 32 and the two lowest bits of
       the call's distance << 62; in the time's word the counter's low 48 bits and
       16 bits of the frame pointer. */
#include "classic.h"
#include "configuration.h"
#include "image.h"
#include "say.h"
#include "sys.h"
#include "text.h"

/* fentry_config and fentry_image, writable */
extern hidden struct config fentry_classic_config;
extern hidden struct image_info fentry_classic_image;

hidden u64 fentry_classic_origin;   /* id: return address of the call minus this, / 4 */
hidden u64 fentry_classic_span;     /* in bytes; 0: no function has an id */
hidden u32 fentry_classic_ready;    /* threads can have control blocks */
hidden u32 fentry_classic_started;  /* the start was tried */
static u64 overrun;
static u32 fp_failures;

enum { DEPTH_MASK = 0x3fffffff };
#define TIME_MASK ((1UL << 48) - 1)

/* own is this image's function with an id of the trace. */
static struct function own(u32 id) { return (struct function){ &fentry_own, id - fentry_own.base }; }

static u64 hash(u64 h, const u8 *p, u64 n)
{
	while (n--)
		h = (h ^ *p++) * 0x100000001b3;
	return h;
}

/* find_build_id looks through notes for the image's build id. */
static void find_build_id(struct image_info *m, const u8 *p, u64 size)
{
	while (size >= 12) {
		u32 name = *(const u32 *)p, desc = *(const u32 *)(p + 4), type = *(const u32 *)(p + 8);
		u64 n = 12 + ((name + 3UL) & -4UL), all = n + ((desc + 3UL) & -4UL);
		if (all > size)
			return;
		if (type == 3 && name == 4 && equal((const char *)p + 12, "GNU") && desc <= sizeof m->build_id) {
			m->idlen = (u8)desc;
			memcpy(m->build_id, p + n, desc);
			return;
		}
		p += all;
		size -= all;
	}
}

/* load_bias is how far the image is from where it was linked. */
static u64 load_bias(void)
{
	const u8 *e = image_start, *ph = e + *(const u64 *)(e + 32);
	u32 n = *(const unsigned short *)(e + 56);
	for (u32 i = 0; i < n; i++) {
		const u8 *p = ph + i * 56;
		if (*(const u32 *)p == 1 /* PT_LOAD */ && *(const u64 *)(p + 8) == 0)
			return (u64)e - *(const u64 *)(p + 16);
	}
	return 0;
}

/* patched says whether the file was patched: then it is not entered in its own code. */
static int patched(void)
{
	return *(const u64 *)(image_start + 24) + load_bias() - (u64)image_start >= (u64)(text_end - image_start);
}

/* describe fills in the configuration, as a patcher would. Readers compute the image id
   likewise: cmd/fentry. */
static void describe(void)
{
	struct config *f = &fentry_classic_config;
	struct image_info *m = &fentry_classic_image;
	const u8 *e = image_start, *ph = e + *(const u64 *)(e + 32);
	u32 n = *(const unsigned short *)(e + 56);
	u64 bias = load_bias(), span = (u64)(text_end - image_start);
	for (u32 i = 0; i < n && !m->idlen; i++) {
		const u8 *p = ph + i * 56;
		if (*(const u32 *)p == 4 /* PT_NOTE */)
			find_build_id(m, (const u8 *)bias + *(const u64 *)(p + 16), *(const u64 *)(p + 40));
	}
	f->version = CONFIG_VERSION;
	f->mode = MODE_GRAPH;
	f->depth = ~0U; /* none; makes the shadow have room for ids */
	m->version = IMAGE_VERSION;
	m->mode = f->mode;
	m->address = (u64)m - bias;
	m->id = hash(hash(hash(0xcbf29ce484222325, e + 16, 16), ph, n * 56UL), m->build_id, m->idlen);
	if (span / 4 < FT_ID_MAX) {
		m->sites = (u32)(span / 4 + 1);
		fentry_classic_origin = (u64)e + MCOUNT_INSN_SIZE - 4;
		fentry_classic_span = span;
	}
	i64 len = readlink("/proc/self/exe", m->path, sizeof m->path - 1);
	if (failed(len))
		m->path[0] = 0;
	m->magic = IMAGE_MAGIC;
	f->magic = CONFIG_MAGIC;
}

/* fentry_classic_start starts the runtime. It is called by the first call of mcount,
   by threads that come at the same time, and before main. */
hidden void fentry_classic_start(void)
{
	static u32 once;
	struct sigset old = block();
	if (cas(&once, 0, 1)) {
		describe();
		fentry_classic_machine();
		fentry_init(0);
		store(&fentry_classic_ready, ready());
		store(&fentry_classic_started, 1);
	} else if (!load(&fentry_classic_started)) {
		sys(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
	}
	unblock(old);
}

/* Before main and other constructors, so that the control base is ours before there
   are threads. Not in a program that was patched or is recorded, as its control base in
   use (where there is but one) or its entry point tells: its calls of mcount may be gone;
   it starts with the first that is left. */
static void early(void)
{
	if (control_base() == 0 && !patched())
		fentry_classic_start();
}
static void (*const early_entry)(void) __attribute__((section(".init_array.00000"), used)) = early;

/* control returns this thread's block, without a system call if it can. Signals need not be blocked then. */
static struct control *control(void)
{
	struct control *c;
	if (!load(&fentry_classic_ready))
		return 0;
	if (!load(&fentry_blocks) && (c = own_block()))
		return c;
	struct sigset old = block();
	c = traced_thread();
	unblock(old);
	return c;
}

/* have_stack makes the stack of slot current for an entry there, which comes from a frame
   with frame pointer fp; 0: there is no shadow for it. */
static int have_stack(struct control *c, u64 slot, u64 fp)
{
	u32 from = c->cur;
	if (!go_to_stack(c, slot) || slot_taken(c, slot, fp))
		return 0;
	if (c->cur != from)
		new_signal(c, slot);
	pop_skipped(c, slot + 1, counter());
	return 1;
}

/* enter records an entry and makes the function return to the handler. */
static void enter(struct control *c, u64 *parent, u64 slot, u32 id, u64 fp)
{
	u64 ret = *parent;
	if (ret == HANDLER) {
		go_to_stack(c, slot);
		pop_skipped(c, slot, counter());
		replace_frame(c, slot, own((u32)*shadow_aux(slot) & ~FT_ID_EXIT), own(id), counter());
		*shadow_time(slot) = fp;
		return;
	}
	if (!have_stack(c, slot, fp)) {
		lose(c, 2);
		return;
	}
	int bottom = top_empty(c->top) && (c->stacks[c->cur].back || fentry_blocks);
	if (open_frame(c, slot, ret, own(id), counter())) {
		*shadow_time(slot) = fp;
		*parent = HANDLER;
	} else if (bottom) {
		leave_stack(c);
	}
}

/* fentry_classic_record does what the fast path cannot. */
hidden void fentry_classic_record(u64 *parent, u64 slot, u32 id, u64 fp)
{
	struct sigset old = block();
	struct control *c = traced_thread();
	if (c)
		enter(c, parent, slot, id, fp);
	unblock(old);
}

static void die(u64 slot)
{
	char n[24] = "0x";
	for (u32 i = 0; i < 16; i++)
		n[2 + i] = "0123456789abcdef"[slot >> (60 - 4 * i) & 15];
	n[18] = 0;
	say("return_to_handler was reached without an open call at stack address ", n, "; the program cannot continue", 0);
	sys(SYS_tgkill, getpid(), gettid(), 6 /* SIGABRT */, 0, 0, 0);
	for (;;)
		__builtin_trap();
}

static void fp_failed(u32 id)
{
	char n[24] = "0x", *e = n + 2;
	u64 v = (own(id).id - 1UL) * 4;
	int shift = 60;
	while (shift > 0 && !(v >> shift))
		shift -= 4;
	for (; shift >= 0; shift -= 4)
		*e++ = "0123456789abcdef"[v >> shift & 15];
	*e = 0;
	if (add(&fp_failures, 1) == 0)
		say("a function returned with another frame pointer than its caller's; it calls mcount at image offset ",
		    n, " or up to 3 bytes after it", 0);
}

/* unlink_frame closes a frame without an event. */
static void unlink_frame(struct control *c, u64 slot)
{
	if (top_slot(c->top) != slot || top_empty(c->top))
		return;
	u64 prev = *shadow_prev(slot), hi = c->stacks[c->cur].hi;
	c->top = top_slot(prev) > slot && top_slot(prev) < hi ? prev : empty_top(c, hi);
}

static u64 hook_time(u64 slot) { return *shadow_time(slot) & TIME_MASK; }

/* hook_return calls the user's callback for a frame that has ended. */
static void hook_return(struct control *c, u64 aux, u64 calltime)
{
	u64 t = counter();
	void (*f)(struct ftrace_graph_ret *) = load(&ftrace_graph_return);
	if ((u64)f == (u64)ftrace_stub || function_trace_stop || c->busy)
		return;
	struct ftrace_graph_ret r = {
		.func = (u64)image_start + (own((u32)aux & ~FT_ID_EXIT).id - 1UL) * 4 + (aux >> 62),
		.overrun = load(&overrun), .calltime = t - ((t - calltime) & TIME_MASK), .rettime = t,
		.depth = (int)((aux >> 32 & DEPTH_MASK) - 1),
	};
	c->busy = 1;
	f(&r);
	c->busy = 0;
}

/* fentry_classic_hooked says whether the frame at slot is followed by callbacks. */
hidden int fentry_classic_hooked(u64 slot)
{
	struct sigset old = block();
	struct control *c = traced_thread();
	int ok = !c || go_to_stack(c, slot); /* its shadow is mapped */
	unblock(old);
	if (!ok || *shadow_ret(slot) == 0)
		die(slot);
	return !(*shadow_aux(slot) & FT_ID_EXIT);
}

/* ftrace_return_to_handler ends the call whose return address was at parent. */
public u64 ftrace_return_to_handler(u64 *parent, u64 fp)
{
	u64 slot = (u64)parent, ret = *shadow_ret(slot), aux = *shadow_aux(slot), t = counter();
	u32 id = (u32)aux & ~FT_ID_EXIT;
	struct sigset old = block();
	struct control *c = traced_thread();
	if (!(aux & FT_ID_EXIT)) {
		u64 calltime = hook_time(slot);
		if (*shadow_time(slot) >> 48 != (fp >> 3 & 0xffff))
			fp_failed(id);
		if (c) {
			go_to_stack(c, slot);
			pop_skipped(c, slot, t);
			unlink_frame(c, slot);
			if (top_empty(c->top))
				leave_stack(c);
		}
		unblock(old);
		if (c)
			hook_return(c, aux, calltime);
		return ret;
	}
	if (*shadow_time(slot) != fp)
		fp_failed(id);
	if (c) {
		go_to_stack(c, slot);
		pop_skipped(c, slot, t);
		close_frame(c, slot, own(id), t);
		if (top_empty(c->top))
			leave_stack(c);
	}
	unblock(old);
	return ret;
}

/* hook_entry asks the user's callback about a call, and follows it if wanted. */
static void hook_entry(struct control *c, u64 *parent, u64 slot, u64 selfpc, u64 fp, u32 id)
{
	u64 aux = 0, time = 0;
	u32 depth = 1;
	struct sigset old = block();
	int ok = have_stack(c, slot, fp), tail = *parent == HANDLER;
	if (!ok)
		add(&overrun, 1);
	if (ok && tail) {
		pop_skipped(c, slot, counter());
		aux = *shadow_aux(slot);
		time = hook_time(slot);
		u64 ret = *shadow_ret(slot);
		*parent = ret; /* that call has ended */
		if (aux & FT_ID_EXIT)
			close_frame(c, slot, own((u32)aux & ~FT_ID_EXIT), counter());
		else
			unlink_frame(c, slot);
	}
	if (ok && !top_empty(c->top))
		depth += (u32)(*shadow_aux(top_slot(c->top)) >> 32) & DEPTH_MASK;
	unblock(old);
	if (!ok)
		return;
	if (tail && !(aux & FT_ID_EXIT))
		hook_return(c, aux, time);
	struct ftrace_graph_ent e = { selfpc, (int)depth - 1 };
	int (*f)(struct ftrace_graph_ent *) = load(&ftrace_graph_entry);
	int follow = 1;
	if ((u64)f != (u64)ftrace_graph_entry_stub) {
		c->busy = 1;
		follow = f(&e);
		c->busy = 0;
	}
	if (!follow)
		return;
	old = block();
	if (have_stack(c, slot, fp)) {
		u64 forced = c->stacks[c->cur].back && top_empty(c->top);
		*shadow_ret(slot) = *parent;
		*shadow_prev(slot) = c->top;
		*shadow_aux(slot) = ((selfpc - (u64)image_start) & 3) << 62 | (u64)(depth & DEPTH_MASK) << 32 | id;
		*shadow_time(slot) = (fp >> 3 & 0xffff) << 48 | (counter() & TIME_MASK);
		c->top = forced ? slot - 8 + TOP_FORCED : slot;
		*parent = HANDLER;
	}
	unblock(old);
}

/* fentry_classic_prepare makes the function whose call of mcount is at selfpc return
   to the handler: for the user's callbacks, or for the trace. */
hidden void fentry_classic_prepare(u64 *parent, u64 slot, u64 selfpc, u64 fp)
{
	u64 off = selfpc - (u64)image_start;
	struct control *c;
	if (function_trace_stop || off >= fentry_classic_span || !(c = control()) || c->busy)
		return;
	u32 id = (u32)(off / 4 + 1) + fentry_own.base;
	if ((u64)load(&ftrace_graph_return) != (u64)ftrace_stub ||
	    (u64)load(&ftrace_graph_entry) != (u64)ftrace_graph_entry_stub)
		hook_entry(c, parent, slot, selfpc, fp, id);
	else if (images_armed())
		fentry_classic_record(parent, slot, id, fp);
}

/* fentry_classic_lost counts a call that cannot be recorded. */
hidden void fentry_classic_lost(void)
{
	if (!images_armed())
		return;
	struct sigset old = block();
	struct control *c = traced_thread();
	if (c)
		lose(c, 2);
	unblock(old);
}

/* fentry_classic_busy_begin says whether a callback may be called here, not being inside one. */
hidden int fentry_classic_busy_begin(void)
{
	struct control *c;
	if (!load(&fentry_classic_started))
		fentry_classic_start();
	if (function_trace_stop || !(c = control()) || c->busy)
		return 0;
	c->busy = 1;
	return 1;
}

hidden void fentry_classic_busy_end(void)
{
	struct control *c = control();
	if (c)
		c->busy = 0;
}

/* fentry_mark writes a mark to the trace. The text is looked at before signals are
   blocked: it is the program's. */
public void fentry_mark(u64 value, const char *text)
{
	u32 n = 0;
	while (text && n < MARK_TEXT && text[n])
		n++;
	if (!load(&fentry_classic_started))
		fentry_classic_start();
	if (!images_armed())
		return;
	struct sigset old = block();
	struct control *c = traced_thread();
	if (c)
		write_mark(c, value, text, n);
	unblock(old);
}
