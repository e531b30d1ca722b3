/* The parts that the fast paths share, and the frames the unwinder sees in them.

   A thunk pushes its id and comes here, so that a routine finds

       enter:  0(%rsp) back into the thunk   8(%rsp) id   16(%rsp) S, the caller's return address
       exit:   0(%rsp) id                    8(%rsp) S, to be filled with the caller's return address

   To unwinders the id belongs to the thunk's frame although enter drops it: they
   look up a caller's row at the byte before the return address, where the id is
   still pushed.

   Every register is the traced program's. The fast paths save the three they use.
   Flags are dead at a function's entry and exit (x86-64 psABI 3.2.1), except for
   the direction flag, which the fast paths do not touch and slow paths keep.

   The order of things is such that a signal handler that runs traced functions
   may come between any two instructions:
     - the shadow words of S are written before S becomes the top;
     - a slot is reserved by one instruction (xadd; no lock, the block is this
       thread's own), so a handler's events take other slots. The clock is read
       between looking at the next slot and reserving it: if that is another one,
       a handler was there in between, and the slot stays a hole, which readers
       skip. So a thread's events are in the order of their times. */
#include "layout.h"
#include "format.h"

#define HIDDEN(f) .globl f; .hidden f; .type f, @function; .p2align 6

/* DWARF: this frame's caller finds its return address in the shadow, and its
   stack pointer is CFA & -2. The CFA is odd because unwinders tell frames apart by
   it, and the thunk's frame would have the same as its caller's. */
#define CFI_SHADOW_FRAME \
	.cfi_escape 0x10, 16, 10, 0x09, 0xfe, 0x1a, 0x38, 0x1c, 0x31, 0x08, SHADOW_RET, 0x24, 0x27; \
	.cfi_escape 0x16, 7, 3, 0x09, 0xfe, 0x1a

	.macro pushr reg
	push	\reg
	.cfi_adjust_cfa_offset 8
	.endm
	.macro popr reg
	pop	\reg
	.cfi_adjust_cfa_offset -8
	.endm

	.macro SAVE3
	pushr	%rax
	pushr	%rdx
	pushr	%rcx
	.endm
	.macro RESTORE3
	popr	%rcx
	popr	%rdx
	popr	%rax
	.endm

	/* The rest of what a C function may change, behind SAVE3. Aligns the stack.
	   off: from the stack pointer at SAVE3's end to the CFA. */
	.macro SLOW off
	pushr	%rsi
	pushr	%rdi
	pushr	%r8
	pushr	%r9
	pushr	%r10
	pushr	%r11
	pushr	%rbp
	pushfq
	.cfi_adjust_cfa_offset 8
	mov	%rsp, %rbp
	.cfi_def_cfa %rbp, 64 + \off
	.cfi_escape 0x10, 6, 2, 0x76, 8		/* rbp is at 8(%rbp) */
	and	$-16, %rsp
	cld
	.endm
	.macro ENDSLOW off
	mov	%rbp, %rsp
	.cfi_def_cfa %rsp, 64 + \off
	popfq
	.cfi_adjust_cfa_offset -8
	popr	%rbp
	.cfi_restore %rbp
	popr	%r11
	popr	%r10
	popr	%r9
	popr	%r8
	popr	%rdi
	popr	%rsi
	.endm

	/* Reserve n bytes at %rcx for an event of now: %rax is the counter's low half. */
	.macro RESERVE n, full
10:	mov	%gs:CB_NEXT, %rcx
	rdtsc
	cmp	%edx, %gs:CB_HIGH
	jne	\full
	mov	$\n, %edx
	xadd	%rdx, %gs:CB_NEXT
	cmp	%rcx, %rdx
	jne	10b
	cmp	%gs:CB_END, %rcx
	jae	\full
	.endm

	/* Go away unless the control block is this thread's. */
	.macro CHECK_OWNER slow
	mov	%fs:0, %rcx
	cmp	%rcx, %gs:CB_OWNER
	jne	\slow
	.endm

	/* The caller's return address, and the slot S it is in, behind SAVE3. */
	.macro LOAD_RET where, reg
	.ifc \where, sp
	mov	40(%rsp), \reg
	.else
	mov	8(%rbp), \reg
	.endif
	.endm
	.macro LEA_SLOT where, reg
	.ifc \where, sp
	lea	40(%rsp), \reg
	.else
	lea	8(%rbp), \reg
	.endif
	.endm

	/* Back to the thunk, dropping the id. A thunk behind a prologue does not call
	   the body: its exit part takes the place of the caller's return address. */
	.macro LEAVE_ENTER where
	.ifc \where, fp
	mov	24(%rsp), %rax
	add	$THUNK_RET - THUNK_CALL_END, %rax
	mov	%rax, 8(%rbp)
	.endif
	RESTORE3
	ret	$8
	.endm

	/* Back to the thunk, which is to run the body untraced. */
	.macro SKIP_ENTER where
	.cfi_remember_state
	.ifc \where, sp
	addq	$THUNK_BYPASS - THUNK_CALL_END, 24(%rsp)
	.endif
	RESTORE3
	ret	$8
	.cfi_restore_state
	.endm

	/* Call fentry_slow_enter(slot, id, thunk) and compare what it says with ENTER_SKIP. */
	.macro SLOW_ENTER where
	SLOW 32
	.ifc \where, sp
	lea	64+40(%rbp), %rdi
	.else
	mov	8(%rbp), %rdi
	add	$8, %rdi
	.endif
	mov	64+32(%rbp), %esi
	mov	64+24(%rbp), %rdx
	call	fentry_slow_enter
	ENDSLOW 32
	cmp	$ENTER_SKIP, %eax
	.endm

	/* Put the return address back by fentry_slow_exit(slot, id). */
	.macro SLOW_EXIT
	SLOW 41
	lea	64+32(%rbp), %rdi
	mov	64+24(%rbp), %esi
	call	fentry_slow_exit
	ENDSLOW 41
	mov	%rax, 32(%rsp)
	.endm

	.macro LEAVE_EXIT
	RESTORE3
	lea	8(%rsp), %rsp
	.cfi_adjust_cfa_offset -8
	ret
	.endm
