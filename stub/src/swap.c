/* Functions that swap pieces of their stack: what is open is returned to its callers.

   The stack is copied elsewhere then, and has another one's contents copied in its place. What comes back is to return without
   being traced: the shadow of a slot is another call's by then. So where a frame's return address is a thunk's, the caller's takes
   its place.

   Where a slot does not hold the return address, it is in one of the words between the slot and that of the frame inside of it: of
   all these, functions that are traced have one such word each. */
#include "frame.h"
#include "stack.h"
#include "swap.h"
#include "sys.h"
#include "text.h"
#include "walk.h"

/* instead is what takes the place of a return address of f's, which leads to its thunk: its caller's, signed in the same way. A
   signature has some bits only, so an address can look as if it was signed in other ways, too; the function's code says which it
   is then. */
static u64 instead(u64 was, struct function f, u64 ret, u64 sp)
{
	u64 pc = without_signature(was), is = was, lo, hi;
	int found = 0, differ = 0;
	for (u32 how = UNSIGNED; how < SIGNATURES; how++) {
		if (signed_as(pc, sp, how) != was)
			continue;
		u64 would = signed_as(ret, sp, how);
		differ |= found && would != is;
		is = found ? is : would;
		found = 1;
	}
	return differ && code_around(image_site(f), &lo, &hi) ? signed_as(ret, sp, code_signs(lo, hi)) : is;
}

/* give_back gives the frame at slot its return address back, in the words from an address on. It returns where those of the next
   frame begin. */
static u64 give_back(u64 at, u64 slot)
{
	struct function f;
	u64 ret = *shadow_ret(slot);
	for (at = SLOT_HOLDS ? slot : at; at < slot + SLOT_BELOW; at += 8) {
		u64 *word = (u64 *)at, was = *word;
		if (ret && was % BACK_SIZE == THUNK_RET && image_returns_to(without_signature(was), &f))
			*word = instead(was, f, ret, slot + SLOT_BELOW);
	}
	return at;
}

/* give_back_others does so with frames that are in no chain, in words from an address on: of before a fork, or forgotten. r are
   registers of a frame that is further in than these, for where slots have to be found. */
static void give_back_others(u64 at, struct registers r, u64 hi)
{
	struct ranges known;
	memset(&known, 0, sizeof known);
	if (SLOT_HOLDS)
		while (at < hi && (at % 4096 || readable(at))) /* hi is of the shadow's pieces */
			at = give_back(at, at);
	else
		while (walk_up(&known, &r) && r.sp <= hi)
			if (r.sp > at)
				at = give_back(at, r.sp - SLOT_BELOW);
}

/* swap_frames ends the calls that are open on the current stack, with their slots at from or above. r are the registers of the caller. */
hidden void swap_frames(struct control *c, u64 from, struct registers r)
{
	u64 now = counter(), hi = c->stacks[c->cur].hi, at = from + SLOT_BELOW;
	pop_skipped(c, from, now);
	for (u64 t = c->top; !top_empty(t); t = previous_frame(c, top_slot(t)))
		at = give_back(at, top_slot(t));
	if (!c->chained)
		give_back_others(SLOT_HOLDS ? from : at, r, hi);
	c->chained = 1;
	pop_skipped(c, hi, now);
}
