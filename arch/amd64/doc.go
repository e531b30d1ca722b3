// Package amd64 is what fentry knows about x86-64 instructions in 64-bit mode.
//
// Decode finds an instruction's length, class and PC-relative operand:
//
//	for off := 0; off < len(code); {
//		in, err := amd64.Decode(code[off:])
//		if err != nil {
//			return fmt.Errorf("%s+%#x: %w", section, off, err)
//		}
//		if in.PCRel != amd64.PCRelNone {
//			use(in.Target(addr + uint64(off)))
//		}
//		off += in.Len
//	}
//
// AppendNops, AppendCall, AppendJump and their kin encode; IsNops recognises; Relocate moves an instruction; Ftrace
// implements package arch for this architecture. Everything is a function of its arguments: there is no state, no
// file is read, and the host's architecture does not matter.
//
// # What is odd about this machine
//
// Instructions have 1 to 15 bytes and no alignment. Only decoding an instruction tells where it ends, and only
// decoding the one before it tells where it begins; a byte in the middle is likely to begin another valid
// instruction. So nothing here searches for byte patterns.
//
// Length. Prefixes come in any order and number, except that REX counts only directly before the opcode: 48 66 b8 is
// a 16-bit mov. The operand-size prefix shortens immediates (the "length-changing prefix"), REX.W takes that back,
// and makes the one of mov b8+r 64 bits wide. The address-size prefix shortens only the absolute addresses of a0 to
// a3. test has an immediate, not and neg of the same opcode have none; 0f 78 is vmread, or with a prefix an SSE4a
// instruction with two immediate bytes; the ModRM byte of mov to and from control registers names two registers,
// whatever mod says. VEX, EVEX and XOP took over the opcodes of les, lds, bound and a form of pop that never existed;
// they bring their own prefixes and forbid the old ones.
//
// Position. Displacements count from the end of the instruction, immediates included: cmpl $1, x(%rip) has its
// displacement eight bytes before the place it counts from. ModRM mod 0, rm 5 is disp32(%rip) in every encoding; with
// an address-size prefix it is disp32(%eip), wrapped at 4 GiB. Only branches with an 8-bit displacement, whether they
// have a longer form (jmp, jcc) or not (loop, jrcxz), cannot simply be moved far; see Relocate.
//
// Call sites. A compiler's call of a profiling function is e8 rel32, five bytes, or, for position-independent code,
// ff 15 disp32 through the GOT, six. A linker that knows the target relaxes the latter to 67 e8 rel32; the prefix has
// no effect but keeps it a single instruction. A call pushes the address of its end, so the site is 5 or 6 bytes
// before the return address: a table of sites tells which, arithmetic cannot. recordmcount always subtracts one from
// the relocation's offset and so points into ff 15; see CallAdjust. endbr64 must stay the first instruction of a
// function that is called indirectly: sites are after it. No store of five bytes is atomic for another processor that
// executes them, and five one-byte nops are five instructions, any of which a thread may be about to execute: this
// package is for code that is not running, in an image or a stopped process.
//
// Registers. At a function's first instruction none is free. rdi, rsi, rdx, rcx, r8, r9 and xmm0 to xmm7 hold
// arguments, rax the number of vector registers of a variadic call, r10 the static chain; r11 and the other registers
// that the ABI lets a function clobber may still be in use by a caller compiled with -fipa-ra, which knows what the
// function preserves. The flags are dead in compiled C. The 128 bytes below rsp belong to the function only after its
// first instruction, so a call may push there, and nowhere else.
//
// # What is refused
//
// Decode returns ErrInvalid for opcodes that no processor has in 64-bit mode, and for vector encodings after 66, f2,
// f3, lock or REX, but does not check whether an opcode exists with its mandatory prefix, or whether lock or a
// register number is allowed: none of that changes the length. It also refuses some that disassemblers print: moves
// to cs and to segment and control registers that do not exist, and the 80287's frstpm.
//
// It returns ErrUndecided where processors disagree, or future ones may:
//   - a near branch with an operand-size prefix and no REX.W: AMD reads a 16-bit displacement and truncates the
//     target, Intel ignores the prefix. The one that compilers emit, data16 rex.W call of __tls_get_addr, is
//     unambiguous.
//   - 0f ff (ud0), with a ModRM byte or without.
//   - APX: REX2 (d5), EVEX map 4, and EVEX with the bits that extend registers
//     to 32; AVX10.2's embedded rounding in 256 bits is the same bit.
//
// The maps hold what Intel's and AMD's manuals documented when they were written. The length of an unknown opcode is
// not guessed, even where its map implies it.
//
// # Security
//
// Code may come from anywhere. Decode reads at most 15 bytes and never beyond the slice; everything else is bounded
// by the length of a site. Whether bytes are code at all is for the caller to know: data decodes, too.
package amd64
