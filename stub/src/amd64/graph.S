/* The function_graph tracer's fast paths. */
#include "macros.h"

	.text
HIDDEN(fentry_graph_enter)
fentry_graph_enter:
	.cfi_startproc
	.cfi_def_cfa %rsp, 16
	.cfi_offset %rip, -16
	SAVE3			/* 24 thunk, 32 id, 40 S */
.Lagain:
	CHECK_OWNER .Lslow
	mov	40(%rsp), %rax
	lea	-THUNK_RET(%rax), %ecx
	test	$THUNK_SIZE - 1, %cl
	jz	.Lmaybe_tail
.Lno_tail:
	mov	%gs:CB_TOP, %rcx
	lea	40(%rsp), %rdx
	cmp	%rcx, %rdx
	jae	.Lslow		/* frames were skipped, or this is another stack */
	cmp	%gs:CB_LO, %rdx
	jb	.Lslow
	btc	$SHADOW_RET, %rdx
	mov	%rax, (%rdx)
	btc	$SHADOW_PREV, %rdx
	lea	40(%rsp), %rax
	mov	%rcx, (%rdx)
	mov	%rax, %gs:CB_TOP
.Lrecord:
	rdtsc
	RESERVE 8, .Lfull
	mov	32(%rsp), %edx
	shl	$32, %rdx
	or	%rdx, %rax
	mov	%rax, (%rcx)
	.cfi_remember_state
	RESTORE3
	ret	$8
	.cfi_restore_state

	/* The address at S looks like a thunk's: 1 in 64 callers does. Where it is
	   one, S is a live frame's slot, and the function whose body came here by a
	   jump has ended. Its shadow stays, so a loop of tail calls takes no space. */
.Lmaybe_tail:
	mov	%rax, %rcx
	sub	fentry_thunks(%rip), %rcx
	cmp	fentry_thunks_size(%rip), %rcx
	jae	.Lno_tail
	lea	40(%rsp), %rdx
	cmp	%gs:CB_TOP, %rdx
	jne	.Lslow
.Ltail:
	rdtsc
	RESERVE 16, .Lfull_tail
	mov	40(%rsp), %rdx
	mov	THUNK_RET_ID(%rdx), %edx
	shl	$32, %rdx
	or	%rax, %rdx
	mov	%rdx, (%rcx)
	mov	32(%rsp), %edx
	shl	$32, %rdx
	or	%rdx, %rax
	mov	%rax, 8(%rcx)
	.cfi_remember_state
	RESTORE3
	ret	$8
	.cfi_restore_state

.Lfull:
	.cfi_remember_state
	SLOW 40
	call	fentry_slow_record
	ENDSLOW 40
	jmp	.Lrecord
	.cfi_restore_state
.Lfull_tail:
	.cfi_remember_state
	SLOW 40
	call	fentry_slow_record
	ENDSLOW 40
	jmp	.Ltail
	.cfi_restore_state
.Lslow:
	.cfi_remember_state
	SLOW 40
	lea	64+40(%rbp), %rdi
	mov	64+32(%rbp), %esi
	mov	64+24(%rbp), %rdx
	call	fentry_slow_enter
	ENDSLOW 40
	cmp	$ENTER_SKIP, %eax
	jb	.Lagain
	ja	.Ldone
	addq	$THUNK_BYPASS - THUNK_CALL_END, 24(%rsp)
.Ldone:
	RESTORE3
	ret	$8
	.cfi_restore_state
	.cfi_endproc
	.size fentry_graph_enter, . - fentry_graph_enter

HIDDEN(fentry_graph_exit)
fentry_graph_exit:
	.cfi_startproc
	.cfi_def_cfa %rsp, 17
	CFI_SHADOW_FRAME
	SAVE3			/* 24 id, 32 S */
.Lxagain:
	CHECK_OWNER .Lxslow
	lea	32(%rsp), %rcx
	cmp	%rcx, %gs:CB_TOP
	jne	.Lxslow
	rdtsc
	RESERVE 8, .Lxfull
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
.Lxout:
	.cfi_remember_state
	RESTORE3
	lea	8(%rsp), %rsp
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_restore_state
.Lxfull:
	.cfi_remember_state
	SLOW 41
	call	fentry_slow_record
	ENDSLOW 41
	jmp	.Lxagain
	.cfi_restore_state
.Lxslow:
	.cfi_remember_state
	SLOW 41
	lea	64+32(%rbp), %rdi
	mov	64+24(%rbp), %esi
	call	fentry_slow_exit
	ENDSLOW 41
	mov	%rax, 32(%rsp)
	jmp	.Lxout
	.cfi_restore_state
	.cfi_endproc
	.size fentry_graph_exit, . - fentry_graph_exit

	.section .note.GNU-stack, "", @progbits
