/* The tracer of counts: an entry adds to the thread's table. A handler that comes between
   the load and the store and counts the same function makes the store fail. Nothing is done
   to return addresses, and x16 is left alone. */
#define LOCAL_IDS
#include "macros.h"

	.text
	.macro COUNT_ENTRY name, body
	BEGIN_ENTER \name, sp
	GET_BLOCK x0, 9f
2:	TABLE	1, 0, T_ENTRIES
	cbz	x1, 7f			/* a forked child's block is zero, too */
	add	x1, x1, w17, uxtw #3
3:	ldxr	x2, [x1]
	add	x2, x2, #1
	stxr	w3, x2, [x1]
	cbnz	w3, 3b
	LEAVE_ENTER sp, \body
9:	FIND_BLOCK_X0 2b
7:	SLOW_ENTER sp, 8f, \body
8:	LEAVE_ENTER sp, \body
	END \name
	.endm

	COUNT_ENTRY fentry_count_enter, body
	COUNT_ENTRY fentry_mcount_count_enter

	.section .note.GNU-stack, "", %progbits
