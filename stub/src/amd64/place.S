/* Events of functions that have no thunk: their code comes here at both ends (arch/amd64, placeevent.go), since who looks at
   their stack must find the return address there that the call has put there. These are OCaml's.

   r10 is the way back, r11d the function's id in its image, with FT_ID_EXIT at the end, and the stack pointer is at the slot S.
   These two registers, xmm11 to xmm15 and the flags are free at both ends (record/plain, ocamlmoves.go). The stack can be
   full, and who notices that by the fault must not find it here: so nothing is put there, the fast path keeps registers in
   xmm, and the slow one has room of its own, which the block says where.

   Calls are in the shadow of their slots as they are with thunks, for whoever looks what is open, so C's calls and these
   are one chain. That the shadow has the return address, too, only tells who writes it back what is there already. */
#include "macros.h"

	/* The id as the trace has it, with the time in rdx, to rcx. */
	.macro PLACE_EVENT
	movq	%xmm12, %rcx
	add	fentry_id_base(%rip), %ecx
	shl	$32, %rcx
	or	%rdx, %rcx
	.endm

	.macro PLACE slow, pre, suf
	cmpl	$0, fentry_plain(%rip)
	je	\slow
	movq	%xmm12, %rcx
	test	%ecx, %ecx
	js	4f
	cmp	\pre\()CB_TOP\suf, %rsp
	jae	\slow		/* frames were left, or this is another stack */
	cmp	\pre\()CB_LO\suf, %rsp
	jb	\slow
	RESERVE 8, \slow, \pre, \suf
	PLACE_EVENT
	mov	%rsp, %rdx
	btc	$SHADOW_RET, %rdx
	movq	(%rsp), %xmm11
	movq	%xmm11, (%rdx)
	btc	$SHADOW_PREV, %rdx
	movq	\pre\()CB_TOP\suf, %xmm11
	movq	%xmm11, (%rdx)
	mov	%rsp, \pre\()CB_TOP\suf
	mov	%rcx, (%rax)
	jmp	90f
4:	cmp	%rsp, \pre\()CB_TOP\suf
	jne	\slow
	RESERVE 8, \slow, \pre, \suf
	PLACE_EVENT
	mov	%rsp, %rdx
	btc	$SHADOW_RET, %rdx
	btc	$SHADOW_PREV, %rdx
	movq	(%rdx), %xmm11
	movq	%xmm11, \pre\()CB_TOP\suf
	mov	%rcx, (%rax)
	jmp	90f
	.endm

	.text
HIDDEN(fentry_place)
fentry_place:
	.cfi_startproc
	.cfi_def_cfa %rsp, 8
	.cfi_offset %rip, -8
	movq	%r11, %xmm12
	movq	%rax, %xmm13
	movq	%rdx, %xmm14
	movq	%rcx, %xmm15
	CHECK_OWNER 7f, 9f
	PLACE	6f, %gs:
6:	mov	%gs:CB_ROOM, %rcx
	jmp	20f
7:	xor	%ecx, %ecx
	jmp	20f
9:	HASHED_BLOCK 7b
	PLACE	16f, , (%r11)
16:	mov	CB_ROOM(%r11), %rcx

	/* fentry_slow_place(slot, id, image, ret), on the thread's own room, or where it is for want of that. */
20:	test	%rcx, %rcx
	cmovz	%rsp, %rcx
	and	$-16, %rcx
	mov	%rsp, %rdx
	.cfi_def_cfa %rdx, 8
	mov	%rcx, %rsp
	push	%rdx
	push	%rbp
	mov	%rsp, %rbp
	.cfi_escape 0x0f, 5, 0x76, 8, 0x06, 0x23, 8	/* CFA: what is at 8(%rbp), plus 8 */
	.cfi_escape 0x10, 6, 2, 0x76, 0			/* rbp is at 0(%rbp) */
	push	%rsi
	push	%rdi
	push	%r8
	push	%r9
	push	%r10
	lea	-8(%rsp), %rsp
	cld
	mov	%rdx, %rdi
	mov	(%rdx), %rcx
	movq	%xmm12, %rsi
	mov	%esi, %esi
	mov	fentry_self(%rip), %rdx
	call	*fentry_home_place(%rip)
	lea	8(%rsp), %rsp
	pop	%r10
	pop	%r9
	pop	%r8
	pop	%rdi
	pop	%rsi
	pop	%rbp
	.cfi_escape 0x0f, 5, 0x77, 0, 0x06, 0x23, 8	/* CFA: what is at 0(%rsp), plus 8 */
	.cfi_restore %rbp
	pop	%rsp
	.cfi_def_cfa %rsp, 8
90:	movq	%xmm13, %rax
	movq	%xmm14, %rdx
	movq	%xmm15, %rcx
	notrack jmp *%r10
	.cfi_endproc
	.size	fentry_place, . - fentry_place

	.section .note.GNU-stack, "", @progbits
