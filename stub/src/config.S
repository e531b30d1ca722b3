/* What the patcher fills in: what is to be done in the process (fentry_config), and what
   the image has that is traced (fentry_image). Guests use only the second, as their home
   decides what is done; the classic tracer fills in both at its start. It is assembly, so
   that no compiler takes the zeros here for what will be there. */
#include "config.h"
#include "layout.h"

	.macro STRUCTURE name, writable, size
	.p2align 6
	.globl	\name, \writable
	.hidden	\name, \writable
	.type	\name, @object
	.type	\writable, @object
	.size	\name, \size
	.size	\writable, \size
\name:
	.ifnc	\name, \writable
\writable:
	.endif
	.zero	\size
	.endm

#ifdef FENTRY_CLASSIC
	.bss
	STRUCTURE fentry_config, fentry_classic_config, CONFIG_SIZE
	STRUCTURE fentry_image, fentry_classic_image, IMAGE_SIZE
#else
	.section .rodata
	STRUCTURE fentry_config, fentry_config, CONFIG_SIZE
	STRUCTURE fentry_image, fentry_image, IMAGE_SIZE
#endif
	.section .note.GNU-stack, "", @progbits
