/* The function_graph tracer's fast paths with a limit of depth, a threshold, graph
   roots, or functions that are left out with all inside them.

   A frame's shadow has its function's id, whether its entry is in the trace, and
   its depth; and, with a threshold, the time of its entry. An entry that the
   threshold holds back is written when the call, or one inside it, has lasted that
   long: in C, as is everything else that is rare.

   Functions that are left out have routines of their own, so nobody pays for asking
   whether a function is one. Their frames are deeper than any limit (frame.c). */
#include "macros.h"

	.macro OPT_ENTRY name, where
	BEGIN_ENTER \name, \where
	RAW_ID \where
1:	GET_BLOCK x0, 9f
2:	LOAD_RET \where
	CHECK_TAIL 4f
3:	CHECK_STACK \where, 7f
	/* depth of the new frame, to w2 */
	mov	w2, #1
	tst	x1, #7
	b.ne	5f			/* nothing is open, or a frame with a tag */
	SHADOW_TIMES x2, x1, x0
	ldr	w2, [x2, #12]
	add	w2, w2, #1
	adrp	x3, fentry_depth
	ldr	w3, [x3, #:lo12:fentry_depth]
	cmp	w2, w3
	b.hi	6f
30:	ID_ENTER 3, x0
	add	w3, w3, w17		/* in the trace: whoever writes a held entry may be another image */
	orr	x2, x3, x2, lsl #32
	LEA_SLOT \where, x3
	SHADOW_TIMES x17, x3, x0
	str	x2, [x17, #8]
	ldr	x17, [x0, #W(CB_SHADOW)]
	add	x17, x3, x17
	stp	x1, x16, [x17]
	ID_ENTER 17, x0
	sub	w17, w2, w17
	str	x3, [x0, #W(CB_TOP)]
	REPLACE_RET \where
	LOAD	x1, fentry_threshold
	cbz	x1, 31f
	SHADOW_TIMES x2, x3, x0
	mrs	x1, cntvct_el0
	str	x1, [x2]
	LEAVE_ENTER \where
31:	RESERVE 8, 8f, 81f
	str	x3, [x1]
	LEA_SLOT \where, x3
	SHADOW_TIMES x2, x3, x0
	ldr	w1, [x2, #8]
	orr	w1, w1, #FT_ID_EXIT	/* its entry is in the trace */
	str	w1, [x2, #8]
	LEAVE_ENTER \where

	/* A tail call. One that is held back and short leaves nothing. */
4:	IS_TAIL 3b
	LEA_SLOT \where, x3
	ldr	x1, [x0, #W(CB_TOP)]
	cmp	x3, x1
	b.ne	7f
	SHADOW_TIMES x2, x3, x0
	ldr	w1, [x2, #8]
	tbz	w1, #31, 41f
	LOAD	x1, fentry_threshold
	cbnz	x1, 7f
	RESERVE 16, 62f, 82f
	OLD_EXIT
	stp	x2, x3, [x1]
	ID_AGAIN
	LEA_SLOT \where, x3
	SHADOW_TIMES x2, x3, x0
	mov	w1, #FT_ID_EXIT
	str	w1, [x2, #8]		/* the depth stays */
	REPLACE_RET \where
	LEAVE_ENTER \where
41:	LOAD	x1, fentry_threshold
	cbz	x1, 44f
	ldr	x3, [x2]
	add	x1, x1, x3
	mrs	x3, cntvct_el0
	cmp	x3, x1
	b.hs	7f
	str	x3, [x2]
	ID_ENTER 1, x0
	add	w1, w1, w17
	str	w1, [x2, #8]
	REPLACE_RET \where
	LEAVE_ENTER \where

	/* The function was left out, and so is what it jumps to. */
44:	ldr	w1, [x2, #12]
	tbz	w1, #31, 7f
	REPLACE_RET \where
	LEAVE_ENTER \where

	/* At the bottom of a stack only graph roots are recorded, if there are any. */
5:	and	x3, x1, #7
	cmp	x3, #TOP_EMPTY
	b.ne	7f
	LOAD	x3, fentry_roots
	cbz	x3, 30b
	LOCAL_ID 2
	add	x3, x3, x2, lsr #3
	ldrb	w3, [x3]
	and	w2, w2, #7
	lsr	w3, w3, w2
	mov	w2, #1
	tbnz	w3, #0, 30b
6:	SKIP_ENTER \where
8:	SLOW_RECORD \where, 31b
62:	SLOW_RECORD \where, 2b
81:	RETRY 31b
82:	RETRY 2b
9:	FIND_BLOCK_X0 2b
7:	SLOW_ENTER \where, 1b
	END \name
	.endm

	.macro HIDE_ENTRY name, where
	BEGIN_ENTER \name, \where
	RAW_ID \where
1:	GET_BLOCK x0, 9f
2:	LOAD_RET \where
	CHECK_TAIL 4f
3:	CHECK_STACK \where, 7f
	tst	x1, #7
	b.ne	5f
	SHADOW_TIMES x2, x1, x0
	ldr	w2, [x2, #12]
	adrp	x3, fentry_depth
	ldr	w3, [x3, #:lo12:fentry_depth]
	cmp	w2, w3
	b.hs	6f			/* what is inside is too deep anyway */
30:	LEA_SLOT \where, x3
	ldr	x2, [x0, #W(CB_SHADOW)]
	add	x2, x3, x2
	stp	x1, x16, [x2]
	SHADOW_TIMES x2, x3, x0
	mov	x1, #DEPTH_HIDDEN << 32
	str	x1, [x2, #8]
	str	x3, [x0, #W(CB_TOP)]
	REPLACE_RET \where
	LEAVE_ENTER \where
4:	IS_TAIL 3b
	b	7f
5:	and	x3, x1, #7
	cmp	x3, #TOP_EMPTY
	b.eq	30b
	b	7f
6:	SKIP_ENTER \where
9:	FIND_BLOCK_X0 2b
7:	SLOW_ENTER \where, 1b
	END \name
	.endm

	.text
	OPT_ENTRY fentry_opt_enter, sp
	OPT_ENTRY fentry_mcount_opt_enter, fp

	BEGIN_EXIT fentry_opt_exit
	GET_BLOCK x16, 9f
1:	ldr	x0, [x16, #W(CB_TOP)]
	cmp	sp, x0
	b.ne	6f
	SHADOW_TIMES x1, x0, x16
	ldr	w0, [x1, #8]
	tbz	w0, #31, 4f
3:	RESERVE_EXIT 5f, 8f
	str	x30, [x0]
2:	UNLINK
	LEAVE_EXIT
	/* held back */
4:	ldr	x0, [x1]
	mrs	x30, cntvct_el0
	sub	x30, x30, x0
	LOAD	x0, fentry_threshold
	cmp	x30, x0
	b.lo	2b
	ldr	w0, [x1, #12]
	tbnz	w0, #31, 2b		/* hidden */
	b	6f
8:	RETRY_EXIT 3b
9:	FIND_BLOCK x16, 1b
	b	6f
5:	SLOW_RECORD_EXIT 1b
6:	SLOW_EXIT
	END fentry_opt_exit

	HIDE_ENTRY fentry_hide_enter, sp
	HIDE_ENTRY fentry_mcount_hide_enter, fp

	BEGIN_EXIT fentry_hide_exit
	GET_BLOCK x16, 9f
1:	ldr	x0, [x16, #W(CB_TOP)]
	cmp	sp, x0
	b.ne	6f
	UNLINK
	LEAVE_EXIT
9:	FIND_BLOCK x16, 1b
6:	SLOW_EXIT
	END fentry_hide_exit

	.section .note.GNU-stack, "", %progbits
