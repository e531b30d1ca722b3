/* System calls: where the thunks of moved syscall instructions come from and go back to.

   A thunk comes here twice, in front of the instruction and behind it, by a jump with the way back
   in rcx. The instruction overwrites rcx and r11 with its own address and the flags, so these two
   are dead on both sides of it, and all else has to be what it was: rax has the number, or the
   result; rdi, rsi, rdx, r10, r8 and r9 have the arguments, which the kernel leaves alone and the
   program may count on. Above all the stack pointer: a child made by clone begins on another stack
   at the instruction behind, one made by vfork on the same. So what is saved here lies below the 128
   bytes under the stack pointer that leaf functions may use (psABI 3.2.2), and is gone again before
   the instruction. Flags are dead at a site that can be moved (record/plain).

   Nothing is kept from the one end to the other: who reads the trace finds out what belongs
   together. A signal can come between any two instructions, as in the other fast paths
   (macros.h): its events lie behind what was reserved, never inside. A record is reserved as a
   whole, and is open until all of it is there. */
#include "macros.h"

#define RED_ZONE 128
#define SAVED (RED_ZONE + 24)

/* from the way back to where a thunk makes a call that is not recorded, arch/amd64 */
#define UNRECORDED 14

	.macro BEGIN_SYSCALL name, recorded
HIDDEN(\name)
\name:
	.cfi_startproc
	.cfi_def_cfa %rsp, 0
	.cfi_register %rip, %rcx
	testb	$\recorded, fentry_syscalls_on(%rip)
	jz	20f
	lea	-RED_ZONE(%rsp), %rsp
	.cfi_adjust_cfa_offset RED_ZONE
	SAVE3			/* 0 way back, 8 rdx, 16 rax */
	.cfi_offset %rip, -SAVED
	.endm

	.macro LEAVE_SYSCALL
	.cfi_remember_state
	popr	%rcx
	.cfi_register %rip, %rcx
	popr	%rdx
	popr	%rax
	lea	RED_ZONE(%rsp), %rsp
	.cfi_adjust_cfa_offset -RED_ZONE
	notrack jmp *%rcx
	.cfi_restore_state
	.endm

	/* The slow path: fentry_slow_syscall(registers, exit). */
	.macro END_SYSCALL name, exit
8:	SLOW SAVED
	mov	%rbp, %rdi
	mov	$\exit, %esi
	call	*fentry_home_syscall(%rip)
	ENDSLOW SAVED
	LEAVE_SYSCALL
20:	.cfi_def_cfa %rsp, 0
	.cfi_register %rip, %rcx
	.if \exit == 0
	lea	UNRECORDED(%rcx), %rcx
	.endif
	notrack jmp *%rcx
	END \name
	.endm

	/* A system call whose number is known only now, where some are recorded. */
	.macro SOME name, all
HIDDEN(\name)
\name:
	.cfi_startproc
	.cfi_def_cfa %rsp, 0
	.cfi_register %rip, %rcx
	cmp	$SYSCALL_NUMBERS - 1, %rax
	ja	1f
	bt	%rax, fentry_syscall_filter(%rip)
	jc	\all
1:	lea	UNRECORDED(%rcx), %rcx
	notrack jmp *%rcx
	END \name
	.endm

	.macro SYSCALL_ENTER pre, suf
	RESERVE 64, 8f, \pre, \suf, CB_SYS_END
	WRITE_SYSCALL 16(%rsp), 8(%rsp)
	LEAVE_SYSCALL
	.endm

	.macro SYSCALL_EXIT pre, suf
	cmpl	$0, \pre\()CB_SYS_OPEN\suf
	jne	8f
	RESERVE 16, 8f, \pre, \suf, CB_SYS_END
	WRITE_RESULT 16(%rsp)
	LEAVE_SYSCALL
	.endm

	.text
	BEGIN_SYSCALL fentry_syscall_enter, SYSCALLS_BEGINS
	cmp	$SYSCALL_NUMBERS - 1, %rax
	ja	1f
	lea	fentry_syscalls(%rip), %rcx
	cmpb	$0, (%rcx, %rax)
	jne	8f
1:	CHECK_OWNER 8f, 9f
	SYSCALL_ENTER %gs:
9:	HASHED_BLOCK 8f
	SYSCALL_ENTER , (%r11)
	END_SYSCALL fentry_syscall_enter, 0

	SOME fentry_some_syscall_enter, fentry_syscall_enter

	BEGIN_SYSCALL fentry_syscall_exit, SYSCALLS_ENDS
	CHECK_OWNER 8f, 9f
	SYSCALL_EXIT %gs:
9:	HASHED_BLOCK 8f
	SYSCALL_EXIT , (%r11)
	END_SYSCALL fentry_syscall_exit, 1

	.section .note.GNU-stack, "", @progbits
