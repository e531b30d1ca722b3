/* The classic tracer on AArch64. A frame's slot is SLOT below S, the stack pointer that
   its function is called with, as for thunks. */
#include "classic.h"
#include "classic-frames.h"
#include "say.h"
#include "sys.h"

static u32 no_frames;

enum { SLOT = 16 };

hidden void fentry_classic_machine(void) { fentry_classic_find_frames(); }

/* fentry_classic_mcount is for functions that call _mcount: record is where x29 points,
   sp the stack pointer at the call. The return address in the record is replaced, and
   signed as it was. Where it cannot be, the call is not traced: that would end the
   program at the function's return. */
hidden void fentry_classic_mcount(u64 *record, u64 selfpc, u64 sp)
{
	u64 w, s, ret, was;
	if (selfpc - (u64)image_start >= (u64)(text_end - image_start))
		return;
	w = fentry_classic_frame(selfpc, sp, (u64)record);
	s = (u64)record + (w & FRAME_SIZE) * 8;
	was = ret = record[1];
	if (w & (FRAME_A | FRAME_B)) {
		ret = without_signature(was);
		if (with_signature(ret, s, !!(w & FRAME_B)) != was)
			w = 0;
	}
	if (!(w & (FRAME_PLAIN | FRAME_A | FRAME_B))) {
		if (add(&no_frames, 1) == 0)
			say("functions without unwind information are not traced (gcc -fno-asynchronous-unwind-tables)", 0, 0, 0);
		fentry_classic_lost();
		return;
	}
	u64 before = ret;
	fentry_classic_prepare(&ret, s - SLOT, selfpc, record[0]);
	if (ret != before)
		record[1] = w & FRAME_PLAIN ? ret : with_signature(ret, s, !!(w & FRAME_B));
}

/* fentry_classic_returns is where the function whose frame has a slot returns to. */
hidden u64 fentry_classic_returns(u64 slot) { return *shadow_ret(slot); }

/* fentry_classic_parent returns the return address of the function at whose site a
   trampoline was called. */
hidden u64 fentry_classic_parent(const struct ftrace_regs *r)
{
	const u64 *record = (const u64 *)r->record;
	u64 ret = without_signature(record ? record[1] : r->regs[30]), s = r->sp;
	if (ret != HANDLER)
		return ret;
	if (record)
		s = (u64)record + (fentry_classic_frame(r->pc - MCOUNT_INSN_SIZE, s, (u64)record) & FRAME_SIZE) * 8;
	return *shadow_ret(s - SLOT);
}

public void prepare_ftrace_return(u64 *parent, u64 selfpc, u64 fp, u64 sp)
{
	fentry_classic_prepare(parent, sp - SLOT, selfpc, fp);
}

/* ftrace_graph_ret_addr undoes the replacement of a return address that was found at
   retp, in a frame record. The frame it belongs to is the innermost open one whose
   function was called with a stack pointer above that. */
public u64 ftrace_graph_ret_addr(u64 ret, u64 *retp)
{
	if (without_signature(ret) != HANDLER)
		return ret;
	struct sigset old = block();
	struct control *c = traced_thread();
	u64 top = c ? c->top : TOP_EMPTY;
	while (!top_empty(top)) {
		u64 slot = top_slot(top), next = *shadow_prev(slot);
		if (slot + SLOT > (u64)retp) {
			ret = *shadow_ret(slot);
			break;
		}
		if (!top_empty(next) && top_slot(next) <= slot)
			break; /* it was never written */
		top = next;
	}
	unblock(old);
	return ret;
}
