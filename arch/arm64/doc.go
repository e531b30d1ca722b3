// Package arm64 is what fentry knows about A64 instructions, those of AArch64.
//
// Decode finds an instruction's class and PC-relative operand:
//
//	for off := 0; off+arm64.InstLen <= len(code); off += arm64.InstLen {
//		in, err := arm64.Decode(code[off:])
//		if err != nil {
//			return fmt.Errorf("%s+%#x: %w", section, off, err)
//		}
//		if in.PCRel != arm64.PCRelNone {
//			use(in.Target(addr + uint64(off)))
//		}
//	}
//
// AppendNops, AppendCall, AppendJump and their kin encode; IsNops recognises;
// Relocate moves an instruction; Veneers reach what branches do not; Ftrace is the
// architecture's side of package arch. Thunk, ThunkFrames and Callers are the code
// at traced functions and how unwinders see it. Everything is a function of its
// arguments: no state, no files, and the host's own architecture does not matter.
//
// # What is odd about this machine
//
// Length. Every instruction is one aligned word of 4 bytes, little-endian even
// where data are big-endian, so nothing here asks for a byte order. What a word
// means, its bits say: a table of masks and values is the whole decoder. Any
// function has room for a jump at its entry, and nothing can jump into it.
//
// Position. b and bl reach 128 MiB, one word less forwards; b.cond, cbz, adr and
// loads of literals 1 MiB; tbz 32 KiB; compare and branch (FEAT_CMPBR) 1 KiB. adrp
// reaches 4 GiB, but counts from the page of 4 KiB, whatever the kernel's page
// size. Everything counts from the instruction itself, not from its end. Images of
// more than 128 MiB need veneers; Reaches is the one place where that is decided.
// Newer processors can sign a return address together with the place where it was
// signed (FEAT_PAuth_LR): such instructions must stay where they are.
//
// Calls. bl leaves the return address in x30 and touches no memory, so at a
// function's first instruction the return address has no slot on the stack. The
// slot of the call whose stack pointer at entry is S is said to be S-8, to make its
// shadow the same as on other machines: nothing is ever at S-8 itself but what the
// function puts there. Two calls can have the same S at the same time only if the
// first has saved x30 elsewhere than on the stack, which compilers do with a shadow
// call stack (x18) only; such code must not be traced this way.
//
// Frame descriptions. They speak of x30 wherever the function has it: in x30, then
// in the frame, then in x30 again. So the rule for a traced function's caller has to
// be put at each of those places; see Callers. Those of gcc 12 begin behind the nops
// of -fpatchable-function-entry: a body entered behind all of them is always described.
//
// Signatures. With -mbranch-protection, functions sign x30 with the stack pointer
// (paciasp) before they save it, and check it before they return. Sites before the
// prologue come before that: what the function signs is the thunk's address.
// Behind the prologue it is too late to replace it. Guarded control stacks
// (FEAT_GCS) hold what every bl has left and compare each ret with it: a thunk's
// calls and returns agree with them, but replacing a return address behind the
// prologue does not, nor does the way by which enter leaves a call alone.
//
// Landing pads. Pages may be guarded (BTI): br and blr must then arrive at bti, or
// paciasp. Thunks are reached by b and bl, which need none, and the runtime goes
// back into them by ret, which needs none. A veneer's br needs one: see
// AppendLanding. A function's landing pad stays its first instruction: sites are
// behind it.
//
// Registers. At a function's first instruction x0 to x8 and v0 to v7 have
// arguments, x18 belongs to the platform, x19 to x29 and the stack pointer to the
// caller. x16 and x17 are free, there and at its return, as any call may go through
// a veneer that destroys them. x9 to x15 are free by the AAPCS64, and x9 is what
// the two-instruction site of ftrace keeps the return address in; but a caller
// compiled with -fipa-ra may know that the function leaves them alone, so thunks
// use x16 and x17 only. The flags are dead.
//
// Writing. An aligned word is written at once, and processors may fetch nop, b, bl
// and a few others while one is changed into another; see Ftrace for the order that
// follows from it. After that the caches have to be told: dc cvau, dsb, ic ivau,
// dsb, isb. What is done here is for images and stopped processes.
//
// # What is refused
//
// Decode refuses nothing: words that are not allocated are Other, as are all
// instructions without one of the classes that matter here. Relocate refuses
// instructions of FEAT_PAuth_LR. Loads of acquired exclusives can be moved, but what
// is between them and their store must not touch memory.
//
// # Security
//
// Code and frame descriptions may come from anywhere. Nothing reads beyond a slice;
// the output is bounded by a multiple of the input.
package arm64
