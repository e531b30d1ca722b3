/* Where the events of Go's functions come to that are not recorded in place (arch/amd64, goevent.go).

   A goroutine's stack can be full, and nothing may be put there that the program's own stack checks do not know of. So
   this goes on where the program's runtime does for what needs room: on the stack of the goroutine g0 that every thread has,
   which is not in use while another one runs. On g0's stack itself, and on that of a signal's handler, whose goroutines
   have the number 0, there is room.

   r12 has the event's id, r13 the goroutine's number, r14 the goroutine, r15 the way back; r12, r13 and r15 are free
   there, and so are the flags. All else is kept. */
#include "macros.h"

/* runtime.g, runtime.m and runtime.gobuf, as they have been since Go 1.17 */
#define G_M		0x30
#define M_G0		0
#define G_SCHED_SP	0x38

	.text
HIDDEN(fentry_go_slow)
fentry_go_slow:
	.cfi_startproc
	.cfi_def_cfa %rsp, 0
	.cfi_register %rip, %r15
	test	%r13, %r13
	jz	1f
	mov	G_M(%r14), %r13
	mov	M_G0(%r13), %r13
	mov	G_SCHED_SP(%r13), %r13
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

	.section .note.GNU-stack, "", @progbits
