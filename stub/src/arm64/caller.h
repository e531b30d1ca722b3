/* From a frame to its caller's on arm64: walk.c. amd64/caller.h answers the same questions.

   The return address is in x30 first, and a function saves it where it likes, most of them beside x29, at the bottom of
   the frame. So a rule says where both are. A function that was interrupted may not have saved it at all; one that
   has called another has.

   Return addresses can be signed, those in registers, too. Which bits the signature takes only the kernel knows, and
   xpaclri, which strips it. Processors that do not sign take the instruction for none.

   Tracing changes what tables say of return addresses (arch/arm64, unwind.go and column.go): the place where a function
   saves x30 is in the expression that looks for thunks, for x30 or for the column of the pc.

   Nothing is known of registers but x29 and x30, and tables of compilers need no others. Where a handler returns to has no
   tables, but two instructions that the kernel's vdso, the C library or an emulator has there. */
#ifndef FENTRY_CALLER_H
#define FENTRY_CALLER_H
#include "cfi.h"
#include "format.h"
#include "image.h"
#include "machine.h"
#include "memory.h"

struct registers {
	u64 pc, sp, fp, lr;
	int exact; /* pc is not a return address, and lr is known */
};

enum { FROM_SP = 1, FROM_FP, SIGNAL, ENDS };

/* at: of the return address, from the CFA, if it is saved. beside: of the frame pointer, from there. */
struct rule { u32 kind : 3, fp : 3, in_register : 1, nowhere : 1, end : 8; i32 beside : 16; i32 at, offset; u32 moved; };
_Static_assert(sizeof(struct rule) == 16, "two words");

static inline int by_expression(struct bytes e, struct rule *out) { return (void)e, (void)out, 0; }

static inline int has_return(const struct fde *f, const struct row *r)
{
	return (f->cie.column == DWARF_RET || f->cie.column == DWARF_PC) && (r->ret.rule == SAVED || r->ret.rule == SAME);
}

static inline int set_places(struct rule *rule, const struct row *r)
{
	i64 at = r->ret.rule == SAVED ? r->ret.at : 0, beside = r->fp.rule == SAVED ? r->fp.at - at : 0;
	rule->in_register = r->ret.rule == SAME;
	rule->fp = r->fp.rule & 7;
	rule->at = (i32)at;
	rule->beside = (short)beside;
	return rule->at == at && rule->beside == beside;
}

static inline int is_signal_return(u64 pc)
{
	enum { MOV_X8_RT_SIGRETURN = 0xd2801168, SVC = 0xd4000001 };
	u32 code[2];
	return pc % 4 == 0 && read_own(code, pc, sizeof code) && code[0] == MOV_X8_RT_SIGRETURN && code[1] == SVC;
}

/* What is at the stack pointer is struct rt_sigframe: siginfo, and then struct ucontext. */
static inline int interrupted(struct registers *r, u64 hi)
{
	enum { UCONTEXT = 128, UC_X29 = CONTEXT_PC - 24, UC_X30 = CONTEXT_PC - 16, UC_SP = CONTEXT_PC - 8 };
	if (r->sp % 16 || hi - r->sp < UCONTEXT + CONTEXT_PC + 8)
		return 0;
	u64 uc = r->sp + UCONTEXT;
	*r = (struct registers){ *(u64 *)(uc + CONTEXT_PC), *(u64 *)(uc + UC_SP), *(u64 *)(uc + UC_X29), *(u64 *)(uc + UC_X30), 1 };
	return 1;
}

static inline u64 other_cfa(const struct registers *r, struct rule rule, u64 hi)
{
	return (void)r, (void)rule, (void)hi, 0;
}

/* can_be_cfa: a function that has called none needs no frame. */
static inline int can_be_cfa(const struct registers *r, u64 cfa)
{
	return (cfa > r->sp || (cfa == r->sp && r->exact)) && cfa % 16 == 0;
}

static inline int return_address(const struct registers *r, struct rule rule, u64 cfa, u64 hi, u64 *pc)
{
	u64 at = cfa + (u64)(i64)rule.at;
	if (rule.in_register ? !r->exact : at < r->sp || at % 8 || at + 8 > hi)
		return 0;
	*pc = without_signature(rule.in_register ? r->lr : *(u64 *)at);
	return 1;
}

static inline i64 frame_pointer_at(struct rule rule) { return (i64)rule.at + rule.beside; }
static inline u64 lowest(const struct registers *r) { return r->sp; }

static inline u64 body_of(const u8 *thunk)
{
	enum { FUNC_BODY = 28 }; /* of thunks that do not wait for the end of a call */
	const u32 *t = (const u32 *)(thunk + THUNK_BYPASS);
	if (*t >> 26 != 5) /* b */
		t = (const u32 *)(thunk + FUNC_BODY);
	return *t >> 26 == 5 ? (u64)t + (u64)((i64)((u64)*t << 38) >> 36) : 0;
}

/* at_site: fentry_mcount_actfunc_enter has saved the function's own frame record, and where it goes on. */
static inline struct registers at_site(const struct callregs *r)
{
	return (struct registers){ .pc = r->saved->x30, .sp = (u64)(r->saved + 1), .fp = r->saved->x29 };
}

/* caller_fp: behind a prologue the frame pointer is that of the function's own frame record, which has the caller's. */
static inline u64 caller_fp(u64 slot, u64 fp)
{
	return fp % 8 == 0 && fp <= slot && fp > (u64)__builtin_frame_address(0) ? *(u64 *)fp : fp;
}

static inline int is_end(u64 slot, u32 id, struct image *m, struct function *f)
{
	(void)slot;
	*f = (struct function){ m, id & ~FT_ID_EXIT };
	return (id & FT_ID_EXIT) != 0;
}

#endif
