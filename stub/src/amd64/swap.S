/* Functions that swap pieces of their stack (record/plain/swap.go): their thunks come here, with the caller's return address
   above the way back, whether anything is switched on or not. */
#include "macros.h"

	.text
	BEGIN_ENTER fentry_swap_enter, on
	cmpq	$0, fentry_home_enter(%rip)	/* where the runtime has not started, nothing is open */
	je	1f
	ENTER_OFF on
	SLOW	enter_off
	lea	64+32(%rbp), %rdi
	xor	%esi, %esi
	mov	(%rdi), %rcx
	mov	fentry_self(%rip), %rdx
	call	*fentry_home_enter(%rip)
	ENDSLOW	enter_off
1:	LEAVE_ENTER on
	END fentry_swap_enter

	.section .note.GNU-stack, "", @progbits
