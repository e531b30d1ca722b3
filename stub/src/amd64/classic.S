/* Entry points of the classic tracer: mcount and __fentry__, which the program's
   functions call themselves, the trampolines for rewritten calls, and the handler
   that traced functions return to. classic.c has what is rare, and the layout of
   shadow words.

   What is live at a site is everything: __fentry__ is called with the function's arguments
   in place, mcount from code whose compiler believes that it changes nothing, and with
   -fipa-ra callers keep values even in registers that a call may destroy. Here five are
   saved and not three as with thunks: the block's address is in r11 whichever way it was
   found, so that each path is there once. Return addresses are replaced, because the site
   is a call in the program's code and not ours: returns are mispredicted, which is why
   "fentry patch" puts thunks in place of such calls. */
#include "macros.h"

#define PUBLIC(f) .globl f; .type f, @function

/* behind five pushes: rax rdx rcx rsi r11 */
#define O_CALL 40		/* return address of the call of mcount */

	.macro PUSH5
	pushr	%rax
	pushr	%rdx
	pushr	%rcx
	pushr	%rsi
	pushr	%r11
	.endm
	.macro POP5
	popr	%r11
	popr	%rsi
	popr	%rcx
	popr	%rdx
	popr	%rax
	.endm

	/* WRITE for an id of the trace, as this tracer has them. */
	.macro WRITE_ID id, at
	mov	\id, %ecx
	shl	$32, %rcx
	or	%rdx, %rcx
	mov	%rcx, \at
	.endm

	/* r11: this thread's block. Changes rcx, rdx. */
	.macro CLASSIC_BLOCK slow
	cmpq	$0, fentry_blocks(%rip)
	jne	70f
	mov	%fs:0, %rcx
	not	%rcx
	cmp	%rcx, %gs:CB_OWNER
	jne	\slow
	mov	%gs:CB_SELF, %r11
	jmp	71f
70:	HASHED_BLOCK \slow
71:
	.endm

	/* Go to hooks if a callback of the program's is set. */
	.macro CHECK_HOOKS hooks
	lea	ftrace_stub(%rip), %rcx
	cmp	%rcx, ftrace_trace_function(%rip)
	jne	\hooks
	cmp	%rcx, ftrace_graph_return(%rip)
	jne	\hooks
	lea	ftrace_graph_entry_stub(%rip), %rcx
	cmp	%rcx, ftrace_graph_entry(%rip)
	jne	\hooks
	.endm

	.macro LEAVE_CLASSIC
	.cfi_remember_state
	POP5
	ret
	.cfi_restore_state
	.endm

	/* A function at whose site the static chain was saved by push %r10 (41 52), with or
	   without an endbr64 behind it, and is restored by pop %r10 (41 5a) has its return
	   address behind that. The site has 5 or 6 bytes. To no unless it is one. */
	.macro NESTED ret, no
	cmpw	$0x5a41, (\ret)
	jne	\no
	cmpw	$0x5241, -7(\ret)
	je	79f
	cmpw	$0x5241, -8(\ret)
	je	79f
	cmpl	$0xfa1e0ff3, -9(\ret)
	jne	78f
	cmpw	$0x5241, -11(\ret)
	je	79f
78:	cmpl	$0xfa1e0ff3, -10(\ret)
	jne	\no
	cmpw	$0x5241, -12(\ret)
	jne	\no
79:
	.endm

	/* The caller's frame pointer, at the site and behind SLOW. */
	.macro CALLER_FP where, reg
	.ifc \where, sp
	mov	%rbp, \reg
	.else
	mov	(%rbp), \reg
	.endif
	.endm
	.macro SLOW_CALLER_FP where, reg
	mov	8(%rbp), \reg
	.ifc \where, fp
	mov	(\reg), \reg
	.endif
	.endm

	/* rdi the slot, esi the id, on the stack; fentry_classic_enter(slot, id, caller's fp) */
	.macro SLOW_CLASSIC where
	SLOW	48
	mov	%rsi, %rdi
	mov	%eax, %esi
	SLOW_CALLER_FP \where, %rdx
	call	fentry_classic_enter
	ENDSLOW	48
	.endm

	/* where the return address is: sp, before the prologue; fp, behind it */
	.macro CLASSIC_ENTRY where, frame
	.cfi_startproc
	cmpl	$0, function_trace_stop(%rip)
	jne	99f
	PUSH5
	CHECK_HOOKS 98f
	cmpl	$0, fentry_armed(%rip)
	je	90f

	/* rsi the slot */
1:	mov	O_CALL(%rsp), %rax
	.ifc \where, sp
	cmpw	$0x5a41, (%rax)
	je	80f
	lea	O_CALL+8(%rsp), %rsi
	.else
	lea	8(%rbp), %rsi
	lea	-17(%r10), %rcx		/* r10 - 8 above the slot: perhaps that one is a copy */
	sub	%rbp, %rcx
	cmp	$512, %rcx
	jb	80f
	.endif

	/* eax the id */
2:	sub	fentry_classic_origin(%rip), %rax
	lea	-4(%rax), %rcx
	cmp	fentry_classic_span(%rip), %rcx
	jae	9f
	shr	$2, %rax
	add	fentry_id_base(%rip), %eax

	CLASSIC_BLOCK 7f
	mov	(%rsi), %rcx
	lea	return_to_handler(%rip), %rdx
	cmp	%rdx, %rcx
	je	4f
	mov	CB_TOP(%r11), %rdx
	cmp	%rdx, %rsi
	jae	7f			/* frames were skipped, or this is another stack */
	cmp	CB_LO(%r11), %rsi
	jb	7f
	btc	$SHADOW_RET, %rsi
	mov	%rcx, (%rsi)
	btc	$SHADOW_PREV, %rsi
	mov	%rdx, (%rsi)
	btc	$SHADOW_RET, %rsi
	CALLER_FP \where, %rcx
	mov	%rcx, (%rsi)		/* the time's word */
	btc	$SHADOW_PREV, %rsi
	or	$FT_ID_EXIT, %eax
	btc	$SHADOW_AUX, %rsi
	mov	%rax, (%rsi)
	btc	$SHADOW_AUX, %rsi
	mov	%rsi, CB_TOP(%r11)
3:	RESERVE 8, 5f, , (%r11)
	btc	$SHADOW_AUX, %rsi
	mov	(%rsi), %ecx
	btc	$SHADOW_AUX, %rsi
	btr	$31, %ecx
	shl	$32, %rcx
	or	%rdx, %rcx
	mov	%rcx, (%rax)
	lea	return_to_handler(%rip), %rax
	mov	%rax, (%rsi)
9:	LEAVE_CLASSIC

	/* A tail call: the function that came here by a jump has ended. */
4:	cmp	%rsi, CB_TOP(%r11)
	jne	7f
	btc	$SHADOW_AUX, %rsi
	testl	$FT_ID_EXIT, (%rsi)
	btc	$SHADOW_AUX, %rsi
	jz	7f			/* it was followed by callbacks */
	.cfi_remember_state
	pushr	%rax
	RESERVE 16, 6f, , (%r11)
	btc	$SHADOW_AUX, %rsi
	WRITE_ID	(%rsi), (%rax)
	WRITE_ID	(%rsp), 8(%rax)
	popr	%rax
	or	$FT_ID_EXIT, %eax
	mov	%rax, (%rsi)
	LEAVE_CLASSIC
	.cfi_restore_state
	.cfi_remember_state
	.cfi_adjust_cfa_offset 8
6:	popr	%rax
	jmp	7f
	.cfi_restore_state

5:	SLOW	48
	call	fentry_slow_record
	ENDSLOW	48
	mov	%rax, %r11
	test	%rax, %rax
	jnz	3b
	lea	return_to_handler(%rip), %rax
	mov	%rax, (%rsi)
	LEAVE_CLASSIC

7:	SLOW_CLASSIC \where
	LEAVE_CLASSIC

80:
	.ifc \where, sp
	lea	O_CALL+8(%rsp), %rsi
	NESTED	%rax, 2b
	lea	O_CALL+16(%rsp), %rsi
	.else
	mov	%rax, %rcx
	SLOW	48
	mov	%rcx, %rdi
	mov	%r10, %rsi
	mov	8(%rbp), %rdx
	call	fentry_classic_slot
	ENDSLOW	48
	mov	%rax, %rsi
	mov	O_CALL(%rsp), %rax
	.endif
	jmp	2b

90:	cmpl	$0, fentry_classic_started(%rip)
	jne	9b
	SLOW	48
	call	fentry_classic_start
	ENDSLOW	48
	cmpl	$0, fentry_armed(%rip)
	jne	1b
	LEAVE_CLASSIC

98:	.cfi_remember_state
	POP5
	jmp	\frame
	.cfi_restore_state
99:	.cfi_adjust_cfa_offset -40
	ret
	.cfi_endproc
	.endm

	.text
	.p2align 6
PUBLIC(__fentry__)
__fentry__:
	CLASSIC_ENTRY sp, fentry_hooks
	.size	__fentry__, . - __fentry__

	.p2align 6
PUBLIC(mcount)
PUBLIC(_mcount)
mcount:
_mcount:
	CLASSIC_ENTRY fp, mcount_hooks
	.size	mcount, . - mcount
	.size	_mcount, . - _mcount

/* Frames for callbacks. rbp points to the saved one; below it is, from the top: */
#define F_SLOT	-16		/* where the caller's return address is */
#define F_FP	-8		/* the caller's frame pointer */
#define REGS	-192		/* struct ftrace_regs */
#define R(x)	REGS+x(%rbp)

	/* where, and whether all registers are wanted */
	.macro FRAME where, full
	.cfi_startproc
	pushr	%rbp
	.cfi_offset %rbp, -16
	mov	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	lea	REGS(%rsp), %rsp
	mov	%rax, R(80)
	mov	%rcx, R(88)
	mov	%rdx, R(96)
	mov	%rsi, R(104)
	mov	%rdi, R(112)
	mov	%r8, R(72)
	mov	%r9, R(64)
	mov	%r10, R(56)
	mov	%r11, R(48)
	mov	(%rbp), %rax
	mov	%rax, R(32)
	movq	$0, R(120)
	mov	8(%rbp), %rdi
	mov	%rdi, R(128)
	lea	16(%rbp), %rax
	mov	%rax, R(152)
	.if \full
	pushfq
	popq	144(%rsp)
	mov	%rbx, R(40)
	mov	%r12, R(24)
	mov	%r13, R(16)
	mov	%r14, R(8)
	mov	%r15, R(0)
	mov	%cs, %eax
	mov	%rax, R(136)
	mov	%ss, %eax
	mov	%rax, R(160)
	.else
	movq	$0, R(136)
	.endif
	cld

	/* the slot and the caller's frame pointer */
	.ifc \where, sp
	lea	16(%rbp), %rax
	NESTED	%rdi, 1f
	lea	24(%rbp), %rax
1:	mov	(%rbp), %rcx
	.else
	mov	%r10, %rsi
	mov	(%rbp), %rdx
	and	$-16, %rsp
	call	fentry_classic_slot
	mov	(%rbp), %rcx
	mov	(%rcx), %rcx
	.endif
	mov	%rax, F_SLOT(%rbp)
	mov	%rcx, F_FP(%rbp)

	and	$-16, %rsp
	call	fentry_classic_busy_begin	/* may a callback run here? */
	test	%eax, %eax
	jz	fentry_frame_restore

	/* vector and x87 registers, at (%rsp) */
	mov	fentry_xsave_size(%rip), %eax
	sub	%rax, %rsp
	and	$-64, %rsp
	call	fentry_save_vectors
	.endm

	.macro IN_FRAME
	.cfi_startproc
	.cfi_def_cfa %rbp, 16
	.cfi_offset %rbp, -16
	.endm

	/* Arguments of ftrace_trace_function: frompc, selfpc, op, regs. */
	.macro TRACE_ARGS
	mov	F_SLOT(%rbp), %rsi
	mov	(%rsi), %rdi
	call	ftrace_graph_ret_addr
	mov	%rax, %rdi
	mov	8(%rbp), %rsi
	sub	$5, %rsi
	mov	function_trace_op(%rip), %rdx
	lea	R(0), %rcx
	.endm

	/* Everything back as it was, or as the callback wants it. cs tells which registers there are. */
	.p2align 4
HIDDEN(fentry_frame_end)
fentry_frame_end:
	IN_FRAME
	call	fentry_classic_busy_end
2:	call	fentry_restore_vectors
HIDDEN(fentry_frame_restore)
fentry_frame_restore:
	lea	REGS(%rbp), %rsp
	mov	R(128), %rax
	mov	%rax, 8(%rbp)
	cmpq	$0, R(136)
	je	1f
	mov	R(0), %r15
	mov	R(8), %r14
	mov	R(16), %r13
	mov	R(24), %r12
	mov	R(40), %rbx
1:	mov	R(48), %r11
	mov	R(56), %r10
	mov	R(64), %r9
	mov	R(72), %r8
	mov	R(112), %rdi
	mov	R(104), %rsi
	mov	R(96), %rdx
	mov	R(88), %rcx
	cmpq	$0, R(136)
	je	1f
	cmpq	$0, R(120)
	jne	3f
	mov	R(80), %rax
	pushq	144(%rsp)
	popfq
	jmp	4f
1:	mov	R(80), %rax
4:	.cfi_remember_state
	.cfi_def_cfa %rsp, 208
	mov	32(%rsp), %rbp
	.cfi_restore %rbp
	lea	200(%rsp), %rsp
	.cfi_def_cfa_offset 8
	ret
	/* orig_ax: go there, the return address stays on the stack */
3:	.cfi_restore_state
	mov	R(120), %rax
	mov	%rax, (%rbp)
	mov	R(80), %rax
	pushq	144(%rsp)
	popfq
	.cfi_def_cfa %rsp, 208
	mov	32(%rsp), %rbp
	.cfi_restore %rbp
	lea	192(%rsp), %rsp
	.cfi_def_cfa_offset 16
	ret
	.cfi_endproc
	.size	fentry_frame_end, . - fentry_frame_end

	/* Jumped to from a trampoline, with its frame. */
	.p2align 4
PUBLIC(ftrace_graph_caller)
ftrace_graph_caller:
	IN_FRAME
	call	fentry_classic_busy_end
	mov	F_SLOT(%rbp), %rdi
	mov	8(%rbp), %rsi
	sub	$5, %rsi
	mov	F_FP(%rbp), %rdx
	call	prepare_ftrace_return
	jmp	2b
	.cfi_endproc
	.size	ftrace_graph_caller, . - ftrace_graph_caller

	/* What __fentry__ and mcount come to when callbacks are set: the order of the
	   kernel's mcount. */
	.macro HOOKS name, where
	.p2align 4
HIDDEN(\name)
\name:
	FRAME	\where, 0
	TRACE_ARGS
	mov	ftrace_trace_function(%rip), %rax
	lea	ftrace_stub(%rip), %r8
	cmp	%r8, %rax
	je	ftrace_graph_caller
	call	*%rax
	jmp	ftrace_graph_caller
	.cfi_endproc
	.size	\name, . - \name
	.endm

	/* A trampoline for rewritten calls. */
	.macro TRAMPOLINE name, where, full, call, graph
	.p2align 4
PUBLIC(\name)
\name:
	FRAME	\where, \full
	TRACE_ARGS
	.globl	\call
\call:
	call	ftrace_stub
	.globl	\graph
\graph:
	.byte	0x0f, 0x1f, 0x44, 0x00, 0x00	/* nop, or jmp ftrace_graph_caller */
	jmp	fentry_frame_end
	.cfi_endproc
	.size	\name, . - \name
	.endm

	TRAMPOLINE ftrace_caller, sp, 0, ftrace_call, ftrace_graph_call
	TRAMPOLINE ftrace_regs_caller, sp, 1, ftrace_regs_call, ftrace_graph_regs_call
	TRAMPOLINE ftrace_mcount_caller, fp, 0, ftrace_mcount_call, ftrace_graph_mcount_call
	HOOKS	fentry_hooks, sp
	HOOKS	mcount_hooks, fp

	.p2align 4
PUBLIC(ftrace_stub)
PUBLIC(ftrace_stub_graph)
ftrace_stub:
ftrace_stub_graph:
	.cfi_startproc
	ret
	.cfi_endproc
	.size	ftrace_stub, . - ftrace_stub
	.size	ftrace_stub_graph, . - ftrace_stub_graph

	.p2align 4
PUBLIC(ftrace_graph_entry_stub)
ftrace_graph_entry_stub:
	.cfi_startproc
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	ftrace_graph_entry_stub, . - ftrace_graph_entry_stub

	/* The area for xsave is at the caller's (%rsp). */
	.p2align 4
HIDDEN(fentry_save_vectors)
fentry_save_vectors:
	.cfi_startproc
	mov	fentry_xsave_mask(%rip), %eax
	xor	%edx, %edx
	test	%eax, %eax
	jz	1f
	/* the header: xsave leaves words of it as they are, xrstor wants them 0 */
	mov	%rdx, 8+512(%rsp)
	mov	%rdx, 8+520(%rsp)
	mov	%rdx, 8+528(%rsp)
	mov	%rdx, 8+536(%rsp)
	mov	%rdx, 8+544(%rsp)
	mov	%rdx, 8+552(%rsp)
	mov	%rdx, 8+560(%rsp)
	mov	%rdx, 8+568(%rsp)
	xsave64	8(%rsp)
	ret
1:	fxsave64 8(%rsp)
	ret
	.cfi_endproc
	.size	fentry_save_vectors, . - fentry_save_vectors

	.p2align 4
HIDDEN(fentry_restore_vectors)
fentry_restore_vectors:
	.cfi_startproc
	mov	fentry_xsave_mask(%rip), %eax
	xor	%edx, %edx
	test	%eax, %eax
	jz	1f
	xrstor64 8(%rsp)
	ret
1:	fxrstor64 8(%rsp)
	ret
	.cfi_endproc
	.size	fentry_restore_vectors, . - fentry_restore_vectors

	/* Where traced functions return to. S, the slot, has just been popped: it is made
	   part of the stack again until the caller's return address is in it. The jump at
	   the end, and not ret, keeps the processor's stack of return addresses in step:
	   the function's own ret has already taken one off it. The word below the stack
	   pointer is safe there: signal handlers leave the red zone alone (psABI 3.2.2).

	   Unwinders and debuggers look up a return address minus 1, so the rows begin a byte
   before, and that byte has a name. */
	.p2align 4
	.cfi_startproc
	.cfi_def_cfa %rsp, 1
	CFI_SHADOW_FRAME
PUBLIC(ftrace_return)
ftrace_return:
	nop
PUBLIC(return_to_handler)
return_to_handler:
	lea	-16(%rsp), %rsp
	.cfi_def_cfa_offset 17
	PUSH5			/* 40 the exit's id, 48 S */
	CLASSIC_BLOCK 7f
	lea	48(%rsp), %rsi
	cmp	%rsi, CB_TOP(%r11)
	jne	7f
	btc	$SHADOW_AUX, %rsi
	mov	(%rsi), %eax
	btc	$SHADOW_AUX, %rsi
	test	%eax, %eax
	jns	7f		/* followed by callbacks */
	btc	$SHADOW_PREV, %rsi
	cmp	%rbp, (%rsi)	/* the frame-pointer test */
	jne	7f
	btc	$SHADOW_PREV, %rsi
	mov	%eax, 40(%rsp)
3:	RESERVE 8, 5f, , (%r11)
	WRITE_ID	40(%rsp), (%rax)
	btc	$SHADOW_RET, %rsi
	mov	(%rsi), %rax
	btc	$SHADOW_PREV, %rsi
	mov	(%rsi), %rcx
	mov	%rax, 48(%rsp)
	mov	%rcx, CB_TOP(%r11)
4:	POP5
	lea	16(%rsp), %rsp
	.cfi_def_cfa_offset 1
	notrack jmp *-8(%rsp)

	.cfi_def_cfa_offset 57
5:	SLOW	57
	call	fentry_slow_record
	ENDSLOW	57
	mov	%rax, %r11
	test	%rax, %rax
	jnz	3b

7:	SLOW	57
	lea	64+48(%rbp), %rdi
	call	fentry_classic_hooked
	test	%eax, %eax
	jnz	8f
	lea	64+48(%rbp), %rdi
	mov	8(%rbp), %rsi
	call	ftrace_return_to_handler
9:	.cfi_remember_state
	ENDSLOW	57
	mov	%rax, 48(%rsp)
	jmp	4b
	.cfi_restore_state
8:	mov	fentry_xsave_size(%rip), %eax
	sub	%rax, %rsp
	and	$-64, %rsp
	call	fentry_save_vectors
	lea	64+48(%rbp), %rdi
	mov	8(%rbp), %rsi
	call	ftrace_return_to_handler
	mov	%rax, 64+40(%rbp)
	call	fentry_restore_vectors
	mov	64+40(%rbp), %rax
	jmp	9b
	.cfi_endproc
	.size	return_to_handler, . - return_to_handler
	.size	ftrace_return, return_to_handler - ftrace_return

	.data
	.p2align 3
	.macro VARIABLE name, size
	.globl	\name
	.type	\name, @object
	.size	\name, \size
\name:
	.endm
	VARIABLE ftrace_trace_function, 8
	.quad	ftrace_stub
	VARIABLE ftrace_graph_return, 8
	.quad	ftrace_stub
	VARIABLE ftrace_graph_entry, 8
	.quad	ftrace_graph_entry_stub
	.bss
	.p2align 3
	VARIABLE function_trace_op, 8
	.zero	8
	VARIABLE function_trace_stop, 4
	.zero	4

	.section .note.GNU-stack, "", @progbits
