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
// AppendNops, AppendCall, AppendJump and their kin encode; IsNops recognises; Relocate moves an instruction; Veneers
// reach what branches do not; Ftrace implements package arch for this architecture. Thunk, ThunkFrames and Callers
// make the code at traced functions and its unwind information. Everything is a function of its arguments: there is
// no state, no file is read, and the host's architecture does not matter.
//
// # What is odd about this machine
//
// Length. Every instruction is one aligned word of 4 bytes, little-endian even where data are big-endian, so nothing
// here takes a byte order. A table of masks and values is the whole decoder. Any function has room for a jump at its
// entry, and nothing can jump into the middle of it.
//
// Position. b and bl reach 128 MiB, one word less forwards; b.cond, cbz, adr and loads of literals 1 MiB; tbz 32 KiB;
// compare and branch (FEAT_CMPBR) 1 KiB. adrp reaches 4 GiB, but counts from the page of 4 KiB, whatever the kernel's
// page size. Displacements count from the instruction itself, not from its end. Images of more than 128 MiB need
// veneers; only Reaches decides that. Newer processors can sign a return address together with the address of the
// signing instruction (FEAT_PAuth_LR): such instructions must not move.
//
// Calls. bl leaves the return address in x30 and touches no memory, so at a function's first instruction the return
// address has no slot on the stack. For a call whose stack pointer at entry is S, the slot is defined as S-8, so that
// its shadow is the same as on other machines; only the function itself ever writes to S-8. Two calls can have the
// same S at the same time only if the first has saved x30 elsewhere than on the stack, which compilers do only for a
// shadow call stack (x18); such code must not be traced this way.
//
// Frame descriptions. They follow the return address: in x30, then in the frame, then in x30 again. So the rule for a
// traced function's caller must be added at each of those places; see Callers. Those of gcc 12 begin after the nops
// of -fpatchable-function-entry: a body entered after all of them is always described.
//
// Signatures. With -mbranch-protection, functions sign x30 with the stack pointer (paciasp) before they save it, and
// check it before they return. Sites before the prologue come before that: the function signs the thunk's address.
// After the prologue it is too late to replace it. Guarded control stacks (FEAT_GCS) keep the return address of every
// bl and compare each ret with it: a thunk's calls and returns agree with them, but replacing a return address after
// the prologue does not, nor does the way enter leaves a call untraced.
//
// Landing pads. Pages may be guarded (BTI): br and blr must then arrive at bti, or paciasp. Thunks are reached by b
// and bl, and the runtime returns to them by ret; neither needs one. A veneer's br does: see AppendLanding. A
// function's landing pad stays its first instruction: sites are after it.
//
// Registers. At a function's first instruction x0 to x8 and v0 to v7 hold arguments, x18 belongs to the platform, x19
// to x29 and the stack pointer to the caller. x16 and x17 are free, there and at its return, as any call may go
// through a veneer that clobbers them. x9 to x15 are free by the AAPCS64, and the two-instruction site of ftrace
// keeps the return address in x9; but a caller compiled with -fipa-ra may know that the function preserves them, so
// thunks use only x16 and x17. The flags are dead.
//
// Writing. Stores of an aligned word are atomic, and processors may fetch nop, b, bl and a few others while one is
// changed into another; see Ftrace for the order that follows from this. Then caches must be synchronised: dc cvau,
// dsb, ic ivau, dsb, isb. This package is for images and stopped processes.
//
// # What is refused
//
// Decode refuses nothing: unallocated words are Other, as are all instructions whose class does not matter here.
// Relocate refuses instructions of FEAT_PAuth_LR. Exclusive loads can be moved, but the code between them and their
// store must not access memory.
//
// # Security
//
// Code and frame descriptions may come from anywhere. Nothing is read beyond a slice; the size of the output is
// bounded by a multiple of that of the input.
package arm64
