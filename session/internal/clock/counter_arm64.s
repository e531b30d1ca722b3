#include "textflag.h"

// func readCounter() uint64
TEXT ·readCounter(SB), NOSPLIT, $0-8
	ISB  $15
	WORD $0xd53be040 // mrs x0, cntvct_el0
	MOVD R0, ret+0(FP)
	RET

// func counterFrequency() uint64
TEXT ·counterFrequency(SB), NOSPLIT, $0-8
	WORD $0xd53be000 // mrs x0, cntfrq_el0
	MOVD R0, ret+0(FP)
	RET
