/* Where the events of Go's functions come to that are not recorded in place (arch/arm64, goevent.go).

   A goroutine's stack can be full, and nothing may be put there that the program's own stack checks do not know of. So
   this goes on where the program's runtime does for what needs room: on the stack of the goroutine g0 that every thread has,
   which is not in use while another one runs. On g0's stack itself, and on that of a signal's handler, whose goroutines
   have the number 0, there is room.

   w17 has the event's id, x19 the goroutine's number, x28 the goroutine, x20 the way back; x16, x17, x19 to x25 and the
   flags are free there. All else is kept: C keeps x19 and what is above, and uses no vectors. */
#include "macros.h"

#define SAVED	144	/* struct goregs */

	.text
HIDDEN(fentry_go_slow)
fentry_go_slow:
	.cfi_startproc
	.cfi_register x30, x20
	cbz	x19, 1f
	ldr	x21, [x28, #GO_M]
	ldr	x21, [x21, #GO_M_G0]
	ldr	x21, [x21, #GO_SCHED_SP]
	b	2f
1:	mov	x21, sp
2:	and	x21, x21, #-16
	mov	x22, sp
	sub	sp, x21, #SAVED
	.cfi_def_cfa x22, 0
	stp	x0, x1, [sp]
	stp	x2, x3, [sp, #16]
	stp	x4, x5, [sp, #32]
	stp	x6, x7, [sp, #48]
	stp	x8, x9, [sp, #64]
	stp	x10, x11, [sp, #80]
	stp	x12, x13, [sp, #96]
	stp	x14, x15, [sp, #112]
	stp	x30, x22, [sp, #128]
	mov	w0, w17
	mov	x1, x28
	mov	x2, sp
	bl	fentry_slow_go
	ldr	x30, [sp, #128]
	ldp	x14, x15, [sp, #112]
	ldp	x12, x13, [sp, #96]
	ldp	x10, x11, [sp, #80]
	ldp	x8, x9, [sp, #64]
	ldp	x6, x7, [sp, #48]
	ldp	x4, x5, [sp, #32]
	ldp	x2, x3, [sp, #16]
	ldp	x0, x1, [sp]
	mov	sp, x22
	.cfi_def_cfa sp, 0
	br	x20
	.cfi_endproc
	.size	fentry_go_slow, . - fentry_go_slow

#ifndef FENTRY_SHARED
/* System calls of Go's own code, which its runtime and package syscall make in assembly (arch/arm64, gosyscall.go). Copies come
   here with the way back in x17; x16 is the only other free register, and x28 is the goroutine, or 0 in a thread of C's that
   has none. A new thread has its creator's until it has set its own, and what it needs for that is below its stack pointer.

   On a goroutine's stack there is no room, so this goes on at the stack of the thread's g0 from there; not everything that
   a goroutine runs is on its own stack (vDSO calls are made on g0's), so the stack pointer says which it is. Only
   instructions that leave flags alone look at that, for the kernel keeps them.

   What a goroutine does on its own stack is recorded here, if the thread's newest event is this goroutine's, as syscall.S
   records it: registers are kept below where g0's stack begins, and the stack pointer stays as it is. A goroutine is not
   stopped outside of Go's code, so it stays on its thread meanwhile. All else is in C. */

/* from the way back to where a copy makes a call that is not recorded, arch/arm64 */
#define GO_UNRECORDED 12

	/* Go to other unless a goroutine that has a number runs on its own stack. */
	.macro ON_GOROUTINE other
	cbz	x28, \other
	adrp	x16, fentry_image + IMAGE_O_GOROUTINE
	ldr	w16, [x16, #:lo12:fentry_image + IMAGE_O_GOROUTINE]
	ldr	x16, [x28, x16]
	cbz	x16, \other
	ldr	x16, [x28, #GO_STACK_LO]
	sub	x16, sp, x16
	tbnz	x16, #63, \other
	ldr	x16, [x28, #GO_STACK_HI]
	sub	x16, sp, x16
	tbz	x16, #63, \other
	.endm
	.macro G0_STACK
	ldr	x16, [x28, #GO_M]
	ldr	x16, [x16, #GO_M_G0]
	ldr	x16, [x16, #GO_SCHED_SP]
	.endm

	/* To slow, with all as it was, unless that is so. Else x0 to x3 and the flags are free. */
	.macro SAVE_GO slow
	ON_GOROUTINE \slow
	G0_STACK
	stp	x0, x1, [x16, #-16]
	stp	x2, x3, [x16, #-32]
	mrs	x0, nzcv
	str	x0, [x16, #-48]
	.endm
	.macro RESTORE_GO
	G0_STACK
	ldr	x0, [x16, #-48]
	msr	nzcv, x0
	ldp	x2, x3, [x16, #-32]
	ldp	x0, x1, [x16, #-16]
	.endm

	/* x0 is to be the thread's block, to other unless its newest event is the goroutine's. */
	.macro GO_BLOCK other
	adrp	x1, fentry_image
	add	x1, x1, #:lo12:fentry_image
	ldr	w0, [x1, #IMAGE_O_THREAD]
	cbz	w0, 1f
	ldr	x2, [x28, #GO_M]
	ldr	x0, [x2, x0]
	b	2f
1:	mrs	x0, tpidr_el0
	add	x0, x0, #:tprel_hi12:fentry_tls, lsl #12
	ldr	x0, [x0, #:tprel_lo12_nc:fentry_tls]
2:	tbz	x0, #3, \other
	ldr	w1, [x1, #IMAGE_O_GOROUTINE]
	ldr	x1, [x28, x1]
	ldr	x2, [x0, #W(CB_GOROUTINE)]
	cmp	x1, x2
	b.ne	\other
	.endm

	/* The fast path; what is behind it is the slow one. */
	.macro QUICK_GO exit
	.if \exit == 0
	lsr	x16, x8, #9	/* SYSCALL_NUMBERS */
	cbnz	x16, 3f
	adrp	x16, fentry_syscalls
	add	x16, x16, #:lo12:fentry_syscalls
	ldrb	w16, [x16, x8]
	cbnz	w16, 11f
	.endif
3:	SAVE_GO	11f
	GO_BLOCK 9f
4:
	.if \exit
	ldr	w1, [x0, #W(CB_SYS_OPEN)]
	cbnz	w1, 9f
	RESERVE_RECORD 16, 1, FT_ID_EXIT, 9f, 4b
	G0_STACK
	ldr	x0, [x16, #-16]
	str	x0, [x1, #8]
	.else
	RESERVE_RECORD 64, 7, 0, 9f, 4b
	G0_STACK
	ldp	x0, x2, [x16, #-16]
	stp	x8, x0, [x1, #8]
	ldr	x0, [x16, #-32]
	stp	x2, x0, [x1, #24]
	ldr	x2, [x16, #-24]
	stp	x2, x4, [x1, #40]
	str	x5, [x1, #56]
	.endif
	stlr	x3, [x1]
	RESTORE_GO
	br	x17
9:	RESTORE_GO
11:
	.endm

	/* To where there is room for C, with struct sysregs at the stack pointer, and behind it the program's, and back. */
	.macro TO_C
	ON_GOROUTINE 1f
	G0_STACK
	b	2f
1:	sub	x16, sp, #128		/* the new thread's */
2:	and	x16, x16, #-16
	sub	x16, x16, #224
	sub	x16, sp, x16
	sub	sp, sp, x16
	add	x16, sp, x16
	str	x16, [sp, #208]
	.cfi_escape 0x0f, 4, 0x8f, 0xd0, 1, 6	/* CFA: what is at 208(sp) */
	stp	x29, x17, [sp]
	.cfi_escape 0x10, 29, 2, 0x8f, 0	/* x29 is at 0(sp), and x30's at 8(sp) */
	.cfi_escape 0x10, 30, 2, 0x8f, 8
	mov	x29, sp
	stp	x4, x5, [sp, #32]
	stp	x6, x7, [sp, #48]
	stp	x8, x9, [sp, #64]
	stp	x10, x11, [sp, #80]
	stp	x12, x13, [sp, #96]
	stp	x14, x15, [sp, #112]
	str	x17, [sp, #136]
	stp	x0, x1, [sp, #144]
	stp	x2, x3, [sp, #160]
	mrs	x0, nzcv
	str	x0, [sp, #176]
	str	x30, [sp, #200]
	.endm
	.macro FROM_C
	ldr	x0, [sp, #176]
	msr	nzcv, x0
	ldr	x30, [sp, #200]
	ldp	x2, x3, [sp, #160]
	ldp	x0, x1, [sp, #144]
	ldr	x17, [sp, #136]
	.cfi_register x30, x17
	ldp	x14, x15, [sp, #112]
	ldp	x12, x13, [sp, #96]
	ldp	x10, x11, [sp, #80]
	ldp	x8, x9, [sp, #64]
	ldp	x6, x7, [sp, #48]
	ldp	x4, x5, [sp, #32]
	ldr	x29, [sp]
	.cfi_restore x29
	ldr	x16, [sp, #208]
	mov	sp, x16
	.cfi_def_cfa sp, 0
	.endm

	.macro GO_SYSCALL name, exit
HIDDEN(\name)
\name:
	.cfi_startproc
	.cfi_def_cfa sp, 0
	.cfi_register x30, x17
	adrp	x16, fentry_syscalls_on
	ldr	w16, [x16, #:lo12:fentry_syscalls_on]
	tbz	w16, #\exit, 20f	/* SYSCALLS_BEGINS, SYSCALLS_ENDS */
	QUICK_GO \exit
	TO_C
	adrp	x0, fentry_slow_syscall
	add	x0, x0, #:lo12:fentry_slow_syscall
	LOAD	x1, fentry_home_syscall
	cmp	x0, x1
	b.ne	5f			/* the trace is another image's */
	mov	x0, sp
	mov	w1, #\exit
	mov	x2, x28
	bl	fentry_slow_go_syscall
5:	FROM_C
	br	x17
20:
	.if \exit == 0
	add	x17, x17, #GO_UNRECORDED
	.endif
	br	x17
	.cfi_endproc
	.size	\name, . - \name
	.endm

	GO_SYSCALL fentry_go_syscall_enter, 0
	GO_SYSCALL fentry_go_syscall_exit, 1

/* A system call whose number is known only now, where some are recorded, or none. The bit of the filter is found with one
   register, in words of 32: the number is turned around meanwhile. */
HIDDEN(fentry_go_some_syscall_enter)
fentry_go_some_syscall_enter:
	.cfi_startproc
	.cfi_def_cfa sp, 0
	.cfi_register x30, x17
	lsr	x16, x8, #9	/* SYSCALL_NUMBERS */
	cbnz	x16, 4f
	adrp	x16, fentry_syscall_filter
	add	x16, x16, #:lo12:fentry_syscall_filter
	ror	x8, x8, #5
	ldr	w16, [x16, w8, uxtw #2]
	ror	x8, x8, #59
	lsr	w16, w16, w8
	tbz	w16, #0, 4f
	b	fentry_go_syscall_enter
4:	add	x17, x17, #GO_UNRECORDED
	br	x17
	.cfi_endproc
	.size	fentry_go_some_syscall_enter, . - fentry_go_some_syscall_enter
#endif

	.section .note.GNU-stack, "", %progbits
