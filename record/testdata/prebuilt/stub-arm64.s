// The profiling function of a program that has it linked in, as glibc's is, and where it starts.
	.text
	.globl	_start
	.type	_start,%function
_start:	.cfi_startproc
	bl	start
	udf	#0
	.cfi_endproc
	.size	_start,.-_start

	.globl	_mcount
	.type	_mcount,%function
_mcount:
	.cfi_startproc
	stp	x29, x30, [sp, #-64]!
	.cfi_def_cfa_offset 64
	.cfi_offset 29, -64
	.cfi_offset 30, -56
	mov	x1, x30
	mov	x30, x0
	mov	x29, sp
	hint	7		// xpaclri
	ldp	x29, x30, [sp], #64
	.cfi_restore 30
	.cfi_restore 29
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	_mcount,.-_mcount
	.section .note.GNU-stack,"",%progbits
