/* The function_graph tracer's fast paths: sites before the prologue, whose thunk
   comes here with the caller's return address in x16, and sites behind it, where
   that is at 8(x29). */
#include "macros.h"

	.macro GRAPH_ENTRY name, where
	BEGIN_ENTER \name, \where
	RAW_ID \where
1:	GET_BLOCK x0, 9f
2:	LOAD_RET \where
	CHECK_TAIL 4f
3:	CHECK_STACK \where, 7f
	ldr	x2, [x0, #W(CB_SHADOW)]
	add	x2, x3, x2
	stp	x1, x16, [x2]
	str	x3, [x0, #W(CB_TOP)]
	REPLACE_RET \where
5:	RESERVE 8, 6f, 8f
	str	x3, [x1]
	LEAVE_ENTER \where
	/* A tail call: S is a live frame's, and the function whose body came here by a
	   jump has ended. Its shadow stays, so a loop of tail calls takes no space. */
4:	IS_TAIL 3b
	LEA_SLOT \where, x3
	ldr	x1, [x0, #W(CB_TOP)]
	cmp	x3, x1
	b.ne	7f
	RESERVE 16, 62f, 82f
	OLD_EXIT
	stp	x2, x3, [x1]
	ID_AGAIN
	REPLACE_RET \where
	LEAVE_ENTER \where
6:	SLOW_RECORD \where, 5b
62:	SLOW_RECORD \where, 2b
8:	RETRY 5b
82:	RETRY 2b
9:	FIND_BLOCK_X0 2b
7:	SLOW_ENTER \where, 1b
	END \name
	.endm

	.text
	GRAPH_ENTRY fentry_graph_enter, sp
	GRAPH_ENTRY fentry_mcount_graph_enter, fp

	BEGIN_EXIT fentry_graph_exit
	GET_BLOCK x16, 9f
1:	ldr	x0, [x16, #W(CB_TOP)]
	cmp	sp, x0
	b.ne	6f
3:	RESERVE_EXIT 5f, 8f
	str	x30, [x0]
	UNLINK
	LEAVE_EXIT
8:	RETRY_EXIT 3b
9:	FIND_BLOCK x16, 1b
	b	6f
5:	SLOW_RECORD_EXIT 1b
6:	SLOW_EXIT
	END fentry_graph_exit

	.section .note.GNU-stack, "", %progbits
