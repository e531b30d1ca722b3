/* Where the dynamic loader comes after a system call that has opened a file (loader.c).

   What it comes from is the middle of a function that nobody has prepared: rax is the new
   descriptor, rcx and r11 are free as behind any system call, everything else is in use,
   and so is the red zone. r11 says where to go on; the instruction that is not there any
   more compares the result with the range of errors. */
#include "macros.h"

	.text
HIDDEN(fentry_loader_open)
fentry_loader_open:
	.cfi_startproc
	.cfi_def_cfa %rsp, 0
	.cfi_register %rip, %r11
	lea	-128(%rsp), %rsp
	.cfi_adjust_cfa_offset 128
	pushr	%r11
	.cfi_offset %rip, -136
	SAVE3
	SLOW	160
	mov	%rax, %rdi
	call	fentry_loader_opened
	ENDSLOW	160
	RESTORE3
	popr	%r11
	.cfi_register %rip, %r11
	lea	128(%rsp), %rsp
	.cfi_adjust_cfa_offset -128
	cmp	$-4096, %rax
	jmp	*%r11
	.cfi_endproc
	.size fentry_loader_open, . - fentry_loader_open

	.section .note.GNU-stack, "", @progbits
