/* From a frame to its caller's on x86-64: walk.c. The return address is below the CFA. arm64/caller.h answers the same
   questions. */
#ifndef FENTRY_CALLER_H
#define FENTRY_CALLER_H
#include "cfi.h"
#include "format.h"
#include "image.h"
#include "machine.h"

/* A frame's registers. */
struct registers {
	u64 pc, sp, fp;
	int exact; /* pc is not a return address: a signal has interrupted the frame */
};

/* What a row comes to. */
enum { FROM_SP = 1, FROM_FP, BEHIND_SP, BEHIND_FP, STUB, SIGNAL, ENDS };

/* at: of the frame pointer, from the CFA. behind: BEHIND_SP, BEHIND_FP: the CFA, from what is at offset. moved: of the function
   whose moved instructions these are. */
struct rule { u8 kind, fp, end, nowhere; short at; unsigned short behind; i32 offset; u32 moved; };

/* memory_rule knows the expressions for a CFA that has been saved: *(fp + n) of functions that align their stack, and
   *(sp + n) + k of those in assembly. */
static inline int memory_rule(struct bytes e, struct rule *out)
{
	enum { DEREF = 0x06, PLUS_UCONST = 0x23, BREG = 0x70, MORE_BYTES = 0x80, SIGN = 0x40 };
	const u8 *p = e.p;
	if (p == e.end || (*p != BREG + DWARF_FP && *p != BREG + DWARF_SP))
		return 0;
	*out = (struct rule){ .kind = *p++ == BREG + DWARF_FP ? BEHIND_FP : BEHIND_SP };
	u32 shift = 0;
	for (u8 b = MORE_BYTES; b & MORE_BYTES; p++, shift += 7) {
		if (p == e.end || shift > 14)
			return 0;
		b = *p;
		out->offset |= (i32)(b & 0x7f) << shift;
		if (!(b & MORE_BYTES) && b & SIGN)
			out->offset -= 1 << (shift + 7);
	}
	if (p == e.end || *p++ != DEREF)
		return 0;
	if (p == e.end)
		return 1;
	out->behind = e.end - p == 2 ? p[1] : 0;
	return e.end - p == 2 && p[0] == PLUS_UCONST && !(p[1] & MORE_BYTES);
}

/* by_expression knows the expressions for the CFA that are common: that of linkers' stubs, and those of memory_rule. */
static inline int by_expression(struct bytes e, struct rule *out)
{
	static const u8 stub[] = { 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0, 0x2a, 0x33, 0x24, 0x22 };
	enum { LIT0 = 0x30, FROM = 6 };
	u64 n = (u64)(e.end - e.p);
	if (memory_rule(e, out))
		return 1;
	if (n != sizeof stub || memcmp(e.p, stub, FROM) != 0 || memcmp(e.p + FROM + 1, stub + FROM + 1, n - FROM - 1) != 0)
		return 0;
	*out = (struct rule){ .kind = STUB, .offset = e.p[FROM] - LIT0 };
	return 1;
}

/* has_return says whether a row has the return address where rules have it. An expression of the CIE is the one that
   tracing adds: it looks whether the return address is a thunk's. */
static inline int has_return(const struct fde *f, const struct row *r)
{
	return f->cie.column == DWARF_RET && (r->ret.rule == OTHER ? !r->ret_set : r->ret.rule == SAVED && r->ret.at == -8);
}

/* set_places has a rule say where registers are. It returns 0 where it cannot. */
static inline int set_places(struct rule *rule, const struct row *r)
{
	rule->fp = (u8)r->fp.rule;
	rule->at = (short)r->fp.at;
	return r->fp.at == rule->at;
}

/* is_signal_return: unwind tables say where a handler's caller is the kernel. */
static inline int is_signal_return(u64 pc) { return (void)pc, 0; }

/* interrupted takes the registers that a signal has interrupted: the kernel's frame is at the stack pointer
   (struct ucontext), and what is readable ends at hi. */
static inline int interrupted(struct registers *r, u64 hi)
{
	enum { UC_RBP = 120, UC_RSP = 160, UC_RIP = 168 };
	if (r->sp % 8 || hi - r->sp < UC_RIP + 8)
		return 0;
	u64 sp = r->sp;
	*r = (struct registers){ *(u64 *)(sp + UC_RIP), *(u64 *)(sp + UC_RSP), *(u64 *)(sp + UC_RBP), 1 };
	return 1;
}

/* other_cfa is the CFA by a rule that is neither FROM_SP nor FROM_FP, 0: it cannot be there. */
static inline u64 other_cfa(const struct registers *r, struct rule rule, u64 hi)
{
	if (rule.kind == STUB)
		return r->sp + 8 + ((r->pc & 15) >= (u64)rule.offset ? 8 : 0);
	u64 at = (rule.kind == BEHIND_SP ? r->sp : r->fp) + (u64)(i64)rule.offset;
	return at < r->sp || at % 8 || at + 8 > hi ? 0 : *(u64 *)at + rule.behind;
}

/* can_be_cfa says whether a frame can end there. */
static inline int can_be_cfa(const struct registers *r, u64 cfa) { return cfa > r->sp && cfa % 8 == 0; }

/* return_address sets *pc to it. It returns 0 where it cannot be. */
static inline int return_address(const struct registers *r, struct rule rule, u64 cfa, u64 hi, u64 *pc)
{
	(void)r, (void)rule, (void)hi;
	*pc = *(u64 *)(cfa - 8);
	return 1;
}

/* frame_pointer_at is where a rule has the frame pointer from the CFA. Where a function is about to return, its tables do
   not say that it has popped the frame pointer: what was there is still below the stack pointer, where no signal writes. */
static inline i64 frame_pointer_at(struct rule rule) { return rule.at; }
static inline u64 lowest(const struct registers *r) { return r->exact ? r->sp - RED_ZONE : r->sp; }

/* body_of is where a thunk goes on with a function's moved instructions, 0: it has none. */
static inline u64 body_of(const u8 *thunk)
{
	enum { JUMP = 0x840f, LENGTH = 6 }; /* je */
	const u8 *t = thunk + THUNK_BYPASS;
	return *(const u16 *)t == JUMP ? (u64)t + LENGTH + (u64)(i64)*(const i32 *)(t + 2) : 0;
}

/* at_site is the registers behind the prologue of a call whose slot is not known: there is none. */
static inline struct registers at_site(const struct callregs *r) { return (void)r, (struct registers){ .pc = 0 }; }

/* caller_fp is the frame pointer of the call with its return address at slot: behind a prologue it is below that. */
static inline u64 caller_fp(u64 slot, u64 fp) { return fp + 8 == slot ? *(u64 *)fp : fp; }

/* is_end says whether an event of the innermost open call, of which fast paths say nothing here, is its end, and of which
   function: at the entry the slot still has the caller's address. */
static inline int is_end(u64 slot, u32 id, struct image *m, struct function *f)
{
	return (void)id, (void)m, image_returns_to(*(u64 *)slot, f);
}

#endif
