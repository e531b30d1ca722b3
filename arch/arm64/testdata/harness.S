/*
 * The least a runtime can be: it notes ids in events[], and keeps return
 * addresses in the shadow. What a routine may destroy, it destroys.
 */
	.bss
	.globl	events, event_count, shadow_mask, skip_id, armed
	.p2align 4
events:		.skip	4 * 65536
event_count:	.skip	8
shadow_mask:	.skip	8
skip_id:	.skip	8
armed:		.skip	8

	.macro	get reg, var
	adrp	\reg, \var
	ldr	\reg, [\reg, #:lo12:\var]
	.endm
	/* note: w17 becomes an event; x0 and x1 are destroyed */
	.macro	note
	adrp	x0, event_count
	ldr	x1, [x0, #:lo12:event_count]
	add	x1, x1, #1
	str	x1, [x0, #:lo12:event_count]
	sub	x1, x1, #1
	and	x1, x1, #65535
	adrp	x0, events
	add	x0, x0, #:lo12:events
	str	w17, [x0, x1, lsl #2]
	.endm
	.macro	destroy from, to
	mov	x\from, #-0x6b
	.if	\from - \to
	mov	x\to, #-0x6c
	.endif
	.endm
	.macro	routine name
	.globl	\name
	.type	\name, %function
	.p2align 6
\name:	.cfi_startproc
	.endm
	.macro	end name
	.cfi_endproc
	.size	\name, . - \name
	.endm
	.macro	save
	stp	x0, x1, [sp, #-32]!
	.cfi_adjust_cfa_offset 32
	stp	x2, x3, [sp, #16]
	.endm
	.macro	restore
	ldp	x2, x3, [sp, #16]
	ldp	x0, x1, [sp], #32
	.cfi_adjust_cfa_offset -32
	.endm
	/* id: w17 is to be the id of the thunk in whose front address at is; x0 is destroyed */
	.macro	id at
	adrp	x0, thunks - 32
	add	x0, x0, #:lo12:thunks - 32
	sub	x17, \at, x0
	lsr	x17, x17, #5
	.endm
	/* tail: record the end of the call that address from is in the back of the thunk of, and go on at to if it is none */
	.macro	tail from, to
	adrp	x2, backs
	add	x2, x2, #:lo12:backs
	sub	x2, \from, x2
	and	x3, x2, #15
	cmp	x3, #4
	b.ne	\to
	lsr	x2, x2, #4
	cmp	x2, #128
	b.hs	\to
	mov	w3, w17
	add	w17, w2, #1
	orr	w17, w17, #0x80000000
	note
	mov	w17, w3
	.endm

	.text
	routine	graph_enter
	save
	id	x30
	get	x0, skip_id
	cmp	w17, w0
	b.eq	3f
	tail	x16, 1f
	b	2f
1:	add	x1, sp, #32 - 8
	get	x0, shadow_mask
	eor	x1, x1, x0
	str	x16, [x1]
2:	note
	restore
	destroy	17, 17
	ret
3:	restore
	add	x17, x30, #4
	mov	x30, x16
	ret	x17
	end	graph_enter

	routine	func_enter
	save
	note
	restore
	mov	x17, x30
	mov	x30, x16
	ret	x17
	end	func_enter

	routine	mcount_func_enter
	save
	note
	restore
	destroy	16, 17
	ret
	end	mcount_func_enter

	routine	mcount_enter
	save
	id	x17
	ldr	x1, [x29, #8]
	tail	x1, 1f
	b	2f
1:	ldr	x1, [x29, #8]
	get	x0, shadow_mask
	sub	x3, x16, #8
	eor	x3, x3, x0
	str	x1, [x3]
2:	note
	adrp	x0, backs + 4 - 16
	add	x0, x0, #:lo12:backs + 4 - 16
	add	x0, x0, x17, lsl #4
	str	x0, [x29, #8]
	restore
	destroy	16, 17
	ret
	end	mcount_enter

	routine	thunk_exit
	save
	note
	add	x1, sp, #32 - 8
	get	x0, shadow_mask
	eor	x1, x1, x0
	ldr	x30, [x1]
	restore
	destroy	16, 17
	ret
	end	thunk_exit

	.globl	_mcount
	.type	_mcount, %function
_mcount: ret
	.size	_mcount, . - _mcount

	.globl	thunks, backs, frames, frames_end
	.section .thunks, "ax", %progbits
	.p2align 6
thunks:	.fill	32 * 128 / 4, 4, 0xd4200000
	.size	thunks, . - thunks
	.type	thunks, %function
backs:	.fill	16 * 128 / 4, 4, 0xd4200000
	.size	backs, . - backs
	.type	backs, %function
	.section .frames, "a", %progbits
	.p2align 3
frames:	.fill	65536
	.size	frames, . - frames
	.type	frames, %object
	.section .note.GNU-stack, "", %progbits
