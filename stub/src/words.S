/* What the fast paths of an image look at, beside the thread's block. They are the words
   of struct words (image.h): the home runtime fills them in when the image registers. */
#include "layout.h"

	/* A symbol set to a place in another one has that one's size, unless it is given its own. */
	.macro WORD name, offset, bytes
	.globl	\name
	.hidden	\name
	.set	\name, fentry_words + \offset
	.type	\name, @object
	.size	\name, \bytes
	.endm

	.bss
	.p2align 6
	.globl	fentry_words
	.hidden	fentry_words
	.type	fentry_words, @object
	.size	fentry_words, W_SIZE
fentry_words:
	.zero	W_SIZE
	WORD	fentry_blocks, W_BLOCKS, 8
	WORD	fentry_thunks, W_THUNKS, 8
	WORD	fentry_thunks_size, W_THUNKS_SIZE, 8
	WORD	fentry_id_scale, W_ID_SCALE, 8
	WORD	fentry_id_enter, W_ID_ENTER, 8
	WORD	fentry_id_exit, W_ID_EXIT, 8
	WORD	fentry_id_local, W_ID_LOCAL, 4
	WORD	fentry_roots, W_ROOTS, 8
	WORD	fentry_threshold, W_THRESHOLD, 8
	WORD	fentry_self, W_SELF, 8
	WORD	fentry_depth, W_DEPTH, 4
	WORD	fentry_id_base, W_ID_BASE, 4
	WORD	fentry_home_enter, W_ENTER, 8
	WORD	fentry_home_exit, W_EXIT, 8
	WORD	fentry_home_record, W_RECORD, 8
	WORD	fentry_home_syscall, W_SYSCALL, 8
	WORD	fentry_home_settle, W_SETTLE, 8
	WORD	fentry_home_act, W_ACT, 8
	WORD	fentry_home_act_exit, W_ACT_EXIT, 8
	WORD	fentry_tables, W_TABLES, 4
	WORD	fentry_syscalls_on, W_SYSCALLS, 4
	WORD	fentry_plain, W_PLAIN, 4
	WORD	fentry_home_place, W_PLACE, 8
	.section .note.GNU-stack, "", @progbits
