/* The function_graph tracer's fast paths: sites before the prologue, whose thunk
   comes here with the caller's return address on the stack, and sites behind it,
   where that is at 8(%rbp). */
#include "macros.h"

	/* name: of the routine; where: "sp" or "fp", where S is. */
	.macro GRAPH_ENTER name, where
HIDDEN(\name)
\name:
	.cfi_startproc
	.cfi_def_cfa %rsp, 8
	.cfi_offset %rip, -8
	SAVE3			/* 24 thunk, 32 id, 40 S or the site */
1:	/* again */
	CHECK_OWNER 7f
	LOAD_RET \where, %rax
	lea	-THUNK_RET(%rax), %ecx
	test	$THUNK_SIZE - 1, %cl
	jz	4f
2:	/* no tail call */
	mov	%gs:CB_TOP, %rcx
	LEA_SLOT \where, %rdx
	cmp	%rcx, %rdx
	jae	7f		/* frames were skipped, or this is another stack */
	cmp	%gs:CB_LO, %rdx
	jb	7f
	btc	$SHADOW_RET, %rdx
	mov	%rax, (%rdx)
	btc	$SHADOW_PREV, %rdx
	LEA_SLOT \where, %rax
	mov	%rcx, (%rdx)
	mov	%rax, %gs:CB_TOP
3:	/* record */
	RESERVE 8, 5f
	mov	32(%rsp), %edx
	shl	$32, %rdx
	or	%rdx, %rax
	mov	%rax, (%rcx)
	.cfi_remember_state
	LEAVE_ENTER \where
	.cfi_restore_state

	/* The address at S looks like a thunk's: 1 in 64 callers does. Where it is
	   one, S is a live frame's slot, and the function whose body came here by a
	   jump has ended. Its shadow stays, so a loop of tail calls takes no space. */
4:	mov	%rax, %rcx
	sub	fentry_thunks(%rip), %rcx
	cmp	fentry_thunks_size(%rip), %rcx
	jae	2b
	LEA_SLOT \where, %rdx
	cmp	%gs:CB_TOP, %rdx
	jne	7f
	RESERVE 16, 6f
	LOAD_RET \where, %rdx
	mov	THUNK_RET_ID(%rdx), %edx
	shl	$32, %rdx
	or	%rax, %rdx
	mov	%rdx, (%rcx)
	mov	32(%rsp), %edx
	shl	$32, %rdx
	or	%rdx, %rax
	mov	%rax, 8(%rcx)
	.cfi_remember_state
	LEAVE_ENTER \where
	.cfi_restore_state

5:	.cfi_remember_state
	SLOW 32
	call	fentry_slow_record
	ENDSLOW 32
	test	%eax, %eax
	jnz	3b
	LEAVE_ENTER \where
	.cfi_restore_state
6:	.cfi_remember_state
	SLOW 32
	call	fentry_slow_record
	ENDSLOW 32
	test	%eax, %eax
	jnz	1b
	LEAVE_ENTER \where
	.cfi_restore_state
7:	SLOW_ENTER \where
	jb	1b
	ja	8f
	SKIP_ENTER \where
8:	LEAVE_ENTER \where
	.cfi_endproc
	.size \name, . - \name
	.endm

	.text
	GRAPH_ENTER fentry_graph_enter, sp
	GRAPH_ENTER fentry_mcount_graph_enter, fp

HIDDEN(fentry_graph_exit)
fentry_graph_exit:
	.cfi_startproc
	.cfi_def_cfa %rsp, 17
	CFI_SHADOW_FRAME
	SAVE3			/* 24 id, 32 S */
1:	/* again */
	CHECK_OWNER 6f
	lea	32(%rsp), %rcx
	cmp	%rcx, %gs:CB_TOP
	jne	6f
	RESERVE 8, 5f
	mov	24(%rsp), %edx
	shl	$32, %rdx
	or	%rdx, %rax
	mov	%rax, (%rcx)
	lea	32(%rsp), %rdx
	btc	$SHADOW_RET, %rdx
	mov	(%rdx), %rax
	btc	$SHADOW_PREV, %rdx
	mov	(%rdx), %rcx
	mov	%rax, 32(%rsp)
	mov	%rcx, %gs:CB_TOP
	.cfi_remember_state
	LEAVE_EXIT
	.cfi_restore_state
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
	.size fentry_graph_exit, . - fentry_graph_exit

	.section .note.GNU-stack, "", @progbits
