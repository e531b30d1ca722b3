/* Where a patched program starts: instead of its entry point, and before that, where the
   dynamic loader can be made to come here (start.c). A shared object, which has no entry
   point, starts by a relocation, or else where its own initialisation begins (DT_INIT).

   The kernel leaves a stack and no caller. What the registers hold is the program's, as the
   ABI gives rdx a meaning and says nothing of the others: all are put back before the jump
   to the original entry point. */
#include "macros.h"

	.text
	/* The new entry point: the stack is as the kernel made it, rdx is for the
	   program (what the dynamic loader wants run at exit). */
HIDDEN(fentry_start)
fentry_start:
	.cfi_startproc
	.cfi_undefined %rip
	push	%rax
	push	%rcx
	push	%rdx
	push	%rsi
	push	%rdi
	push	%r8
	push	%r9
	push	%r10
	push	%r11
	push	%rbp
	mov	%rsp, %rbp
	lea	80(%rsp), %rdi
	and	$-16, %rsp
	call	fentry_begin
	mov	%rbp, %rsp
	pop	%rbp
	pop	%r11
	pop	%r10
	pop	%r9
	pop	%r8
	pop	%rdi
	pop	%rsi
	pop	%rdx
	pop	%rcx
	pop	%rax
	jmp	fentry_orig_entry
	.cfi_endproc
	.size fentry_start, . - fentry_start

	/* Resolver of a relocation R_X86_64_IRELATIVE: the dynamic loader calls it
	   while it relocates the program, before any constructor runs. */
HIDDEN(fentry_irel)
fentry_irel:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	mov	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	and	$-16, %rsp
	xor	%edi, %edi
	call	fentry_begin
	leave
	.cfi_def_cfa %rsp, 8
	lea	fentry_irel_ret(%rip), %rax
	ret
	.cfi_endproc
	.size fentry_irel, . - fentry_irel

	/* The initialisation of a shared object, before its constructors: glibc hands them
	   the program's arguments and environment. fentry_init_first goes on to what the
	   object has, fentry_init_only is for one that has nothing. */
	.macro INIT name, routine=fentry_library_begins
HIDDEN(\name)
\name:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	mov	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	push	%rdi
	push	%rsi
	push	%rdx
	and	$-16, %rsp
	call	\routine
	mov	-8(%rbp), %rdi
	mov	-16(%rbp), %rsi
	mov	-24(%rbp), %rdx
	leave
	.cfi_def_cfa %rsp, 8
	.cfi_restore %rbp
	.endm
	.macro ENDINIT name
	.cfi_endproc
	.size \name, . - \name
	.endm

	INIT fentry_init_first
	jmp	fentry_orig_entry
	ENDINIT fentry_init_first
	INIT fentry_init_only
	ret
	ENDINIT fentry_init_only

	/* Its finalisation, behind its destructors (DT_FINI). */
	INIT fentry_fini_first, fentry_library_ends
	jmp	fentry_orig_fini
	ENDINIT fentry_fini_first
	INIT fentry_fini_only, fentry_library_ends
	ret
	ENDINIT fentry_fini_only

	.section .note.GNU-stack, "", @progbits
