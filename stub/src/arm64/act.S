/* Functions at whose calls more is done than recording them. Their thunks come here in place
   of the tracer's routines, so that no other function pays for asking. What is done is in C
   (act.c), which gets all registers that a call can be told apart by, as struct callregs
   (machine.h): those that the fast paths' slow parts save, those that a C function keeps, and
   the vector registers that arguments and results are in, which C leaves alone. Of SVE's
   registers these have the low 128 bits. */
#define LOCAL_IDS
#include "macros.h"

	/* SLOW, and struct callregs below it, which x3 points to. off: as for SLOW. */
	.macro CALLREGS where, off
	SLOW \off
	.cfi_def_cfa x29, 144 + \off
	.ifne	\off & 1
	.cfi_escape 0x10, 29, 2, 0x8d, 0	/* x29 is at 0(x29) */
	.endif
	.ifc \where, fp
	ldr	x3, [x29]
	ldp	x5, x4, [x3]
	.else
	mov	x4, x16
	ldr	x5, [x29]
	.endif
	sub	sp, sp, #CALLREGS_SIZE
	stp	q0, q1, [sp]
	stp	q2, q3, [sp, #32]
	stp	q4, q5, [sp, #64]
	stp	q6, q7, [sp, #96]
	stp	x19, x20, [sp, #128]
	stp	x21, x22, [sp, #144]
	stp	x23, x24, [sp, #160]
	stp	x25, x26, [sp, #176]
	stp	x27, x28, [sp, #192]
	mov	x3, x29
	stp	x3, x4, [sp, #208]
	str	x5, [sp, #224]
	mov	x3, sp
	.endm
	.macro ENDCALLREGS off
	mov	sp, x29
	.cfi_def_cfa sp, 144 + \off
	.ifne	\off & 1
	.cfi_escape 0x10, 29, 2, 0x8f, 0
	.endif
	ENDSLOW \off
	.endm

	/* fentry_slow_act(slot, id, image, registers) does all there is to do. skip is 0 with the tracer
	   of entries, which replaces no return address and leaves nothing out. */
	.macro ACT_ENTRY name, where, off, skip
	BEGIN_ENTER \name, \where
	.if \skip
	RAW_ID \where
	.endif
	LEA_SLOT \where, x0
	CALLREGS \where, \off
	mov	w1, w17
	LOAD	x2, fentry_self
	CALL_HOME fentry_home_act
	ENDCALLREGS \off
	.if \skip
	cmp	w0, #ENTER_SKIP
	b.eq	1f
	REPLACE_RET \where
	LEAVE_ENTER \where
1:	SKIP_ENTER \where
	.else
	LEAVE_ENTER \where, body
	.endif
	END \name
	.endm

	.text
	ACT_ENTRY fentry_act_enter, sp, 32, 1
	ACT_ENTRY fentry_mcount_act_enter, fp, 48, 1
	ACT_ENTRY fentry_actfunc_enter, sp, 32, 0

	/* Behind a prologue thunks of this tracer do not say where the slot is: it is 0. */
	BEGIN_ENTER fentry_mcount_actfunc_enter, sp
	mov	x0, #0
	CALLREGS none, 32
	mov	w1, w17
	LOAD	x2, fentry_self
	CALL_HOME fentry_home_act
	ENDCALLREGS 32
	LEAVE_ENTER sp
	END fentry_mcount_actfunc_enter

	/* fentry_slow_act_exit(slot, id, image, registers) returns where the caller is. */
	BEGIN_EXIT fentry_act_exit
	mov	x0, sp
	CALLREGS none, 17
	mov	w1, w17
	LOAD	x2, fentry_self
	CALL_HOME fentry_home_act_exit
	ENDCALLREGS 17
	mov	x30, x0
	LEAVE_EXIT
	END fentry_act_exit

	.section .note.GNU-stack, "", %progbits
