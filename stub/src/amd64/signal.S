/* Where the kernel calls traced handlers: a stub for each (signal.c). A handler's registers are rdi, rsi
   and rdx, the signal and what is said of it, and rax, which is 0; the others are left over from what was
   interrupted, and nobody relies on them. */
#include "layout.h"

	.text
	.p2align 4
	.globl	fentry_signal_stubs
	.hidden	fentry_signal_stubs
	.type	fentry_signal_stubs, @function
fentry_signal_stubs:
	.cfi_startproc
	.set	number, 0
	.rept	SIGNAL_STUBS
	.p2align 4
	.cfi_def_cfa %rsp, 8
	push	$number
	.cfi_adjust_cfa_offset 8
	jmp	1f
	.set	number, number + 1
	.endr
1:	push	%rdi
	.cfi_adjust_cfa_offset 8
	push	%rsi
	.cfi_adjust_cfa_offset 8
	push	%rdx
	.cfi_adjust_cfa_offset 8
	lea	-8(%rsp), %rsp		/* keeps the frame a multiple of 16 */
	.cfi_adjust_cfa_offset 8
	mov	32(%rsp), %ecx
	call	fentry_slow_signal
	mov	%rax, %r11
	lea	8(%rsp), %rsp
	.cfi_adjust_cfa_offset -8
	pop	%rdx
	.cfi_adjust_cfa_offset -8
	pop	%rsi
	.cfi_adjust_cfa_offset -8
	pop	%rdi
	.cfi_adjust_cfa_offset -8
	lea	8(%rsp), %rsp
	.cfi_adjust_cfa_offset -8
	xor	%eax, %eax
	notrack jmp *%r11
	.cfi_endproc
	.size	fentry_signal_stubs, . - fentry_signal_stubs

	.section .note.GNU-stack, "", @progbits
