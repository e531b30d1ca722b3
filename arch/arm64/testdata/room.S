/* Where the test puts moved instructions. */
	.section .moved, "ax", %progbits
	.fill	0x80000, 4, 0xd4200000
	.section .note.GNU-stack, "", %progbits
