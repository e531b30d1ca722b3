/* Numbers that C and assembly agree on. Only #defines: assembly includes this. control.h
   asserts the offsets against the structure. Those that Go knows too are in format.h and
   config.h. */
#ifndef FENTRY_LAYOUT_H
#define FENTRY_LAYOUT_H

/* struct control: what the fast paths touch, at the thread's control base (gs on amd64,
   a thread-local word on arm64) */
#define CB_OWNER           0  /* inverted thread pointer of the thread this block belongs to */
/* CB_NEXT, where the machine wants it: next event slot */
/* CB_END, behind it: first slot that is not to be used; see ahead.h for the tags */
/* CB_TOP, in the place that is left: slot of the innermost live frame; see stack.c for the tags */
#define CB_LO              32 /* lowest stack address whose shadow is mapped */
#define CB_HIGH            40 /* u32: high half of the counter at the last event */
#define CB_ID_BASE         44 /* u32, arm64: fentry_id_base, loaded with the word before it, for exits */
#define CB_SHADOW          48 /* arm64: from a slot on the current stack to its shadow */
#define CB_SHADOW_AUX      56 /* arm64: and to that with its times */
#define CB_CHILD           64 /* profile: time spent in the callees of the innermost frame so far */
#define CB_TABLE           72 /* profile, count: struct table of the first image */
#define CB_SELF            88 /* address of the block */
#define CB_LIBTID          96 /* the C library's copy of the thread id, see thread.c; 0: none */
#define CB_TID             104 /* u32 */
#define CB_ORDER           112 /* u32, without a clock: from a slot's address to its event's sequence number */
#define CB_SYS_OPEN        116 /* u32: system calls whose ends are for the slow path */
#define CB_SYS_END         120 /* as CB_END, for the record of a system call */
#define CB_GOROUTINE       128 /* Go's programs: number of the goroutine that the newest event is of */
#define CB_HIGH_ENTER      136 /* u32, arm64: CB_HIGH once more */
#define CB_ID_ENTER        140 /* u32, arm64: fentry_id_enter, loaded with the word before it, for entries */
#define CB_ROOM            144 /* where slow paths of functions that are recorded in place have room; 0: nowhere yet */

/* struct words: what the fast paths of an image look at */
#define W_BLOCKS           0  /* table of blocks by thread pointer; 0: they are at the control base */
#define W_THUNKS           8  /* address of the first thunk; of what bodies return to, where that is apart (arm64) */
#define W_THUNKS_SIZE      16 /* bytes of all */
#define W_ID_SCALE         24 /* amd64: a return address in a thunk times this, plus one of the two words that follow, */
#define W_ID_ENTER         32 /* is the id in its high half: for the address that enter returns to */
#define W_ID_EXIT          40 /* and for that of exit, with the bit FT_ID_EXIT */
#define W_ID_LOCAL         24 /* u32, arm64: an address in a front over FRONT_SIZE, plus this, is the local id, */
			      /* and plus W_ID_ENTER that in the trace (u32, modulo 2^32) */
#define W_DEPTH            48 /* u32: greatest depth of calls that are recorded, below DEPTH_HIDDEN */
#define W_ID_BASE          52 /* u32: ids in the trace are local ids plus this */
#define W_ENTER            56 /* slow paths, which are the home's: slow.c */
#define W_EXIT             64
#define W_RECORD           72
#define W_SYSCALL          80 /* the same of system calls */
#define W_SETTLE           88
#define W_WORD             96 /* arm64: distance from the thread pointer to the executable's word; 0 in others */
#define W_ACT              104 /* slow paths of functions with actions: act.c */
#define W_ACT_EXIT         112
#define W_TABLES           120 /* u32, profile, count: where the thread's tables of the image are in the block */
#define W_SYSCALLS         124 /* u32: what is recorded of system calls, SYSCALLS_... */
#define W_ROOTS            128 /* bitmap of graph roots by local id, 0: every function is one */
#define W_THRESHOLD        136 /* ticks: shorter calls are not recorded; 0: all are */
#define W_SELF             144 /* the image, for slow paths */
#define W_PLAIN            152 /* u32: not 0: entries and exits with what is captured of them in registers are recorded in place */
#define W_PLACE            160 /* slow path of functions without a thunk: place.c */
#define W_SIZE             168

/* struct table: what a thread has counted in an image */
#define T_ENTRIES          0  /* by local id; 0: none of the image's functions has been called yet */
#define T_ACTIVE           8  /* profile: slots of the outermost open calls, by local id */

/* struct image */
#define I_SWITCHES         64

/* Go's programs: in runtime.g, runtime.m and runtime.gobuf, as they have been since Go 1.17 */
#define GO_STACK_LO        0
#define GO_STACK_HI        8
#define GO_M               0x30
#define GO_SCHED_SP        0x38
#define GO_M_G0            0

/* fentry_blocks: table of blocks by thread pointer, for programs that use gs themselves */
#define BLOCKS_SHIFT       12
#define BLOCKS_FOLD        11 /* arm64: bits from here above BLOCKS_SHIFT count, too */
#define BLOCKS_MASK        0xffff

/* bytes that the beginning of a system call takes */
#define SYSCALL_RECORD     64

/* stubs that the kernel calls in place of traced handlers: signal.c */
#define SIGNAL_STUBS       64
#define SIGNAL_STUB_SIZE   16

/* tags in CB_TOP and in the shadow's previous-top words */
#define TOP_EMPTY          6  /* no frame is open on this stack */
#define TOP_FORCED         7  /* slot minus 1: leaving this frame takes the slow path */

/* depth of a call that is left out with all inside it: what is inside is deeper than any limit */
#define DEPTH_HIDDEN       0x80000000

/* what a slow entry tells the fast path */
#define ENTER_RETRY        0 /* everything is in place: try again */
#define ENTER_SKIP         1 /* run this call untraced */
#define ENTER_DONE         2 /* recorded, the frame is linked */

#include "config.h"
#include "thunk.h"

#endif
