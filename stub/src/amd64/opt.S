/* The function_graph tracer's fast paths with a limit of depth, a threshold or
   graph roots.

   A frame's shadow has its function's id, whether its entry is in the trace, and
   its depth; and, with a threshold, the time of its entry. An entry that the
   threshold holds back is written when the call, or one inside it, has lasted that
   long: in C, as is everything else that is rare. */
#include "macros.h"

	.macro OPT_ENTER name, where
HIDDEN(\name)
\name:
	.cfi_startproc
	.cfi_def_cfa %rsp, 8
	.cfi_offset %rip, -8
	SAVE3			/* 24 thunk, 32 id, 40 S or the site */
1:	CHECK_OWNER 7f
	LOAD_RET \where, %rax
	lea	-THUNK_RET(%rax), %ecx
	test	$THUNK_SIZE - 1, %cl
	jz	4f
2:	mov	%gs:CB_TOP, %rcx
	LEA_SLOT \where, %rdx
	cmp	%rcx, %rdx
	jae	7f
	cmp	%gs:CB_LO, %rdx
	jb	7f
	/* depth of the new frame, in the high half of rax */
	mov	$1, %eax
	test	$7, %cl
	jnz	5f			/* nothing is open, or a frame with a tag */
	btc	$SHADOW_AUX, %rcx
	mov	(%rcx), %rax
	btc	$SHADOW_AUX, %rcx
	shr	$32, %rax
	inc	%eax
	cmp	fentry_depth(%rip), %eax
	ja	9f
3:	shl	$32, %rax
	mov	32(%rsp), %edx
	or	%rdx, %rax
	LEA_SLOT \where, %rdx
	btc	$SHADOW_AUX, %rdx
	mov	%rax, (%rdx)
	btc	$SHADOW_AUX, %rdx
	btc	$SHADOW_RET, %rdx
	LOAD_RET \where, %rax
	mov	%rax, (%rdx)
	btc	$SHADOW_PREV, %rdx
	mov	%rcx, (%rdx)
	btc	$SHADOW_RET, %rdx	/* the time's word from here on */
	mov	%rdx, %rcx
	LEA_SLOT \where, %rax
	mov	%rax, %gs:CB_TOP
	cmpq	$0, fentry_threshold(%rip)
	je	31f
	rdtsc
	shl	$32, %rdx
	or	%rdx, %rax
	mov	%rax, (%rcx)
	.cfi_remember_state
	LEAVE_ENTER \where
	.cfi_restore_state
31:	RESERVE 8, 6f
	mov	32(%rsp), %edx
	shl	$32, %rdx
	or	%rdx, %rax
	mov	%rax, (%rcx)
	LEA_SLOT \where, %rdx
	btc	$SHADOW_AUX, %rdx
	orl	$FT_ID_EXIT, (%rdx)	/* its entry is in the trace */
	.cfi_remember_state
	LEAVE_ENTER \where
	.cfi_restore_state

	/* Perhaps a tail call: C knows. */
4:	mov	%rax, %rcx
	sub	fentry_thunks(%rip), %rcx
	cmp	fentry_thunks_size(%rip), %rcx
	jae	2b
	jmp	7f

	/* At the bottom of a stack only graph roots are recorded, if there are any. */
5:	mov	%ecx, %edx
	and	$7, %edx
	cmp	$TOP_EMPTY, %edx
	jne	7f
	mov	fentry_roots(%rip), %rdx
	test	%rdx, %rdx
	jz	3b
	pushr	%rcx
	mov	32+8(%rsp), %ecx
	bt	%rcx, (%rdx)
	popr	%rcx
	jc	3b
	jmp	9f

6:	.cfi_remember_state
	SLOW 32
	call	fentry_slow_record
	ENDSLOW 32
	test	%eax, %eax
	jnz	31b
	LEAVE_ENTER \where
	.cfi_restore_state
7:	SLOW_ENTER \where
	jb	1b
	ja	8f
9:	SKIP_ENTER \where
8:	LEAVE_ENTER \where
	.cfi_endproc
	.size \name, . - \name
	.endm

	.text
	OPT_ENTER fentry_opt_enter, sp
	OPT_ENTER fentry_mcount_opt_enter, fp

HIDDEN(fentry_opt_exit)
fentry_opt_exit:
	.cfi_startproc
	.cfi_def_cfa %rsp, 17
	CFI_SHADOW_FRAME
	SAVE3			/* 24 id, 32 S */
1:	CHECK_OWNER 6f
	lea	32(%rsp), %rcx
	cmp	%rcx, %gs:CB_TOP
	jne	6f
	btc	$SHADOW_AUX, %rcx
	testl	$FT_ID_EXIT, (%rcx)
	jz	4f
	RESERVE 8, 5f
	mov	24(%rsp), %edx
	shl	$32, %rdx
	or	%rdx, %rax
	mov	%rax, (%rcx)
2:	lea	32(%rsp), %rdx
	btc	$SHADOW_RET, %rdx
	mov	(%rdx), %rax
	btc	$SHADOW_PREV, %rdx
	mov	(%rdx), %rcx
	mov	%rax, 32(%rsp)
	mov	%rcx, %gs:CB_TOP
	.cfi_remember_state
	LEAVE_EXIT
	.cfi_restore_state
	/* held back */
4:	btc	$SHADOW_AUX, %rcx
	btc	$SHADOW_PREV, %rcx
	rdtsc
	shl	$32, %rdx
	or	%rdx, %rax
	sub	(%rcx), %rax
	cmp	fentry_threshold(%rip), %rax
	jb	2b
	jmp	6f
5:	.cfi_remember_state
	SLOW 41
	call	fentry_slow_record
	ENDSLOW 41
	test	%eax, %eax
	jnz	1b
	.cfi_restore_state
6:	SLOW_EXIT
	LEAVE_EXIT
	.cfi_endproc
	.size fentry_opt_exit, . - fentry_opt_exit

	.section .note.GNU-stack, "", @progbits
