/* The function tracer's fast path: entries only. Sites before and behind the
   prologue are the same to it. */
#include "macros.h"

	.text
	.globl	fentry_mcount_func_enter
	.hidden	fentry_mcount_func_enter
	.type	fentry_mcount_func_enter, @function
HIDDEN(fentry_func_enter)
fentry_func_enter:
fentry_mcount_func_enter:
	.cfi_startproc
	.cfi_def_cfa %rsp, 8
	.cfi_offset %rip, -8
	SAVE3			/* 24 thunk, 32 id */
1:	CHECK_OWNER 5f
	RESERVE 8, 5f
	mov	32(%rsp), %edx
	shl	$32, %rdx
	or	%rdx, %rax
	mov	%rax, (%rcx)
	.cfi_remember_state
	RESTORE3
	ret	$8
	.cfi_restore_state
5:	.cfi_remember_state
	SLOW 32
	call	fentry_slow_record
	ENDSLOW 32
	test	%eax, %eax
	jnz	1b
	RESTORE3
	ret	$8
	.cfi_endproc
	.size fentry_func_enter, . - fentry_func_enter

	.section .note.GNU-stack, "", @progbits
