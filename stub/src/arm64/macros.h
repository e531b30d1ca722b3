/* The parts that the fast paths share, and the frames the unwinder sees in them.

   What a routine finds in registers, and which ones it may change, is said in
   arch/arm64/thunk.go: x16 is the caller's return address or S, x30 where
   the routine returns. w17 is the id; but a thunk of function_graph has no room for it, and
   its address tells: RAW_ID makes w17 what is the id in the trace once the word ID_ENTER
   has been added, modulo 2^32, and the local id with fentry_id_local (W_ID_LOCAL). LOCAL_IDS is
   defined where it is made a local id at once. x16 is left alone where it is a return address,
   because unwinders find that there until the body is called. Scratch are x16 and x17 alone: AAPCS64 gives them to code that a
   linker puts between a call and its target, so no caller keeps anything there, whatever
   it knows of the function (-fipa-ra). x9 to x15 would be free by the same standard, but
   not for such callers; x18 is the platform's. The fast paths save what else they use, in
   pairs, as the stack pointer has to be a multiple of 16.

   What is odd about this machine is that a call leaves its return address in a register,
   x30, and that the function puts it where it likes, or nowhere. So a frame has no slot
   that outsiders know. Ours is the 16 bytes below S, the stack pointer at the call, because a
   function moves the stack pointer before it calls another one. Nothing is written there:
   its two shadow words, the slot before it and the return address, are. They stand side by
   side, so one stp writes them and one ldp reads them.

   The thread's control block is at the control base, a word of the executable's
   thread-local memory: one load from the thread pointer, because nobody else has
   that word, and a new thread has 0 there. A forked child has its copy of the word
   and a block that is zero, with which every fast path fails. Where a child's block
   is not zero (thread.c), the base has UNCHECKED's bit clear, and FIND_BLOCK looks.
   In a shared object, whose runtime is compiled with FENTRY_SHARED, the block is found
   in a table by the thread pointer. That is in GET_BLOCK.

   Flags are dead at a function's entry and exit (AAPCS64, 6.1.1). They are not saved.

   The order of things is such that a signal handler that runs traced functions
   may come between any two instructions:
     - the shadow words of S are written before S becomes the top;
     - a slot is reserved by ldxr and stxr, so that a handler's events take other
       slots: taking an exception and returning from it clears the exclusive monitor
       (Arm ARM, B2.9), so stxr fails if a handler was there since ldxr; if it was
       there before, the next slot is another one than was seen before the clock was
       read. Both times it is all done again: a thread's events are in the order of
       their times, and there are no holes. Nothing else accesses the word, so the
       pair needs no ordering. Between the two is no memory access and nothing that
       a kernel might trap, as reading the clock is on some machines: that would
       clear the monitor each time. An atomic add (LSE) would save three instructions,
       but not all processors have it.  */
#include "layout.h"
#include "format.h"

/* what fentry_sve_save has put on the stack: bits of the word at the stack pointer */
#define KEPT_STREAMING	0
#define KEPT_REGISTERS	1

/* records of system calls */
#define HEADER_OF(words, exit) \
	((FT_RECORD_BASE | FT_RECORD_OPEN | FT_REC_SYS << FT_RECORD_TYPE_SHIFT | (words) | (exit)) & 0xffffffff)
#define OPEN_BIT 47

#define HIDDEN(f) .globl f; .hidden f; .type f, %function; .p2align 6

/* DWARF: the shadow of the address that is on the expression stack: 15 bytes. */
#define CFI_FLIP \
	0x12, 0x08, SHADOW_SPLIT, 0x25, 0x30, 0x2e, 0x08, SHADOW_HIGH - SHADOW_LOW, 0x1e, 0x23, SHADOW_LOW, \
	0x31, 0x16, 0x24, 0x27
/* This frame's caller finds its return address in the shadow, and its stack pointer
   is CFA & -2. The CFA is odd because unwinders tell frames apart by it, and the
   thunk's frame would have the same as its caller's. */
#define CFI_SHADOW_FRAME \
	.cfi_escape 0x10, 30, 20, 0x09, 0xfe, 0x1a, 0x38, 0x1c, CFI_FLIP; \
	.cfi_escape 0x16, 31, 3, 0x09, 0xfe, 0x1a

	/* Words of the block: the base is UNCHECKED above it. */
#define W(field) (field - CB_NEXT)

	.macro ENTER_FRAME where
	.ifc \where, fp
	stp	x0, x1, [sp, #-48]!
	.cfi_adjust_cfa_offset 48
	stp	x2, x3, [sp, #16]
	sub	x16, x16, #16
	stp	x16, x30, [sp, #32]	/* the slot */
	.else
	stp	x0, x1, [sp, #-32]!
	.cfi_adjust_cfa_offset 32
	stp	x2, x3, [sp, #16]
	.endif
	.endm

	/* Back to the thunk, or behind a site that is behind a prologue. With body, the thunk
	   goes on to the body at once, which gets the caller's return address. */
	.macro LEAVE_ENTER where, body
	.cfi_remember_state
	ldp	x2, x3, [sp, #16]
	.ifc \where, fp
	ldr	x30, [sp, #40]
	ldp	x0, x1, [sp], #48
	.cfi_adjust_cfa_offset -48
	.else
	ldp	x0, x1, [sp], #32
	.cfi_adjust_cfa_offset -32
	.endif
	.ifnb \body
	mov	x17, x30
	mov	x30, x16
	ret	x17
	.else
	ret
	.endif
	.cfi_restore_state
	.endm

	/* Back to the thunk, which is to run the body untraced. x16 is the caller's
	   return address. */
	.macro SKIP_ENTER where
	.ifc \where, fp
	LEAVE_ENTER fp
	.else
	.cfi_remember_state
	ldp	x2, x3, [sp, #16]
	ldp	x0, x1, [sp], #32
	.cfi_adjust_cfa_offset -32
	add	x17, x30, #THUNK_BYPASS - THUNK_CALL_END
	mov	x30, x16
	ret	x17
	.cfi_restore_state
	.endif
	.endm

	/* Registers that a C function may change, but x0 and x1, and the frame record.
	   It leaves x18 alone (-ffixed-x18). off: from the stack pointer to the CFA. */
	.macro SLOW off
	stp	x29, x30, [sp, #-144]!
	.cfi_def_cfa_offset 144 + \off
	.ifeq	\off & 1
	.cfi_rel_offset x29, 0
	.cfi_rel_offset x30, 8
	.else
	.cfi_escape 0x10, 29, 2, 0x8f, 0	/* x29 is at 0(sp) */
	.endif
	mov	x29, sp
	stp	x2, x3, [sp, #16]
	stp	x4, x5, [sp, #32]
	stp	x6, x7, [sp, #48]
	stp	x8, x9, [sp, #64]
	stp	x10, x11, [sp, #80]
	stp	x12, x13, [sp, #96]
	stp	x14, x15, [sp, #112]
	stp	x16, x17, [sp, #128]
	.ifeq	\off & 1
	.cfi_rel_offset x16, 128	/* the thunk's frame has its return address there */
	.endif
	.endm
	.macro ENDSLOW off
	ldp	x16, x17, [sp, #128]
	ldp	x14, x15, [sp, #112]
	ldp	x12, x13, [sp, #96]
	ldp	x10, x11, [sp, #80]
	ldp	x8, x9, [sp, #64]
	ldp	x6, x7, [sp, #48]
	ldp	x4, x5, [sp, #32]
	ldp	x2, x3, [sp, #16]
	ldp	x29, x30, [sp], #144
	.cfi_def_cfa_offset \off
	.cfi_restore x29
	.ifeq	\off & 1
	.cfi_restore x30
	.cfi_restore x16
	.endif
	.endm

#ifdef FENTRY_SHARED
	/* x\cb is to be this thread's block and UNCHECKED, or to other. The table's entry may be
	   another thread's, and the block one that had this thread pointer before, which the
	   C library's copy of the thread id shows. Changes x\a and x\b. */
	.macro TABLE_BLOCK cb, a, b, other
	mrs	x\cb, tpidr_el0
	LOAD	x\a, fentry_blocks
	eor	x\b, x\cb, x\cb, lsr #BLOCKS_FOLD
	ubfx	x\b, x\b, #BLOCKS_SHIFT, #16	/* BLOCKS_MASK */
	mvn	x\cb, x\cb
	ldr	x\a, [x\a, x\b, lsl #3]
	cbz	x\a, \other
	ldr	x\b, [x\a, #CB_OWNER]
	cmp	x\b, x\cb
	b.ne	\other
	add	x\cb, x\a, #8
	ldr	x\b, [x\a, #CB_LIBTID]
	cbz	x\b, 99f
	ldr	w\b, [x\b]
	ldr	w\a, [x\a, #CB_TID]
	cmp	w\a, w\b
	b.ne	\other
99:
	.endm
	.macro GET_BLOCK cb, other
	.ifc \cb, x16
	TABLE_BLOCK 16, 0, 1, \other
	.else
	TABLE_BLOCK 0, 1, 2, \other
	.endif
	.endm
	.macro FIND_BLOCK cb, again
	.endm
	.macro FIND_BLOCK_X0 again
	.endm

	/* w\reg is to be where the image's ids begin; or what makes such an id of RAW_ID's. */
	.macro ID_BASE reg, cb
	LOAD_WORD	\reg, fentry_id_base
	.endm
	.macro ID_ENTER reg, cb
	LOAD_WORD	\reg, fentry_id_enter
	.endm
#else
	.macro ID_BASE reg, cb
	ldr	w\reg, [\cb, #W(CB_ID_BASE)]
	.endm
	.macro ID_ENTER reg, cb
	ldr	w\reg, [\cb, #W(CB_ID_ENTER)]
	.endm

	/* \cb is to be this thread's block and UNCHECKED; to other if that is not so
	   at once. */
	.macro GET_BLOCK cb, other
	mrs	\cb, tpidr_el0
	cbz	\cb, \other
	add	\cb, \cb, #:tprel_hi12:fentry_tls, lsl #12
	ldr	\cb, [\cb, #:tprel_lo12_nc:fentry_tls]
	tbz	\cb, #3, \other
	.endm

	/* Behind GET_BLOCK's label other: go to again if the block is this thread's.
	   Changes x0 and x1. */
	.macro FIND_BLOCK cb, again
	cbz	\cb, 99f
	ldr	x0, [\cb, #CB_LIBTID]
	cbz	x0, 98f
	ldr	w0, [x0]
	ldr	w1, [\cb, #CB_TID]
	cmp	w0, w1
	b.ne	99f
98:	add	\cb, \cb, #8
	b	\again
99:
	.endm

	/* The same for a block in x0. */
	.macro FIND_BLOCK_X0 again
	cbz	x0, 99f
	ldr	x1, [x0, #CB_LIBTID]
	cbz	x1, 98f
	ldr	w1, [x1]
	ldr	w2, [x0, #CB_TID]
	cmp	w1, w2
	b.ne	99f
98:	add	x0, x0, #8
	b	\again
99:
	.endm
#endif

	/* \reg is to be a word, T_ENTRIES or T_ACTIVE, of the thread's tables of this image.
	   An executable's are in the block's first ones. */
	.macro TABLE reg, cb, word
#ifdef FENTRY_SHARED
	adrp	x\reg, fentry_tables
	ldr	w\reg, [x\reg, #:lo12:fentry_tables]
	add	x\reg, x\cb, x\reg
	ldr	x\reg, [x\reg, #W(\word)]
#else
	ldr	x\reg, [x\cb, #W(CB_TABLE + \word)]
#endif
	.endm

	.macro LEA_SLOT where, reg
	.ifc \where, fp
	ldr	\reg, [sp, #32]
	.else
	add	\reg, sp, #16
	.endif
	.endm

	/* x16 is to be the caller's return address. */
	.macro LOAD_RET where
	.ifc \where, fp
	ldr	x16, [x29, #8]
	.endif
	.endm

	/* w\reg is to be the local id. */
	.macro LOCAL_ID reg
#ifdef LOCAL_IDS
	.ifnc \reg, 17
	mov	w\reg, w17
	.endif
#else
	LOAD_WORD	\reg, fentry_id_local
	add	w\reg, w\reg, w17
#endif
	.endm

	/* A site behind the prologue: the thunk's back takes the place of the
	   caller's return address. Changes x2 and x16. */
	.macro REPLACE_RET where
	.ifc \where, fp
	LOCAL_ID 2
	LOAD	x16, fentry_thunks
	add	x2, x16, x2, lsl #BACK_SHIFT
	add	x2, x2, #THUNK_RET - BACK_SIZE
	str	x2, [x29, #8]
	.endif
	.endm

	/* The second shadow of the slot in \slot: its time, and at 8 the child time, or
	   the id with the depth at 12. */
	.macro SHADOW_TIMES reg, slot, cb
	ldr	\reg, [\cb, #W(CB_SHADOW_AUX)]
	add	\reg, \slot, \reg
	.endm

	.macro LOAD reg, name
	adrp	\reg, \name
	ldr	\reg, [\reg, #:lo12:\name]
	.endm
	.macro LOAD_WORD reg, name
	adrp	x\reg, \name
	ldr	w\reg, [x\reg, #:lo12:\name]
	.endm

	/* Go to maybe if the return address in x16 could be that of a thunk's body: bit 2
	   is set in every second one. There, IS_TAIL goes to no unless it is one.
	   Changes x1 and x2. */
	.macro CHECK_TAIL maybe
	tbnz	w16, #2, \maybe
	.endm
	.macro IS_TAIL no
	tbnz	w16, #3, \no
	LOAD	x1, fentry_thunks
	sub	x1, x16, x1
	LOAD	x2, fentry_thunks_size
	cmp	x1, x2
	b.hs	\no
	.endm

	/* x1 the top, x3 the slot; to slow unless the slot is below the one and in reach.
	   Changes x2. */
	.macro CHECK_STACK where, slow
	ldp	x1, x2, [x0, #W(CB_TOP)]
	LEA_SLOT \where, x3
	cmp	x3, x1
	b.hs	\slow		/* frames were skipped, or this is another stack */
	cmp	x3, x2
	b.lo	\slow
	.endm

	/* Reserve n bytes at x1 for an event of now, which is to be x3: w17 says of which function, which is
	   changed; RETRY makes it again. Changes x2. One load gets the
	   counter's high half, and above it what w17 is added to, CB_ID_ENTER or with
	   a local id CB_ID_BASE, which is then where the id goes. */
	.macro RESERVE n, full, retry, high=CB_HIGH_ENTER, id=ID_ENTER
	ldp	x1, x2, [x0]
	cmp	x1, x2
	b.hs	\full
#ifdef NO_CLOCK
	ldr	w3, [x0, #W(CB_ORDER)]
	add	w3, w3, w1
	\id	2, x0
	lsl	x2, x2, #32
#elif defined FENTRY_SHARED
	mrs	x3, cntvct_el0
	ldr	w2, [x0, #W(CB_HIGH)]
	eor	x2, x2, x3, lsr #32
	cbnz	x2, \full
	\id	2, x0
	lsl	x2, x2, #32
#else
	mrs	x3, cntvct_el0
	ldr	x2, [x0, #W(\high)]
	eor	x2, x2, x3, lsr #32
	cbnz	w2, \full
#endif
	bfi	x3, x17, #32, #32
	add	x3, x3, x2
	ldxr	x2, [x0]
	cmp	x2, x1
	b.ne	\retry
	add	x2, x2, #\n
	stxr	w17, x2, [x0]
	cbnz	w17, \retry
	.endm
	/* Reserve n bytes at x1, block x0: x3 is to be a record's header, open, of now. Changes x2
	   and x16. */
	.macro RESERVE_RECORD n, words, exit, full, retry
	ldr	x1, [x0]
	ldr	x2, [x0, #W(CB_SYS_END)]
	cmp	x1, x2
	b.hs	\full
#ifdef NO_CLOCK
	ldr	w3, [x0, #W(CB_ORDER)]
	add	w3, w3, w1
#else
	mrs	x3, cntvct_el0
	ldr	w2, [x0, #W(CB_HIGH)]
	eor	x2, x2, x3, lsr #32
	cbnz	w2, \full
#endif
	ldxr	x2, [x0]
	cmp	x2, x1
	b.ne	\retry
	add	x2, x2, #\n
	stxr	w16, x2, [x0]
	cbnz	w16, \retry
	mov	w2, #HEADER_OF(\words, \exit) & 0xffff
	movk	w2, #HEADER_OF(\words, \exit) >> 16, lsl #16
	bfi	x3, x2, #32, #32
	str	x3, [x1]
	dmb	ishst		/* nobody sees the payload before it */
	and	x3, x3, #~(1 << OPEN_BIT)
	.endm
	/* w17 is to be what it was again. */
	.macro ID_AGAIN id=ID_ENTER
	lsr	x17, x3, #32
	\id	2, x0
	sub	w17, w17, w2
	.endm
	.macro RETRY again, id=ID_ENTER
	ID_AGAIN \id
	b	\again
	.endm

	/* A tail call, behind RESERVE: x2 is to be the event of the function that ends.
	   Changes w17. */
	.macro OLD_EXIT
	LOAD	x2, fentry_thunks
	sub	x2, x16, x2
	ID_BASE	17, x0
	add	x2, x17, x2, lsr #BACK_SHIFT
	add	x2, x2, #1
	orr	x2, x2, #FT_ID_EXIT
	lsl	x2, x2, #32
	bfxil	x2, x3, #0, #32
	.endm

	/* RESERVE for an exit: the block is x16, the place x0, the event x30. Changes x1.
	   The classic tracer's ids are those of the trace. */
	.macro RESERVE_EXIT full, retry
	ldp	x0, x1, [x16]
	cmp	x0, x1
	b.hs	\full
#ifdef NO_CLOCK
	ldr	w30, [x16, #W(CB_ORDER)]
	add	w30, w30, w0
	ID_BASE	1, x16
	lsl	x1, x1, #32
#elif defined FENTRY_SHARED
	mrs	x30, cntvct_el0
	ldr	w1, [x16, #W(CB_HIGH)]
	eor	x1, x1, x30, lsr #32
	cbnz	x1, \full
	ID_BASE	1, x16
	lsl	x1, x1, #32
#else
	mrs	x30, cntvct_el0
	ldr	x1, [x16, #W(CB_HIGH)]
	eor	x1, x1, x30, lsr #32
	cbnz	w1, \full
#endif
	bfi	x30, x17, #32, #32
#ifndef FENTRY_CLASSIC
	add	x30, x30, x1
#endif
	ldxr	x1, [x16]
	cmp	x1, x0
	b.ne	\retry
	add	x1, x1, #8
	stxr	w17, x1, [x16]
	cbnz	w17, \retry
	.endm
	.macro RETRY_EXIT again
	lsr	x17, x30, #32
#ifndef FENTRY_CLASSIC
	ID_BASE	1, x16
	sub	w17, w17, w1
#endif
	b	\again
	.endm


	/* Slow paths are the home's (home.c), which may be another image. */
	.macro CALL_HOME routine
	LOAD	x16, \routine
	blr	x16
	.endm

	/* Call fentry_slow_enter(slot, id, image, ret, caller's frame pointer) and go to again,
	   leave or skip; with body, leave as LEAVE_ENTER does. */
	.macro SLOW_ENTER where, again, body
	LEA_SLOT \where, x0
	.ifc \where, fp
	SLOW 48
	ldr	x3, [x29]
	ldp	x4, x3, [x3]
	.else
	SLOW 32
	mov	x3, x16
	ldr	x4, [x29]
	.endif
	LOCAL_ID 1
	LOAD	x2, fentry_self
	CALL_HOME fentry_home_enter
	.ifc \where, fp
	ENDSLOW 48
	.else
	ENDSLOW 32
	.endif
	cmp	w0, #ENTER_SKIP
	b.lo	\again
	.ifb \body
	b.hi	99f
	SKIP_ENTER \where
	.endif
99:	REPLACE_RET \where
	LEAVE_ENTER \where, \body
	.endm

	/* What fentry_slow_record is told: w0, which is there, x1 and x2. */
	.macro CALL_RECORD
	LOAD	x1, fentry_self
	ldr	x2, [x29]
	CALL_HOME fentry_home_record
	.endm

	/* Make room for events, then go to again; leave when that cannot be. */
	.macro SLOW_RECORD where, again, local, body
	.ifc \where, fp
	SLOW 48
	.else
	SLOW 32
	.endif
	.ifnb \local
	mov	w0, w17
	.else
	LOCAL_ID 0
	.endif
	CALL_RECORD
	.ifc \where, fp
	ENDSLOW 48
	.else
	ENDSLOW 32
	.endif
	add	x1, x0, #8
	cbz	x0, 99f
	mov	x0, x1
	b	\again
99:	LEAVE_ENTER \where, \body
	.endm

	/* Put the return address back by fentry_slow_exit(slot, id, image). */
	.macro SLOW_EXIT
	mov	x0, sp
	mov	w1, w17
	SLOW 17
	LOAD	x2, fentry_self
	CALL_HOME fentry_home_exit
	ENDSLOW 17
	mov	x30, x0
	LEAVE_EXIT
	.endm

	/* Make room, and go to again: to where the top is compared, as under emulators a forked child may find out only here
	   that the block is its parent's (thread.c), and its own has no frames. */
	.macro SLOW_RECORD_EXIT again
	SLOW 17
	mov	w0, w17
	CALL_RECORD
	ENDSLOW 17
	add	x16, x0, #8
	cbnz	x0, \again
	.endm

	/* exit: x30 the return address, the top to the frame before. */
	.macro UNLINK
	ldr	x1, [x16, #W(CB_SHADOW)]
	add	x1, sp, x1
	ldp	x1, x30, [x1]
	str	x1, [x16, #W(CB_TOP)]
	.endm

	.macro LEAVE_EXIT
	.cfi_remember_state
	ldp	x0, x1, [sp], #16
	.cfi_adjust_cfa_offset -16
	ret
	.cfi_restore_state
	.endm

	.macro BEGIN_ENTER name, where
HIDDEN(\name)
\name:
	.cfi_startproc
	ENTER_FRAME \where
	.endm
	.macro RAW_ID where
	.ifc \where, fp
	lsr	x17, x17, #FRONT_SHIFT
	.else
	lsr	x17, x30, #FRONT_SHIFT
	.endif
#ifdef LOCAL_IDS
	LOAD_WORD	2, fentry_id_local
	add	w17, w17, w2
#endif
	.endm
	.macro BEGIN_EXIT name
HIDDEN(\name)
\name:
	.cfi_startproc
	.cfi_def_cfa sp, 1
	CFI_SHADOW_FRAME
	stp	x0, x1, [sp, #-16]!	/* at the slot */
	.cfi_adjust_cfa_offset 16
	.endm
	.macro END name
	.cfi_endproc
	.size \name, . - \name
	.endm
