/* Where the test puts moved instructions. */
	.section .moved, "ax", @progbits
	.fill	16384, 1, 0xcc
	.section .note.GNU-stack, "", @progbits
