# An executable of over 100 MB with 200,000 functions that can be traced, each with its unwind information.
	.macro function
	.type	f\@, @function
f\@:
	.cfi_startproc
1:	nop
	nop
	nop
	nop
	nop
	.section __patchable_function_entries,"awo",@progbits,.text
	.balign 8
	.quad	1b
	.text
	.fill	165, 3, 0xc0ff48	# inc %rax
	ret
	.cfi_endproc
	.size	f\@, .-f\@
	.balign 16
	.endm

	.text
	.rept	200000
	function
	.endr
	.globl	main
	.type	main, @function
main:
	xor	%eax, %eax
	ret
	.size	main, .-main
	.section .note.GNU-stack,"",@progbits
