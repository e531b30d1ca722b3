/* What the fast paths of an image look at, beside the thread's block. They are the words
   of struct words (image.h): the home runtime fills them in when the image registers. */
#include "layout.h"

	.macro WORD name, offset
	.globl	\name
	.hidden	\name
	.set	\name, fentry_words + \offset
	.endm

	.bss
	.p2align 6
	.globl	fentry_words
	.hidden	fentry_words
	.type	fentry_words, @object
	.size	fentry_words, W_SIZE
fentry_words:
	.zero	W_SIZE
	WORD	fentry_blocks, W_BLOCKS
	WORD	fentry_thunks, W_THUNKS
	WORD	fentry_thunks_size, W_THUNKS_SIZE
	WORD	fentry_roots, W_ROOTS
	WORD	fentry_threshold, W_THRESHOLD
	WORD	fentry_self, W_SELF
	WORD	fentry_depth, W_DEPTH
	WORD	fentry_id_base, W_ID_BASE
	.section .note.GNU-stack, "", @progbits
