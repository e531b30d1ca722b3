/* The tracer of counts. Its fast path is in each thunk (arch/amd64), which adds to an entry of
   the thread's table and goes on: a call of ours, and what it would save, take longer than
   that. Here is what thunks come to that have not found the thread's table. The calls of a
   function are its entries, so nothing is done to return addresses, and whatever becomes of
   the call, it has been counted. */
#include "macros.h"

	.text
	.globl	fentry_mcount_count_enter
	.hidden	fentry_mcount_count_enter
	.type	fentry_mcount_count_enter, @function
	.set	fentry_mcount_count_enter, fentry_count_enter

	BEGIN_ENTER fentry_count_enter
	SLOW	40
	mov	64+32(%rbp), %edi
	call	fentry_slow_count
	ENDSLOW	40
	LEAVE_ENTER sp
	END fentry_count_enter

	.section .note.GNU-stack, "", @progbits
