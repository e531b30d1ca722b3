/* Does a traced call leave every register alone? caller loads known values into all
   of them, calls body, whose site is patched; body checks what it got (r15 counts
   differences), loads other values and returns; caller checks again. */
	.text
	.globl	regs_round
	.type	regs_round, @function
/* int regs_round(void): differences seen */
regs_round:
	push	%rbx
	push	%rbp
	push	%r12
	push	%r13
	push	%r14
	push	%r15
	sub	$8, %rsp
	xor	%r15d, %r15d
	lea	image(%rip), %r14
	fldz
	fld1
	mov	$0x1111111111111111, %rax
	mov	$0x2222222222222222, %rbx
	mov	$0x3333333333333333, %rcx
	mov	$0x4444444444444444, %rdx
	mov	$0x5555555555555555, %rsi
	mov	$0x6666666666666666, %rdi
	mov	$0x7777777777777777, %rbp
	mov	$0x8888888888888888, %r8
	mov	$0x9999999999999999, %r9
	mov	$0xaaaaaaaaaaaaaaaa, %r10
	mov	$0xbbbbbbbbbbbbbbbb, %r11
	mov	$0xcccccccccccccccc, %r12
	mov	$0xdddddddddddddddd, %r13
	movups	image(%rip), %xmm0
	movups	image+8(%rip), %xmm7
	movups	image+16(%rip), %xmm15
	push	stack_arg(%rip)
	call	body
	add	$8, %rsp
	.macro IS value, reg
	cmpq	\value(%rip), \reg
	je	1f
	inc	%r15d
1:
	.endm
	.macro IS128 off, reg
	movq	\reg, %r14
	cmpq	image+\off(%rip), %r14
	je	1f
	inc	%r15d
1:	lea	image(%rip), %r14
	.endm
	IS v0, %rax
	IS v1, %rbx
	IS v2, %rcx
	IS v3, %rdx
	IS v4, %rsi
	IS v5, %rdi
	IS v6, %rbp
	IS v7, %r8
	IS v8, %r9
	IS v9, %r10
	IS v10, %r11
	IS v11, %r12
	IS v12, %r13
	IS128 24, %xmm0
	IS128 0, %xmm7
	IS128 8, %xmm15
	fldpi			/* the body left pi on the x87 stack, over 1 and 0 */
	fcomip	%st(1), %st
	je	1f
	inc	%r15d
1:	fstp	%st
	fld1
	fcomip	%st(1), %st
	je	1f
	inc	%r15d
1:	fstp	%st
	fstp	%st
	mov	%r15d, %eax
	add	$8, %rsp
	pop	%r15
	pop	%r14
	pop	%r13
	pop	%r12
	pop	%rbp
	pop	%rbx
	ret
	.size regs_round, . - regs_round

	.globl	body
	.type	body, @function
body:
#ifdef BEHIND_PROLOGUE
	push	%rbp
	mov	%rsp, %rbp
#endif
1:	.fill	5, 1, 0x90
	.pushsection __patchable_function_entries, "awo", @progbits, body
	.balign 8
	.quad	1b
	.popsection
#ifdef BEHIND_PROLOGUE
	cmp	%rsp, %rbp
	jne	1f
	mov	16(%rsp), %r14
#else
	mov	8(%rsp), %r14
#endif
	cmp	stack_arg(%rip), %r14
	je	1f
	inc	%r15d
1:	lea	image(%rip), %r14
	IS a0, %rax
	IS a1, %rbx
	IS a2, %rcx
	IS a3, %rdx
	IS a4, %rsi
	IS a5, %rdi
#ifndef BEHIND_PROLOGUE
	IS a6, %rbp
#endif
	IS a7, %r8
	IS a8, %r9
	IS a9, %r10
	IS a10, %r11
	IS a11, %r12
	IS a12, %r13
	IS128 0, %xmm0
	IS128 8, %xmm7
	IS128 16, %xmm15
	fldpi
	mov	v0(%rip), %rax
	mov	v1(%rip), %rbx
	mov	v2(%rip), %rcx
	mov	v3(%rip), %rdx
	mov	v4(%rip), %rsi
	mov	v5(%rip), %rdi
	mov	v6(%rip), %rbp
	mov	v7(%rip), %r8
	mov	v8(%rip), %r9
	mov	v9(%rip), %r10
	mov	v10(%rip), %r11
	mov	v11(%rip), %r12
	mov	v12(%rip), %r13
	movups	image+24(%rip), %xmm0
	movups	image(%rip), %xmm7
	movups	image+8(%rip), %xmm15
#ifdef BEHIND_PROLOGUE
	pop	%rcx
	mov	v6(%rip), %rbp
	mov	v2(%rip), %rcx
#endif
	ret
	.size body, . - body

	.section .rodata
	.balign 16
image:	.quad	0x0123456789abcdef, 0xfedcba9876543210, 0x13579bdf02468ace, 0xdeadbeefcafebabe, 0x55aa55aa55aa55aa
stack_arg: .quad 0x0badf00ddeadc0de
a0: .quad 0x1111111111111111
a1: .quad 0x2222222222222222
a2: .quad 0x3333333333333333
a3: .quad 0x4444444444444444
a4: .quad 0x5555555555555555
a5: .quad 0x6666666666666666
a6: .quad 0x7777777777777777
a7: .quad 0x8888888888888888
a8: .quad 0x9999999999999999
a9: .quad 0xaaaaaaaaaaaaaaaa
a10: .quad 0xbbbbbbbbbbbbbbbb
a11: .quad 0xcccccccccccccccc
a12: .quad 0xdddddddddddddddd
v0: .quad 0x1020304050607080
v1: .quad 0x1121314151617181
v2: .quad 0x1222324252627282
v3: .quad 0x1323334353637383
v4: .quad 0x1424344454647484
v5: .quad 0x1525354555657585
v6: .quad 0x1626364656667686
v7: .quad 0x1727374757677787
v8: .quad 0x1828384858687888
v9: .quad 0x1929394959697989
v10: .quad 0x1a2a3a4a5a6a7a8a
v11: .quad 0x1b2b3b4b5b6b7b8b
v12: .quad 0x1c2c3c4c5c6c7c8c
	.section .note.GNU-stack, "", @progbits
