/* Functions that swap pieces of their stack (record/plain/swap.go): their thunks come here, with the caller's return address in x16,
   whether anything is switched on or not. */
#include "macros.h"

	.text
	BEGIN_ENTER fentry_swap_enter, sp
	LOAD	x0, fentry_home_enter
	cbz	x0, 1f			/* where the runtime has not started, nothing is open */
	LEA_SLOT sp, x0
	SLOW	32
	mov	w1, #0
	LOAD	x2, fentry_self
	mov	x3, x16
	ldr	x4, [x29]
	CALL_HOME fentry_home_enter
	ENDSLOW	32
	mov	x16, x0			/* a tail call's was a thunk's */
1:	LEAVE_ENTER sp, body
	END fentry_swap_enter

	.section .note.GNU-stack, "", %progbits
