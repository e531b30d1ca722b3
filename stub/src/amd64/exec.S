/* Where the process comes before it executes another program, or filters its system calls (exec.c, follow.c).

   What it comes from is an instruction that loads the number of such a call, or the last argument of any, with
   the system call behind it: rax has the number and r11 where to go on. The call changes
   rcx and r11, so nobody expects anything of them; everything else is in use, arguments in
   particular, and so is the red zone. The stack can be that of a child that shares its
   memory with its parent (vfork, posix_spawn), and small: musl's has room for a path and
   1024 bytes. */
#include "macros.h"

	.text
HIDDEN(fentry_exec)
fentry_exec:
	.cfi_startproc
	.cfi_def_cfa %rsp, 0
	.cfi_register %rip, %r11
	lea	-128(%rsp), %rsp
	.cfi_adjust_cfa_offset 128
	pushr	%r11
	.cfi_offset %rip, -136
	SAVE3
	SLOW	160
	mov	%r8, %rcx
	mov	%rdx, %r8
	mov	%rsi, %rdx
	mov	%rdi, %rsi
	mov	%rax, %rdi
	call	fentry_executes
	ENDSLOW	160
	RESTORE3
	popr	%r11
	.cfi_register %rip, %r11
	lea	128(%rsp), %rsp
	.cfi_adjust_cfa_offset -128
	jmp	*%r11
	.cfi_endproc
	.size fentry_exec, . - fentry_exec

	.section .note.GNU-stack, "", @progbits
