/* Where the events of Go's functions come to that are not recorded in place (arch/amd64, goevent.go).

   A goroutine's stack can be full, and nothing may be put there that the program's own stack checks do not know of. So
   this goes on where the program's runtime does for what needs room: on the stack of the goroutine g0 that every thread has,
   which is not in use while another one runs. On g0's stack itself, and on that of a signal's handler, whose goroutines
   have the number 0, there is room.

   r12 has the event's id, r13 the goroutine's number, r14 the goroutine, r15 the way back; r12, r13 and r15 are free
   there, and so are the flags. All else is kept. */
#include "macros.h"

	.text
HIDDEN(fentry_go_slow)
fentry_go_slow:
	.cfi_startproc
	.cfi_def_cfa %rsp, 0
	.cfi_register %rip, %r15
	test	%r13, %r13
	jz	1f
	mov	GO_M(%r14), %r13
	mov	GO_M_G0(%r13), %r13
	mov	GO_SCHED_SP(%r13), %r13
	jmp	2f
1:	mov	%rsp, %r13
2:	lea	-16(%r13), %r13
	and	$-16, %r13
	mov	%rsp, (%r13)
	mov	%r13, %rsp
	.cfi_escape 0x0f, 2, 0x7d, 0, 6		/* CFA: what is at 0(%r13) */
	push	%rax
	push	%rcx
	push	%rdx
	push	%rsi
	push	%rdi
	push	%r8
	push	%r9
	push	%r10
	push	%r11
	lea	-8(%rsp), %rsp		/* keeps the frame a multiple of 16 */
	cld
	mov	%r12d, %edi
	mov	%r14, %rsi
	mov	%rsp, %rdx
	call	fentry_slow_go
	lea	8(%rsp), %rsp
	pop	%r11
	pop	%r10
	pop	%r9
	pop	%r8
	pop	%rdi
	pop	%rsi
	pop	%rdx
	pop	%rcx
	pop	%rax
	mov	(%rsp), %rsp
	.cfi_def_cfa %rsp, 0
	notrack jmp *%r15
	.cfi_endproc
	.size	fentry_go_slow, . - fentry_go_slow

/* System calls of Go's own code, which its runtime and package syscall make in assembly. Thunks come here as in syscall.S, with
   the way back in rcx; r11 is the only other free register, r14 is the goroutine, and 0 at most where there is none yet.

   On a goroutine's stack there is no room, so this goes on at the stack of the thread's g0 from there; not everything that
   a goroutine runs is on its own stack (vDSO calls are made on g0's), so the stack pointer says which it is.

   What a goroutine does on its own stack is recorded here, if the thread's newest event is this goroutine's, as syscall.S
   records it: three registers are kept below where g0's stack begins, and the stack pointer stays as it is. A goroutine is
   not stopped outside of Go's code, so it stays on its thread meanwhile. All else is in C. */

/* from the way back to where a thunk makes a call that is not recorded, arch/amd64 */
#define UNRECORDED	14

#define NR_PRCTL	157
#define NR_EXECVE	59
#define NR_SECCOMP	317
#define NR_EXECVEAT	322
#define PR_SET_SECCOMP	22

	/* To the label if the number of a system call is one of which the recorder or the runtime is to know before it is made.
	   Go's runtime gives its memory names by prctl. */
	.macro IF_EXECUTES label
	.irp nr, NR_EXECVE, NR_EXECVEAT, NR_SECCOMP
	cmp	$\nr, %rax
	je	\label
	.endr
	cmp	$NR_PRCTL, %rax
	jne	11f
	cmp	$PR_SET_SECCOMP, %rdi
	je	\label
11:
	.endm

	/* To slow, with all as it was, unless the thread's newest event is of the goroutine that runs, which is on its stack. Then
	   r11 is where registers have been saved. */
	.macro SAVE_GO slow
	cmpq	$0, fentry_blocks(%rip)
	jne	\slow
	mov	%fs:0, %r11
	not	%r11
	cmp	%r11, %gs:CB_OWNER
	jne	\slow
	test	%r14, %r14
	jz	\slow
	cmp	GO_STACK_LO(%r14), %rsp
	jb	\slow
	cmp	GO_STACK_HI(%r14), %rsp
	jae	\slow
	mov	fentry_image + IMAGE_O_GOROUTINE(%rip), %r11d
	mov	(%r14, %r11), %r11
	test	%r11, %r11
	jz	\slow
	cmp	%r11, %gs:CB_GOROUTINE
	jne	\slow
	mov	GO_M(%r14), %r11
	mov	GO_M_G0(%r11), %r11
	mov	GO_SCHED_SP(%r11), %r11
	mov	%rcx, -8(%r11)
	.cfi_escape 0x10, 16, 2, 0x7b, 0x78	/* rip is at -8(%r11) */
	mov	%rdx, -16(%r11)
	mov	%rax, -24(%r11)
	.endm
	.macro RESTORE_GO
	mov	-24(%r11), %rax
	mov	-16(%r11), %rdx
	mov	-8(%r11), %rcx
	.cfi_register %rip, %rcx
	.endm

	/* The fast path; what is behind it is the slow one. */
	.macro QUICK_GO exit
	.if \exit
	SAVE_GO	11f
	cmpl	$0, %gs:CB_SYS_OPEN
	jne	9f
	RESERVE 16, 9f, %gs:, , CB_SYS_END
	WRITE_RESULT -24(%r11)
	.else
	cmp	$SYSCALL_NUMBERS - 1, %rax
	ja	8f
	lea	fentry_syscalls(%rip), %r11
	cmpb	$0, (%r11, %rax)
	jne	11f
8:	SAVE_GO	11f
	RESERVE 64, 9f, %gs:, , CB_SYS_END
	WRITE_SYSCALL -24(%r11), -16(%r11)
	.endif
	.cfi_remember_state
	RESTORE_GO
	notrack jmp *%rcx
	.cfi_restore_state
9:	RESTORE_GO
11:
	.endm

	/* To where there is room for C, with struct sysregs at the stack pointer, and back. */
	.macro TO_C
	test	%r14, %r14
	jz	1f
	mov	fentry_image + IMAGE_O_GOROUTINE(%rip), %r11d
	cmpq	$0, (%r14, %r11)
	je	1f
	cmp	GO_STACK_LO(%r14), %rsp
	jb	1f
	cmp	GO_STACK_HI(%r14), %rsp
	jae	1f
	mov	GO_M(%r14), %r11
	mov	GO_M_G0(%r11), %r11
	mov	GO_SCHED_SP(%r11), %r11
	jmp	2f
1:	mov	%rsp, %r11
2:	and	$-16, %r11
	lea	-8(%r11), %r11
	mov	%rsp, (%r11)
	mov	%r11, %rsp
	.cfi_escape 0x0f, 2, 0x7b, 0, 6		/* CFA: what is at 0(%r11) */
	push	%rax			/* struct sysregs */
	push	%rdx
	push	%rcx
	push	%rsi
	push	%rdi
	push	%r8
	push	%r9
	push	%r10
	push	%r11
	push	%rbp
	lea	-8(%rsp), %rsp
	mov	%rsp, %rbp
	.cfi_escape 0x0f, 4, 0x76, 0xd8, 0, 6	/* CFA: what is at 88(%rbp) */
	.cfi_escape 0x10, 16, 3, 0x76, 0xc0, 0	/* rip is at 64(%rbp), and rbp at 8(%rbp) */
	.cfi_escape 0x10, 6, 2, 0x76, 8
	cld
	.endm
	.macro FROM_C
	lea	8(%rsp), %rsp
	pop	%rbp
	pop	%r11
	.cfi_escape 0x0f, 2, 0x7b, 0, 6
	.cfi_restore %rbp
	pop	%r10
	pop	%r9
	pop	%r8
	pop	%rdi
	pop	%rsi
	pop	%rcx
	.cfi_register %rip, %rcx
	pop	%rdx
	pop	%rax
	mov	(%r11), %rsp
	.cfi_def_cfa %rsp, 0
	.endm

	.macro GO_SYSCALL name, exit
HIDDEN(\name)
\name:
	.cfi_startproc
	.cfi_def_cfa %rsp, 0
	.cfi_register %rip, %rcx
	testb	$1 + \exit, fentry_syscalls_on(%rip)	/* SYSCALLS_BEGINS, SYSCALLS_ENDS */
	jz	20f
	lea	fentry_slow_syscall(%rip), %r11
	cmp	%r11, fentry_home_syscall(%rip)
	jne	20f
	QUICK_GO \exit
	TO_C
	mov	%rsp, %rdi
	mov	$\exit, %esi
	mov	%r14, %rdx
	call	fentry_slow_go_syscall
	.if \exit == 0
	mov	%rsp, %rdi
	call	fentry_go_executes
	.endif
	FROM_C
	notrack jmp *%rcx
20:
	.if \exit == 0
	IF_EXECUTES .Lgo_executes
	lea	UNRECORDED(%rcx), %rcx
	.endif
	notrack jmp *%rcx
	.cfi_endproc
	.size	\name, . - \name
	.endm

	GO_SYSCALL fentry_go_syscall_enter, 0
	GO_SYSCALL fentry_go_syscall_exit, 1

/* A system call whose number is known only now, where some are recorded, or none. The recorder is told of what is executed, and
   the runtime of filters. */
HIDDEN(fentry_go_some_syscall_enter)
fentry_go_some_syscall_enter:
	.cfi_startproc
	.cfi_def_cfa %rsp, 0
	.cfi_register %rip, %rcx
	cmp	$SYSCALL_NUMBERS - 1, %rax
	ja	4f
	bt	%rax, fentry_syscall_filter(%rip)
	jc	fentry_go_syscall_enter
	IF_EXECUTES .Lgo_executes
4:	lea	UNRECORDED(%rcx), %rcx
	notrack jmp *%rcx
.Lgo_executes:
	TO_C
	mov	%rsp, %rdi
	call	fentry_go_executes
	FROM_C
	jmp	4b
	.cfi_endproc
	.size	fentry_go_some_syscall_enter, . - fentry_go_some_syscall_enter

	.section .note.GNU-stack, "", @progbits
