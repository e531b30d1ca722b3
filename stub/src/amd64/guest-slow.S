/* A guest's slow paths are the home's. */
#include "macros.h"

	.macro AT_HOME name, pointer
HIDDEN(\name)
\name:
	.cfi_startproc
	jmp	*\pointer(%rip)
	.cfi_endproc
	.size \name, . - \name
	.endm

	.text
	AT_HOME fentry_slow_enter, fentry_home_enter
	AT_HOME fentry_slow_exit, fentry_home_exit
	AT_HOME fentry_slow_record, fentry_home_record

	.section .note.GNU-stack, "", @progbits
