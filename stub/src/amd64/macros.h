/* The parts that the fast paths share, and the frames the unwinder sees in them.

   A thunk calls them, so that a routine finds

       enter:  0(%rsp) back into the thunk   8(%rsp) S, the caller's return address;
                                             behind a prologue that is at 8(%rbp)
       exit:   0(%rsp) back into the thunk   8(%rsp) S, to be filled with the caller's return address

   The way back says which thunk it is, and so the function's id: thunks stand in the order of
   ids, and are of one size. A multiplication and an addition make it the high half of an event.

   An enter whose thunk calls the body drops S, too, and unwinds as a routine that does. An exit
   unwinds as if the thunk had jumped to it: its caller is the function's.

   No register is scratch. At an entry the ABI would leave r11 alone, but callers keep
   values in any register that they know the function not to change (-fipa-ra), al has the
   number of vector arguments, r10 the static chain; at an exit rax and rdx are results. So
   the fast paths save those they use, and those are three: rdtsc has its result in edx and
   eax, cmpxchg compares with rax, and rcx is for all else. Vector registers are never
   touched, so they need no saving. Below the stack pointer nothing is live: a function's
   red zone does not exist yet at its entry and no longer at its exit, and behind a
   prologue the site was a call, which would overwrite it.

   What is odd about this machine is that a call pushes its return address. So the frame's
   slot S is a place in memory that every unwinder, longjmp and debugger knows, and the
   processor keeps a second list of such addresses, to predict returns, and with CET a
   third one, to check them. Putting another address into S, as ftrace does, has every
   return mispredicted and is not allowed with CET. A thunk drops the address and calls the
   body instead, so all lists agree. Behind a prologue the address in S has to be replaced;
   there the thunk makes a call whose return address is the one that is put into S.

   The thread's control block is at the gs base. In a program that uses gs itself, it
   is found by the thread pointer in the table fentry_blocks: the same code again,
   with the block's address in r11. In the macros a word of the block is
   \pre\()CB_TOP\suf, that is %gs:CB_TOP or CB_TOP(%r11), and \x is how much more
   is on the stack.

   Flags are dead at a function's entry and exit (x86-64 psABI 3.2.1), except for
   the direction flag, which is clear there. They are not saved: a debugger that
   steps over pushf would have its own trap flag come back with popf.

   The order of things is such that a signal handler that runs traced functions
   may come between any two instructions:
     - the shadow words of S are written before S becomes the top;
     - a slot is reserved by one instruction (cmpxchg; no lock, the block is this
       thread's own), so a handler's events take other slots. The clock is read
       between looking at the next slot and reserving it: if that is another one by
       then, a handler was there in between, and all is done again. So a thread's
       events are in the order of their times. xadd would cost the same, but leaves
       slots that are never written when a handler comes before it;
     - where no clock is read, a compare and exchange is what takes longest: the next call's
       waits for this one's. So there a slot is reserved by an addition between two looks
       at the next slot. If they differ by more than was added, a handler was there,
       and it takes another look to find which slot is reserved (settle.c);
     - a slot that is reserved and zero is one that is still to be written. */
#include "layout.h"
#include "format.h"

#define HIDDEN(f) .globl f; .hidden f; .type f, @function; .p2align 6

/* DWARF: this frame's caller finds its return address in the shadow, and its
   stack pointer is CFA & -2. The CFA is odd where the stack pointer is the caller's,
   because unwinders tell frames apart by it, and both would have the same. */
#define CFI_SHADOW_FRAME \
	.cfi_escape 0x10, 16, 10, 0x09, 0xfe, 0x1a, 0x38, 0x1c, 0x31, 0x08, SHADOW_RET, 0x24, 0x27; \
	.cfi_escape 0x16, 7, 3, 0x09, 0xfe, 0x1a

	.macro pushr reg
	push	\reg
	.cfi_adjust_cfa_offset 8
	.endm
	.macro popr reg
	pop	\reg
	.cfi_adjust_cfa_offset -8
	.endm

	.macro SAVE3
	pushr	%rax
	pushr	%rdx
	pushr	%rcx
	.endm
	.macro RESTORE3
	popr	%rcx
	popr	%rdx
	popr	%rax
	.endm

	/* The rest of what a C function may change, behind SAVE3. Aligns the stack.
	   off: from the stack pointer at SAVE3's end to the CFA. */
	.macro SLOW off
	pushr	%rsi
	pushr	%rdi
	pushr	%r8
	pushr	%r9
	pushr	%r10
	pushr	%r11
	pushr	%rbp
	lea	-8(%rsp), %rsp		/* keeps the frame a multiple of 16 */
	.cfi_adjust_cfa_offset 8
	mov	%rsp, %rbp
	.cfi_def_cfa %rbp, 64 + \off
	.cfi_escape 0x10, 6, 2, 0x76, 8		/* rbp is at 8(%rbp) */
	and	$-16, %rsp
	cld
	.endm
	.macro ENDSLOW off
	mov	%rbp, %rsp
	.cfi_def_cfa %rsp, 64 + \off
	lea	8(%rsp), %rsp
	.cfi_adjust_cfa_offset -8
	popr	%rbp
	.cfi_restore %rbp
	popr	%r11
	popr	%r10
	popr	%r9
	popr	%r8
	popr	%rdi
	popr	%rsi
	.endm

	/* Reserve n bytes at %rax for an event of now: %rdx is the counter's low half, or the
	   sequence number's. Changes rcx. end is the block's word that says up to where there is room. words: a register that
	   has how many words there are, in place of n. */
#ifdef NO_CLOCK
	.macro RESERVE n, full, pre, suf, end=CB_END
10:	mov	\pre\()CB_NEXT\suf, %rax
	cmp	\pre\()\end\suf, %rax
	jae	\full
	mov	%eax, %edx
	add	\pre\()CB_ORDER\suf, %edx
	lea	\n(%rax), %rcx
	cmpxchg	%rcx, \pre\()CB_NEXT\suf
	jne	10b
	.endm

	/* The same for a call or return, which must be quick. Where a handler comes meanwhile,
	   go to settle. */
	.macro RESERVE_CALL n, full, pre, suf, settle
	mov	\pre\()CB_NEXT\suf, %rax
	cmp	\pre\()CB_END\suf, %rax
	jae	\full
	mov	%eax, %edx
	add	\pre\()CB_ORDER\suf, %edx
	addq	$\n, \pre\()CB_NEXT\suf
	lea	\n(%rax), %rcx
	cmp	%rcx, \pre\()CB_NEXT\suf
	jne	\settle
	.endm

	/* A handler came while RESERVE_CALL reserved n bytes: go to reserved with what that
	   would have found, or to again. off: as for SLOW. */
	.macro SETTLE n, off, again, reserved
	SLOW	\off
	mov	%rax, %rdi
	mov	$\n, %esi
	call	*fentry_home_settle(%rip)
	ENDSLOW	\off
	test	%rax, %rax
	jz	\again
	jmp	\reserved
	.endm
#else
	.macro RESERVE n, full, pre, suf, end=CB_END, words
10:	mov	\pre\()CB_NEXT\suf, %rcx
	cmp	\pre\()\end\suf, %rcx
	jae	\full
	rdtsc
	cmp	%edx, \pre\()CB_HIGH\suf
	jne	\full
	mov	%eax, %edx
	mov	%rcx, %rax
	.ifb \words
	add	$\n, %rcx
	.else
	lea	(%rcx, \words, 8), %rcx
	.endif
	cmpxchg	%rcx, \pre\()CB_NEXT\suf
	jne	10b
	.endm
	.macro RESERVE_CALL n, full, pre, suf, settle
	RESERVE \n, \full, \pre, \suf
	.endm
	.macro SETTLE n, off, again, reserved
	.endm
#endif

#define OPEN_BIT 47
#define SYSCALL_HEADER(words, exit) \
	((FT_RECORD_BASE | FT_RECORD_OPEN | FT_REC_SYS << FT_RECORD_TYPE_SHIFT | (words) | (exit)) & 0xffffffff)

	/* The header of a system call's record at rax, open; rcx is what closes it. */
	.macro OPEN_SYSCALL words, exit
	mov	$SYSCALL_HEADER(\words, \exit), %ecx
	shl	$32, %rcx
	or	%rdx, %rcx
	mov	%rcx, (%rax)
	btr	$OPEN_BIT, %rcx
	.endm

	/* The record of a system call's beginning, of 64 bytes at rax, with the time in rdx. ax and dx are where these registers
	   have been saved. */
	.macro WRITE_SYSCALL ax, dx
	OPEN_SYSCALL 7, 0
	mov	\ax, %rdx
	mov	%rdx, 8(%rax)
	mov	%rdi, 16(%rax)
	mov	%rsi, 24(%rax)
	mov	\dx, %rdx
	mov	%rdx, 32(%rax)
	mov	%r10, 40(%rax)
	mov	%r8, 48(%rax)
	mov	%r9, 56(%rax)
	mov	%rcx, (%rax)
	.endm

	/* The same of its end, of 16 bytes. */
	.macro WRITE_RESULT ax
	OPEN_SYSCALL 1, FT_ID_EXIT
	mov	\ax, %rdx
	mov	%rdx, 8(%rax)
	mov	%rcx, (%rax)
	.endm

	/* Go to hashed if blocks are found by thread pointer, to slow unless the block
	   is this thread's. What a program that uses gs has there is no inverted
	   thread pointer. */
	.macro CHECK_OWNER slow, hashed
	cmpq	$0, fentry_blocks(%rip)
	jne	\hashed
	mov	%fs:0, %rcx
	not	%rcx
	cmp	%rcx, %gs:CB_OWNER
	jne	\slow
	.endm

	/* r11 is to be this thread's block, by the thread pointer: another thread, which has ended, may have had that,
	   so what the C library says which one is running is compared, too. Changes rcx, rdx. */
	.macro HASHED_BLOCK slow
	mov	%fs:0, %rcx
	mov	fentry_blocks(%rip), %r11
	mov	%rcx, %rdx
	shr	$BLOCKS_SHIFT, %rdx
	and	$BLOCKS_MASK, %edx
	mov	(%r11, %rdx, 8), %r11
	not	%rcx
	test	%r11, %r11
	jz	\slow
	cmp	%rcx, CB_OWNER(%r11)
	jne	\slow
	mov	CB_LIBTID(%r11), %rdx
	mov	(%rdx), %edx
	cmp	%edx, CB_TID(%r11)
	jne	\slow
	.endm

	/* %r11, saved, is to be this thread's block. */
	.macro FIND_BLOCK slow
	pushr	%r11
	HASHED_BLOCK \slow
	.endm

	/* %reg is to be where the thread's tables of this image are, for \pre\()T_ENTRIES(%reg). */
	.macro TABLES reg, low, pre
	mov	fentry_tables(%rip), \low
	.ifb \pre
	add	%r11, \reg
	.endif
	.endm

	/* The caller's return address, and the slot S it is in, behind SAVE3. */
	.macro LOAD_RET where, reg, x
	.ifc \where, sp
	mov	32+\x(%rsp), \reg
	.else
	mov	8(%rbp), \reg
	.endif
	.endm
	.macro LEA_SLOT where, reg, x
	.ifc \where, sp
	lea	32+\x(%rsp), \reg
	.else
	lea	8(%rbp), \reg
	.endif
	.endm

	/* Go to maybe if the return address in rax looks like that of a thunk's body:
	   1 in 32 does. Changes ecx. */
	.macro CHECK_TAIL maybe
	lea	-THUNK_RET(%rax), %ecx
	test	$THUNK_SIZE - 1, %cl
	jz	\maybe
	.endm

	/* Go to no unless it is one. Changes rcx. */
	.macro IS_TAIL no
	mov	%rax, %rcx
	sub	fentry_thunks(%rip), %rcx
	cmp	fentry_thunks_size(%rip), %rcx
	jae	\no
	.endm

	/* rcx the top, rdx the slot S; to slow unless S is below the one and in reach. */
	.macro CHECK_STACK where, slow, pre, suf, x
	mov	\pre\()CB_TOP\suf, %rcx
	LEA_SLOT \where, %rdx, \x
	cmp	%rcx, %rdx
	jae	\slow		/* frames were skipped, or this is another stack */
	cmp	\pre\()CB_LO\suf, %rdx
	jb	\slow
	.endm

	/* The function's id in the high half of \reg, and 0 in the low one, by the way \back into its thunk, from enter
	   or, with the exit's bit, from exit. With "enter", a place behind that leaves something in the low half. */
	.macro ID_WORD of, back, reg
	mov	\back, \reg
	imul	fentry_id_scale(%rip), \reg
	add	fentry_id_\of(%rip), \reg
	.endm

	/* The event of the call or return \of, with the time in rdx, to \at. Changes rcx. */
	.macro WRITE of, back, at
	ID_WORD \of, \back, %rcx
	or	%rdx, %rcx
	mov	%rcx, \at
	.endm

	/* The same for the return of a function whose body returns to the address in rcx. */
	.macro WRITE_LEFT at
	add	$THUNK_RET_END - THUNK_RET, %rcx
	WRITE exit, %rcx, \at
	.endm

	/* The function's id in its image, by the way \back into its thunk. */
	.macro LOCAL_ID back, reg, low
	mov	\back, \reg
	sub	fentry_thunks(%rip), \reg
	imul	fentry_id_scale(%rip), \reg
	shr	$32, \reg
	inc	\low
	.endm

	/* Back to the thunk, dropping S if that calls the body. A thunk behind a prologue does not: its exit part takes
	   the place of the caller's return address. Where only the entry is recorded, \where is "on": nothing changes. */
	.macro LEAVE_ENTER where, x=0
	.cfi_remember_state
	.if \x
	popr	%r11
	.endif
	.ifc \where, fp
	mov	24(%rsp), %rax
	add	$THUNK_RET - THUNK_CALL_END, %rax
	mov	%rax, 8(%rbp)
	.endif
	RESTORE3
	.ifc \where, sp
	ret	$8
	.else
	ret
	.endif
	.cfi_restore_state
	.endm

	/* Back to the thunk, which is to run the body untraced: its jump does, if the zero flag is set. */
	.macro SKIP_ENTER where, x=0
	.cfi_remember_state
	.if \x
	popr	%r11
	.endif
	subq	$THUNK_CALL_END - THUNK_BYPASS, 24(%rsp)
	.ifc \where, sp
	.cfi_adjust_cfa_offset -8
	.cfi_offset %rip, -8
	.endif
	xor	%eax, %eax
	RESTORE3
	ret
	.cfi_restore_state
	.endm

	/* From the stack pointer at SAVE3's end to the CFA, in enter_off. */
	.macro ENTER_OFF where
	.ifc \where, sp
	.set	enter_off, 40
	.else
	.set	enter_off, 32
	.endif
	.endm

	/* Slow paths are the home's (home.c), which may be another image.

	   Call fentry_slow_enter(slot, id, image, ret) and go to again, leave or skip. */
	.macro SLOW_ENTER where, again, x=0
	.if \x
	popr	%r11
	.endif
	ENTER_OFF \where
	SLOW enter_off
	.ifc \where, fp
	mov	8(%rbp), %rdi
	add	$8, %rdi
	.else
	lea	64+32(%rbp), %rdi
	.endif
	LOCAL_ID 64+24(%rbp), %rsi, %esi
	mov	fentry_self(%rip), %rdx
	mov	(%rdi), %rcx
	call	*fentry_home_enter(%rip)
	ENDSLOW enter_off
	cmp	$ENTER_SKIP, %eax
	jb	\again
	ja	99f
	SKIP_ENTER \where
99:	LEAVE_ENTER \where
	.if \x
	.cfi_adjust_cfa_offset 8
	.endif
	.endm

	/* fentry_slow_record returned this thread's block, perhaps another than before. */
	.macro GOT_BLOCK again, x
	.if \x
	mov	%rax, %r11
	.endif
	test	%rax, %rax
	jnz	\again
	.endm

	/* Make room for events, then go to again; leave when that cannot be. */
	.macro SLOW_RECORD where, again, x=0
	ENTER_OFF \where
	SLOW enter_off+\x
	call	*fentry_home_record(%rip)
	ENDSLOW enter_off+\x
	GOT_BLOCK \again, \x
	LEAVE_ENTER \where, \x
	.endm

	/* exit: the return address to its place, the top to the frame before. */
	.macro UNLINK pre, suf, x
	lea	32+\x(%rsp), %rdx
	btc	$SHADOW_RET, %rdx
	mov	(%rdx), %rax
	btc	$SHADOW_PREV, %rdx
	mov	(%rdx), %rcx
	mov	%rax, 32+\x(%rsp)
	mov	%rcx, \pre\()CB_TOP\suf
	.endm

	/* The same by two registers. */
	.macro UNLINK_BY slot, word, pre, suf, x
	lea	32+\x(%rsp), \slot
	btc	$SHADOW_RET, \slot
	mov	(\slot), \word
	mov	\word, 32+\x(%rsp)
	btc	$SHADOW_PREV, \slot
	mov	(\slot), \word
	mov	\word, \pre\()CB_TOP\suf
	.endm

	.macro LEAVE_EXIT x=0
	.cfi_remember_state
	.if \x
	popr	%r11
	.endif
	RESTORE3
	ret
	.cfi_restore_state
	.endm

	/* Put the return address back by fentry_slow_exit(slot, id, image). */
	.macro SLOW_EXIT x=0
	.if \x
	popr	%r11
	.endif
	SLOW 40
	lea	64+32(%rbp), %rdi
	LOCAL_ID 64+24(%rbp), %rsi, %esi
	mov	fentry_self(%rip), %rdx
	call	*fentry_home_exit(%rip)
	ENDSLOW 40
	mov	%rax, 32(%rsp)
	LEAVE_EXIT
	.if \x
	.cfi_adjust_cfa_offset 8
	.endif
	.endm

	.macro SLOW_RECORD_EXIT again, x=0
	SLOW 40+\x
	call	*fentry_home_record(%rip)
	ENDSLOW 40+\x
	GOT_BLOCK \again, \x
	.endm

	.macro BEGIN_ENTER name, where
HIDDEN(\name)
\name:
	.cfi_startproc
	.ifc \where, sp
	.cfi_def_cfa %rsp, 16
	.cfi_offset %rip, -16
	.else
	.cfi_def_cfa %rsp, 8
	.cfi_offset %rip, -8
	.endif
	SAVE3			/* 24 thunk, 32 S before a prologue */
	.endm
	.macro BEGIN_EXIT name
HIDDEN(\name)
\name:
	.cfi_startproc
	.cfi_def_cfa %rsp, 16
	CFI_SHADOW_FRAME
	SAVE3			/* 24 thunk, 32 S */
	.endm
	.macro END name
	.cfi_endproc
	.size \name, . - \name
	.endm
