/* The tracer of counts: an entry adds to the thread's table. A handler that comes between
   the load and the store and counts the same function makes the store fail. Nothing is done
   to return addresses, and x16 is left alone. */
#include "macros.h"

	.text
	.globl	fentry_mcount_count_enter
	.hidden	fentry_mcount_count_enter
	.type	fentry_mcount_count_enter, %function
	.set	fentry_mcount_count_enter, fentry_count_enter

	BEGIN_ENTER fentry_count_enter, sp
	GET_BLOCK x0, 9f
2:	TABLE	1, 0, T_ENTRIES
	cbz	x1, 7f			/* a forked child's block is zero, too */
	add	x1, x1, w17, uxtw #3
3:	ldxr	x2, [x1]
	add	x2, x2, #1
	stxr	w3, x2, [x1]
	cbnz	w3, 3b
	LEAVE_ENTER sp
9:	FIND_BLOCK_X0 2b
7:	SLOW_ENTER sp, 8f
8:	LEAVE_ENTER sp
	END fentry_count_enter

	.section .note.GNU-stack, "", %progbits
