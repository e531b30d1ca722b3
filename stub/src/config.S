/* The configuration, which the patcher fills in. */
#include "layout.h"
	.section .rodata
	.p2align 6
	.globl fentry_config
	.hidden fentry_config
	.type fentry_config, @object
	.size fentry_config, CONFIG_SIZE
fentry_config:
	.zero CONFIG_SIZE
	.section .note.GNU-stack, "", @progbits
