/* Entry points of the classic tracer: _mcount, which functions compiled with -pg call
   themselves; ftrace_caller and its like, which rewritten sites call; and the handler
   that traced functions return to. classic.c and classic-machine.c have what is rare.

   What is live at a site: behind a prologue what any function keeps, since for the
   compiler _mcount is a function; before one everything but x9 to x17 (AAPCS64 6.1.1),
   which are kept too, except x9, as compilers that see both functions know better
   (-fipa-ra). x18 is a nested function's static chain, or the platform's.

   C functions keep of v8 to v15 the low halves, of the others nothing (AAPCS64 6.1.2), and
   know nothing of what is above 128 bits and of p0 to p15, which functions that have
   arguments in them keep for their callers (6.1.3). So around a callback all of them are
   saved, and around the runtime's own functions, which use none but make system calls,
   what those take (sve.S). */
#include "macros.h"
#include "classic-frames.h"

#define PUBLIC(f) .globl f; .type f, %function

/* inside of functions, where HIDDEN would align */
#define INNER(f) .globl f; .hidden f; .type f, %function
#define UNCHECKED_BASE 8 /* UNCHECKED of machine.h: control bases are so far above the block */
#define SIGNED	32	/* bit of _mcount's x9, above the id */
#define SLOT	16	/* of a frame: so far below the stack pointer at the call */

	.macro BTI_C
	hint	#34
	.endm
	.macro LOADW x, w, name
	adrp	\x, \name
	ldr	\w, [\x, #:lo12:\name]
	.endm
	.macro ADDRESS reg, name
	adrp	\reg, \name
	add	\reg, \reg, #:lo12:\name
	.endm

	/* Go to hooks if a callback of the program's is set. Changes x9, x10. */
	.macro CHECK_HOOKS hooks
	ADDRESS	x9, ftrace_stub
	LOAD	x10, ftrace_trace_function
	cmp	x9, x10
	b.ne	\hooks
	LOAD	x10, ftrace_graph_return
	cmp	x9, x10
	b.ne	\hooks
	ADDRESS	x9, ftrace_graph_entry_stub
	LOAD	x10, ftrace_graph_entry
	cmp	x9, x10
	b.ne	\hooks
	.endm

	/* Around C functions, in _mcount: x0 to x8, x18 and what is in x9 and x11. */
	.macro SAVE_ARGS
	stp	x29, x30, [sp, #-112]!
	.cfi_def_cfa_offset 112
	.cfi_rel_offset x29, 0
	.cfi_rel_offset x30, 8
	stp	x0, x1, [sp, #16]
	stp	x2, x3, [sp, #32]
	stp	x4, x5, [sp, #48]
	stp	x6, x7, [sp, #64]
	stp	x8, x18, [sp, #80]
	stp	x9, x11, [sp, #96]
	mov	x29, sp
	.endm
	.macro RESTORE_ARGS
	ldp	x0, x1, [sp, #16]
	ldp	x2, x3, [sp, #32]
	ldp	x4, x5, [sp, #48]
	ldp	x6, x7, [sp, #64]
	ldp	x8, x18, [sp, #80]
	ldp	x9, x11, [sp, #96]
	ldp	x29, x30, [sp], #112
	.cfi_def_cfa_offset 0
	.cfi_restore x29
	.cfi_restore x30
	.endm

	/* Reserve n bytes at x12 for an event of now, which is to be x14, its id in \id:
	   the same as RESERVE of macros.h in registers that are free here. The block is
	   x10. Changes x13, x16. */
	.macro RESERVE_CLASSIC n, id, full
10:	ldp	x12, x13, [x10]
	cmp	x12, x13
	b.hs	\full
	mrs	x14, cntvct_el0
	ldr	w13, [x10, #W(CB_HIGH)]
	eor	x13, x13, x14, lsr #32
	cbnz	x13, \full
	bfi	x14, \id, #32, #31
	ldxr	x13, [x10]
	cmp	x13, x12
	b.ne	10b
	add	x13, x13, #\n
	stxr	w16, x13, [x10]
	cbnz	w16, 10b
	.endm

	.text
	.p2align 6
PUBLIC(_mcount)
_mcount:
	.cfi_startproc
	BTI_C
	LOADW	x9, w9, function_trace_stop
	cbnz	w9, 90f
	CHECK_HOOKS 98f
	LOADW	x9, w9, fentry_armed
	cbz	w9, 97f

	/* x9 the id, x11 the slot, x12 the return address */
1:	LOAD	x9, fentry_classic_origin
	LOAD	x10, fentry_classic_span
	sub	x9, x30, x9
	sub	x11, x9, #4
	cmp	x11, x10
	b.hs	90f
	lsr	x9, x9, #2
	lsr	x10, x11, #2
	LOADW	x12, w12, fentry_id_base
	add	w9, w9, w12
	ubfx	x11, x10, #2, #FRAMES_BITS
	ADDRESS	x12, fentry_classic_frames
	ldr	x11, [x12, x11, lsl #3]
	cmp	x10, x11, lsr #FRAME_KEY
	b.ne	7f
	ldr	x12, [x29, #8]
	mov	x17, x11
	and	x11, x11, #FRAME_SIZE
	add	x11, x29, x11, lsl #3
	sub	x11, x11, #SLOT
	tbz	w17, #31, 8f		/* FRAME_PLAIN */

	/* x10 the block */
15:	GET_BLOCK x10, 6f
2:	ADDRESS	x13, return_to_handler
	ldp	x14, x15, [x10, #W(CB_TOP)]
	cmp	x12, x13
	b.eq	4f
	cmp	x11, x14
	b.hs	7f			/* frames were skipped, or this is another stack */
	cmp	x11, x15
	b.lo	7f
	ldp	x15, x16, [x10, #W(CB_SHADOW)]
	add	x15, x11, x15
	stp	x14, x12, [x15]
	ldr	x12, [x29]
	orr	w14, w9, #FT_ID_EXIT
	add	x15, x11, x16
	stp	x12, x14, [x15]		/* the caller's frame pointer in the time's place */
	str	x11, [x10, #W(CB_TOP)]
3:	RESERVE_CLASSIC 8, x9, 5f
	str	x14, [x12]
35:	ADDRESS	x17, return_to_handler
	tbz	x9, #SIGNED, 36f
	add	x16, x11, #SLOT
	hint	#8			/* pacia1716 */
36:	str	x17, [x29, #8]
90:	ret

	/* A tail call: the function that came here by a jump has ended. */
4:	cmp	x11, x14
	b.ne	7f
	ldr	x16, [x10, #W(CB_SHADOW_AUX)]
	add	x15, x11, x16
	ldr	w17, [x15, #8]
	tbz	w17, #31, 7f		/* it was followed by callbacks */
	RESERVE_CLASSIC 16, x9, 7f
	lsl	x13, x17, #32
	bfxil	x13, x14, #0, #32
	stp	x13, x14, [x12]
	orr	w14, w9, #FT_ID_EXIT
	str	x14, [x15, #8]
	ret

5:	SAVE_ARGS
	bl	fentry_slow_record
	add	x10, x0, #UNCHECKED_BASE
	mov	x12, x0
	RESTORE_ARGS
	cbnz	x12, 3b
	b	35b

6:	cbz	x10, 7f
	ldr	x14, [x10, #CB_LIBTID]
	cbz	x14, 65f
	ldr	w14, [x14]
	ldr	w15, [x10, #CB_TID]
	cmp	w14, w15
	b.ne	7f
65:	add	x10, x10, #UNCHECKED_BASE
	b	2b

	/* Signed, by key A if here: x12 without that, if it is what it would be. */
8:	tbz	w17, #30, 7f		/* FRAME_A */
	orr	x9, x9, #1 << SIGNED
	mov	x13, x30
	mov	x30, x12
	hint	#7			/* xpaclri */
	mov	x17, x30
	mov	x14, x30
	mov	x30, x13
	add	x16, x11, #SLOT
	hint	#8			/* pacia1716 */
	cmp	x17, x12
	mov	x12, x14
	b.eq	15b

7:	SAVE_ARGS
	ldr	x0, [sp]		/* the function's frame record */
	sub	x1, x30, #4
	add	x2, sp, #112
	bl	fentry_classic_mcount
	RESTORE_ARGS
	ret

97:	LOADW	x9, w9, fentry_classic_started
	cbnz	w9, 90b
	SAVE_ARGS
	bl	fentry_classic_start
	RESTORE_ARGS
	LOADW	x9, w9, fentry_armed
	cbnz	w9, 1b
	ret
98:	b	mcount_hooks
	.cfi_endproc
	.size	_mcount, . - _mcount

/* The block of registers that callbacks get, struct ftrace_regs: Linux's pt_regs. */
#define R_X(n)		(8 * (n))
#define R_FP		232
#define R_LR		240
#define R_SP		248
#define R_PC		256
#define R_PSTATE	264
#define R_ORIG_X0	272
#define R_ALL		280
#define R_RECORD	288	/* behind the prologue: the function's frame record; before it 0 */
#define R_FRAME		304	/* the trampoline's frame record, to which x29 points */
#define R_SIZE		336
#define R_SITE_FRAME	336	/* a frame record for the traced function, which has none yet */
#define FRAME_BYTES	352
#define R(x)		[x29, #(x) - R_FRAME]

	/* The function the site is in comes next in a backtrace, at the address in the pc slot,
	   and its x30 is another. So the return address goes under x17's name for unwinders,
	   which can deal with that, and under that of the pc, column 32, for debuggers.
	   Unwinders get one more: they look up what is before it, and gcc's unwind
	   information begins behind the nops. */
	.macro PC_COLUMN
	.cfi_return_column 17
	.endm
	.macro PC_IN reg
	.cfi_escape 0x16, 17, 2, 0x70 + \reg, 1		/* x17 = reg + 1 */
	.cfi_escape 0x09, 32, \reg
	.endm
	.macro PC_SAVED
	.cfi_escape 0x16, 17, 6, 0x08, FRAME_BYTES - R_PC, 0x1c, 0x06, 0x23, 1	/* x17 = the word there + 1 */
	.cfi_escape 0x05, 32, (FRAME_BYTES - R_PC) / 8
	.endm

	/* At a site. where: lr, x9 and x30 are as a site of two instructions leaves them;
	   fp, behind the prologue. all: the callback may want every register. */
	.macro ENTRY where, all
	.cfi_startproc
	PC_COLUMN
	.ifc \where, lr
	PC_IN 30
	.cfi_register 30, 9
	.else
	PC_IN 30
	.endif
	BTI_C
	sub	sp, sp, #FRAME_BYTES
	.cfi_def_cfa_offset FRAME_BYTES
	stp	x0, x1, [sp, #R_X(0)]
	stp	x2, x3, [sp, #R_X(2)]
	stp	x4, x5, [sp, #R_X(4)]
	stp	x6, x7, [sp, #R_X(6)]
	stp	x8, x9, [sp, #R_X(8)]
	stp	x10, x11, [sp, #R_X(10)]
	stp	x12, x13, [sp, #R_X(12)]
	stp	x14, x15, [sp, #R_X(14)]
	stp	x16, x17, [sp, #R_X(16)]
	.if \all
	stp	x18, x19, [sp, #R_X(18)]
	stp	x20, x21, [sp, #R_X(20)]
	stp	x22, x23, [sp, #R_X(22)]
	stp	x24, x25, [sp, #R_X(24)]
	stp	x26, x27, [sp, #R_X(26)]
	stp	x28, x29, [sp, #R_X(28)]
	mrs	x10, nzcv
	mov	x11, #1
	.else
	str	x18, [sp, #R_X(18)]
	str	x29, [sp, #R_FP]
	mov	x10, #0
	mov	x11, #0
	.endif
	stp	x10, xzr, [sp, #R_PSTATE]
	add	x10, sp, #FRAME_BYTES
	.ifc \where, lr
	stp	x11, xzr, [sp, #R_ALL]
	stp	x9, x10, [sp, #R_LR]
	.else
	stp	x11, x29, [sp, #R_ALL]
	stp	x30, x10, [sp, #R_LR]
	.endif
	str	x30, [sp, #R_PC]
	PC_SAVED
	.cfi_offset 30, R_LR - FRAME_BYTES
	.ifc \where, lr
	stp	x29, x9, [sp, #R_SITE_FRAME]
	add	x29, sp, #R_SITE_FRAME
	.endif
	stp	x29, x30, [sp, #R_FRAME]
	add	x29, sp, #R_FRAME
	.cfi_def_cfa 29, FRAME_BYTES - R_FRAME
	.cfi_offset 29, R_FP - FRAME_BYTES
	.endm

	/* For code that has ENTRY's frame. */
	.macro IN_FRAME
	.cfi_startproc
	PC_COLUMN
	.cfi_def_cfa 29, FRAME_BYTES - R_FRAME
	PC_SAVED
	.cfi_offset 30, R_LR - FRAME_BYTES
	.cfi_offset 29, R_FP - FRAME_BYTES
	.endm

	/* Arguments of a callback are first, second, op, regs; to fentry_frame_restore if none
	   may be called here. */
	.macro CALL_ARGS ip, parent
	bl	fentry_classic_busy_begin
	cbz	w0, fentry_frame_restore
	bl	fentry_save_vectors
	sub	x0, x29, #R_FRAME
	bl	fentry_classic_parent
	.ifnc \parent, x0
	mov	\parent, x0
	.endif
	ldr	\ip, R(R_PC)
	sub	\ip, \ip, #4
	LOAD	x2, function_trace_op
	sub	x3, x29, #R_FRAME
	.endm

	.p2align 4
PUBLIC(ftrace_regs_caller)
ftrace_regs_caller:
	ENTRY	lr, 1
	b	ftrace_common
	.cfi_endproc
	.size	ftrace_regs_caller, . - ftrace_regs_caller

	.p2align 4
PUBLIC(ftrace_caller)
ftrace_caller:
	ENTRY	lr, 0
	b	ftrace_common
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller

	.p2align 4
HIDDEN(ftrace_common)
ftrace_common:
	IN_FRAME
	CALL_ARGS x0, x1
	.globl	ftrace_call
ftrace_call:
	bl	ftrace_stub
	.globl	ftrace_graph_call
ftrace_graph_call:
	nop				/* or b ftrace_graph_caller */
INNER(ftrace_common_return)
ftrace_common_return:
	bl	fentry_classic_busy_end
2:	bl	fentry_restore_vectors
INNER(fentry_frame_restore)
fentry_frame_restore:
	sub	sp, x29, #R_FRAME
	.cfi_def_cfa 31, FRAME_BYTES
	ldr	x9, [sp, #R_ALL]
	cbz	x9, 1f
	ldp	x19, x20, [sp, #R_X(19)]
	ldp	x21, x22, [sp, #R_X(21)]
	ldp	x23, x24, [sp, #R_X(23)]
	ldp	x25, x26, [sp, #R_X(25)]
	ldp	x27, x28, [sp, #R_X(27)]
	ldr	x10, [sp, #R_PSTATE]
	msr	nzcv, x10
1:	ldp	x0, x1, [sp, #R_X(0)]
	ldp	x2, x3, [sp, #R_X(2)]
	ldp	x4, x5, [sp, #R_X(4)]
	ldp	x6, x7, [sp, #R_X(6)]
	ldr	x8, [sp, #R_X(8)]
	ldp	x10, x11, [sp, #R_X(10)]
	ldp	x12, x13, [sp, #R_X(12)]
	ldp	x14, x15, [sp, #R_X(14)]
	ldr	x18, [sp, #R_X(18)]
	ldr	x29, [sp, #R_FP]
	.cfi_same_value 29
	ldr	x9, [sp, #R_ORIG_X0]
	cbnz	x9, 3f
	ldp	x16, x17, [sp, #R_X(16)]
	ldr	x30, [sp, #R_LR]
	ldr	x9, [sp, #R_PC]
	PC_IN 9
	.cfi_same_value 30
	add	sp, sp, #FRAME_BYTES
	.cfi_def_cfa_offset 0
	ret	x9
	/* orig_x0: go there, as if by the site */
	.cfi_def_cfa_offset FRAME_BYTES
	PC_SAVED
	.cfi_offset 30, R_LR - FRAME_BYTES
3:	mov	x16, x9
	ldr	x9, [sp, #R_LR]
	ldr	x30, [sp, #R_PC]
	PC_IN 30
	.cfi_register 30, 9
	add	sp, sp, #FRAME_BYTES
	.cfi_def_cfa_offset 0
	br	x16
	.cfi_endproc
	.size	ftrace_common, . - ftrace_common
	.size	ftrace_common_return, . - ftrace_common_return
	.size	fentry_frame_restore, . - fentry_frame_restore

	/* Branched to from a trampoline, with its frame. */
	.p2align 4
PUBLIC(ftrace_graph_caller)
ftrace_graph_caller:
	IN_FRAME
	bl	fentry_classic_busy_end
	ldr	x9, R(R_RECORD)
	ldr	x1, R(R_PC)
	sub	x1, x1, #4
	cbnz	x9, 1f
	sub	x0, x29, #R_FRAME - R_LR
	ldr	x2, R(R_FP)
	ldr	x3, R(R_SP)
	bl	prepare_ftrace_return
	b	2b
1:	mov	x0, x9
	ldr	x2, R(R_SP)
	bl	fentry_classic_mcount
	b	2b
	.cfi_endproc
	.size	ftrace_graph_caller, . - ftrace_graph_caller

	/* For sites behind the prologue: x9 is dead, and the return address is in the
	   function's frame record. */
	.p2align 4
PUBLIC(ftrace_mcount_caller)
ftrace_mcount_caller:
	ENTRY	fp, 0
	CALL_ARGS x0, x1
	.globl	ftrace_mcount_call
ftrace_mcount_call:
	bl	ftrace_stub
	.globl	ftrace_graph_mcount_call
ftrace_graph_mcount_call:
	nop				/* or b ftrace_graph_caller */
	b	ftrace_common_return
	.cfi_endproc
	.size	ftrace_mcount_caller, . - ftrace_mcount_caller

	/* What _mcount comes to when callbacks are set: the order of the kernel's mcount. */
	.p2align 4
HIDDEN(mcount_hooks)
mcount_hooks:
	ENTRY	fp, 0
	CALL_ARGS x1, x0
	LOAD	x9, ftrace_trace_function
	ADDRESS	x10, ftrace_stub
	cmp	x9, x10
	b.eq	ftrace_graph_caller
	blr	x9
	b	ftrace_graph_caller
	.cfi_endproc
	.size	mcount_hooks, . - mcount_hooks

	.p2align 4
PUBLIC(ftrace_stub)
PUBLIC(ftrace_stub_graph)
ftrace_stub:
ftrace_stub_graph:
	.cfi_startproc
	BTI_C
	ret
	.cfi_endproc
	.size	ftrace_stub, . - ftrace_stub
	.size	ftrace_stub_graph, . - ftrace_stub_graph

	.p2align 4
PUBLIC(ftrace_graph_entry_stub)
ftrace_graph_entry_stub:
	.cfi_startproc
	BTI_C
	mov	w0, #0
	ret
	.cfi_endproc
	.size	ftrace_graph_entry_stub, . - ftrace_graph_entry_stub

	/* Vector registers and their modes, to room that is made on the stack, and back from
	   there. Callers have a frame with x29. Callbacks run outside of streaming mode.
	   Change x9 to x13. */
	.macro Q_REGS op
	\op	q0, q1, [sp, #0]
	\op	q2, q3, [sp, #32]
	\op	q4, q5, [sp, #64]
	\op	q6, q7, [sp, #96]
	\op	q8, q9, [sp, #128]
	\op	q10, q11, [sp, #160]
	\op	q12, q13, [sp, #192]
	\op	q14, q15, [sp, #224]
	\op	q16, q17, [sp, #256]
	\op	q18, q19, [sp, #288]
	\op	q20, q21, [sp, #320]
	\op	q22, q23, [sp, #352]
	\op	q24, q25, [sp, #384]
	\op	q26, q27, [sp, #416]
	\op	q28, q29, [sp, #448]
	\op	q30, q31, [sp, #480]
	.endm

	.p2align 4
HIDDEN(fentry_save_vectors)
fentry_save_vectors:
	.cfi_startproc
	mov	x13, x30
	.cfi_register 30, 13
	bl	fentry_sve_save
	ldr	x9, [sp]
	mrs	x10, fpcr
	tbz	x9, #KEPT_STREAMING, 1f
	.inst	0xd503427f		/* smstop sm */
1:	tbnz	x9, #KEPT_REGISTERS, 2f
	sub	sp, sp, #512
	Q_REGS	stp
2:	stp	x9, x10, [sp, #-16]!
	ret	x13
	.cfi_endproc
	.size	fentry_save_vectors, . - fentry_save_vectors

	.p2align 4
HIDDEN(fentry_restore_vectors)
fentry_restore_vectors:
	.cfi_startproc
	mov	x13, x30
	.cfi_register 30, 13
	ldp	x9, x10, [sp], #16
	msr	fpcr, x10
	tbnz	x9, #KEPT_REGISTERS, 1f
	Q_REGS	ldp
	add	sp, sp, #512
1:	bl	fentry_sve_restore
	ret	x13
	.cfi_endproc
	.size	fentry_restore_vectors, . - fentry_restore_vectors

	/* Where traced functions return to: the stack pointer is again what it was at the
	   call. Every register is as the function left it, for whoever knows what it leaves
	   alone; x16 and x17 may be changed on any way.

	   Unwinders and debuggers look up a return address minus 1, so the rows begin an
	   instruction before, and that has a name. */
#define H_BYTES	160
#define H_VECTORS 152	/* whether they were saved */
	.p2align 4
	.cfi_startproc
	.cfi_def_cfa 31, 1
	CFI_SHADOW_FRAME
PUBLIC(ftrace_return)
ftrace_return:
	nop
PUBLIC(return_to_handler)
return_to_handler:
	stp	x0, x1, [sp, #-16]!	/* at the slot */
	.cfi_adjust_cfa_offset 16
	GET_BLOCK x16, 9f
1:	ldr	x0, [x16, #W(CB_TOP)]
	cmp	sp, x0
	b.ne	6f
	ldr	x0, [x16, #W(CB_SHADOW_AUX)]
	add	x0, sp, x0
	ldp	x0, x17, [x0]
	tbz	w17, #31, 6f		/* followed by callbacks */
	cmp	x0, x29			/* the frame-pointer test */
	b.ne	6f
3:	RESERVE_EXIT 6f, 8f
	str	x30, [x0]
	UNLINK
	LEAVE_EXIT
8:	RETRY_EXIT 3b
9:	FIND_BLOCK x16, 1b
6:	ldp	x0, x1, [sp], #16
	.cfi_adjust_cfa_offset -16
	stp	x29, x30, [sp, #-H_BYTES]!
	.cfi_def_cfa_offset H_BYTES + 1
	.cfi_escape 0x10, 29, 2, 0x8f, 0	/* x29 is at 0(sp) */
	stp	x0, x1, [sp, #16]
	stp	x2, x3, [sp, #32]
	stp	x4, x5, [sp, #48]
	stp	x6, x7, [sp, #64]
	stp	x8, x9, [sp, #80]
	stp	x10, x11, [sp, #96]
	stp	x12, x13, [sp, #112]
	stp	x14, x15, [sp, #128]
	str	x18, [sp, #144]
	mov	x29, sp
	.cfi_def_cfa_register 29
	.cfi_escape 0x10, 29, 2, 0x8d, 0	/* x29 is at 0(x29) */
	add	x0, x29, #H_BYTES - SLOT
	bl	fentry_classic_hooked
	LOADW	x9, w9, fentry_sve	/* system calls forget those registers */
	orr	w9, w9, w0
	str	w9, [x29, #H_VECTORS]
	cbz	w9, 1f
	bl	fentry_save_vectors
1:	add	x0, x29, #H_BYTES - SLOT
	bl	fentry_classic_returns
	str	x0, [x29, #8]		/* for those who follow frame records, too */
	add	x0, x29, #H_BYTES - SLOT
	ldr	x1, [x29]
	bl	ftrace_return_to_handler
	str	x0, [x29, #8]
	ldr	w9, [x29, #H_VECTORS]
	cbz	w9, 2f
	bl	fentry_restore_vectors
2:	mov	sp, x29
	.cfi_def_cfa_register 31
	ldp	x0, x1, [sp, #16]
	ldp	x2, x3, [sp, #32]
	ldp	x4, x5, [sp, #48]
	ldp	x6, x7, [sp, #64]
	ldp	x8, x9, [sp, #80]
	ldp	x10, x11, [sp, #96]
	ldp	x12, x13, [sp, #112]
	ldp	x14, x15, [sp, #128]
	ldr	x18, [sp, #144]
	ldp	x29, x30, [sp], #H_BYTES
	.cfi_def_cfa_offset 1
	.cfi_restore 29
	ret
	.cfi_endproc
	.size	return_to_handler, . - return_to_handler
	.size	ftrace_return, return_to_handler - ftrace_return

	.data
	.p2align 3
	.macro VARIABLE name, size
	.globl	\name
	.type	\name, %object
	.size	\name, \size
\name:
	.endm
	VARIABLE ftrace_trace_function, 8
	.quad	ftrace_stub
	VARIABLE ftrace_graph_return, 8
	.quad	ftrace_stub
	VARIABLE ftrace_graph_entry, 8
	.quad	ftrace_graph_entry_stub
	.bss
	.p2align 3
	VARIABLE function_trace_op, 8
	.zero	8
	VARIABLE function_trace_stop, 4
	.zero	4

	.section .note.GNU-stack, "", %progbits
