/* The profile tracer's fast paths: counts and times a function, no events.

   The thread's table of an image has an entry a function (format.h, FT_P_*). A frame's shadow
   has the time of its entry and, to be put back when it is left, the time spent so
   far in the callees of the frame it was called from. The array "active" has for
   every function the slot of its outermost open call, so that recursive calls
   count once in its total time. Counts and sums are added to by ldxr and stxr: a
   signal handler may add to the same ones. A table that is not there yet is made by the
   slow path of the entry (profile.c); whoever comes to an exit has come by one. */
#define LOCAL_IDS /* tables are by these */
#include "macros.h"

	/* Add \value to the word at x\at. Changes x\tmp and w\status. */
	.macro ADD_TO at, value, tmp, status
90:	ldxr	x\tmp, [x\at]
	add	x\tmp, x\tmp, \value
	stxr	w\status, x\tmp, [x\at]
	cbnz	w\status, 90b
	.endm

	/* The call of function x\id whose slot is in x\slot ends now. Leaves its duration
	   in x\time. Changes x\own, x\a, x\b and x\c. What callees have taken is read before
	   the clock: a handler in between must not make the difference negative. */
	.macro END_CALL cb, slot, id, time, own, a, b, c
	SHADOW_TIMES x\a, x\slot, x\cb
	ldr	x\a, [x\a]
	ldr	x\own, [x\cb, #W(CB_CHILD)]
	mrs	x\time, cntvct_el0
	sub	x\time, x\time, x\a
	sub	x\own, x\time, x\own
	TABLE	\c, \cb, T_ENTRIES
	add	x\c, x\c, x\id, lsl #5	/* FT_PROFILE_ENTRY */
	TABLE	\a, \cb, T_ACTIVE
	ldr	x\b, [x\a, x\id, lsl #3]
	cmp	x\b, x\slot
	b.ne	91f			/* inside another call of it */
	str	xzr, [x\a, x\id, lsl #3]
	add	x\c, x\c, #FT_P_TOTAL
	ADD_TO	\c, x\time, \b, \a
	sub	x\c, x\c, #FT_P_TOTAL
91:	add	x\c, x\c, #FT_P_SELF
	ADD_TO	\c, x\own, \b, \a
	ldr	x\b, [x\c, #FT_P_MAX - FT_P_SELF]
	cmp	x\time, x\b
	b.ls	92f
	str	x\time, [x\c, #FT_P_MAX - FT_P_SELF]
92:
	.endm

	.macro PROFILE_ENTRY name, where
	BEGIN_ENTER \name, \where
	RAW_ID \where
1:	GET_BLOCK x0, 9f
2:	LOAD_RET \where
	CHECK_TAIL 4f
3:	CHECK_STACK \where, 7f
	TABLE	2, 0, T_ENTRIES
	cbz	x2, 7f
	ldr	x2, [x0, #W(CB_SHADOW)]
	add	x2, x3, x2
	stp	x1, x16, [x2]
	SHADOW_TIMES x2, x3, x0
	ldr	x1, [x0, #W(CB_CHILD)]
	str	x1, [x2, #8]
	str	x3, [x0, #W(CB_TOP)]
5:	REPLACE_RET \where
	TABLE	1, 0, T_ACTIVE
	ldr	x2, [x1, x17, lsl #3]
	cbnz	x2, 6f
	str	x3, [x1, x17, lsl #3]
6:	TABLE	1, 0, T_ENTRIES
	add	x1, x1, x17, lsl #5	/* FT_PROFILE_ENTRY; FT_P_CALLS is 0 */
	ADD_TO	1, #1, 2, 17
	SHADOW_TIMES x2, x3, x0
	mrs	x1, cntvct_el0
	str	x1, [x2]
	str	xzr, [x0, #W(CB_CHILD)]	/* now: what handlers took until here is none of this call's */
	LEAVE_ENTER \where

	/* A tail call: one call ends and another begins at the same slot. */
4:	IS_TAIL 3b
	LEA_SLOT \where, x3
	ldr	x1, [x0, #W(CB_TOP)]
	cmp	x3, x1
	b.ne	7f
	stp	x4, x5, [sp, #-32]!
	.cfi_adjust_cfa_offset 32
	stp	x6, x7, [sp, #16]
	LOAD	x6, fentry_thunks
	sub	x6, x16, x6
	lsr	x6, x6, #BACK_SHIFT
	add	x6, x6, #1
	END_CALL 0, 3, 6, 1, 2, 4, 5, 7
	SHADOW_TIMES x2, x3, x0
	ldr	x4, [x2, #8]
	add	x4, x4, x1
	str	x4, [x2, #8]
	ldp	x6, x7, [sp, #16]
	ldp	x4, x5, [sp], #32
	.cfi_adjust_cfa_offset -32
	b	5b
9:	FIND_BLOCK_X0 2b
7:	SLOW_ENTER \where, 1b
	END \name
	.endm

	.text
	PROFILE_ENTRY fentry_profile_enter, sp
	PROFILE_ENTRY fentry_mcount_profile_enter, fp

	BEGIN_EXIT fentry_profile_exit
	GET_BLOCK x16, 9f
1:	ldr	x0, [x16, #W(CB_TOP)]
	cmp	sp, x0
	b.ne	6f
	stp	x2, x3, [sp, #-32]!
	.cfi_adjust_cfa_offset 32
	str	x4, [sp, #16]
	and	x17, x17, #0x7fffffff
	END_CALL 16, 0, 17, 1, 30, 2, 3, 4
	SHADOW_TIMES x2, x0, x16
	ldr	x2, [x2, #8]
	add	x1, x1, x2
	str	x1, [x16, #W(CB_CHILD)]
	ldr	x4, [sp, #16]
	ldp	x2, x3, [sp], #32
	.cfi_adjust_cfa_offset -32
	UNLINK
	LEAVE_EXIT
9:	FIND_BLOCK x16, 1b
6:	SLOW_EXIT
	END fentry_profile_exit

	.section .note.GNU-stack, "", %progbits
