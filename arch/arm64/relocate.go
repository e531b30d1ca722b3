package arm64

import (
	"encoding/binary"
	"fmt"
)

// Relocate appends to dst instructions that do at address to what src, decoded as in, does at address at.
// RelocatedLen returns how many bytes that takes.
//
//   - b, bl and adrp get a new displacement;
//   - b.cond, cbz and tbz, which do not reach far, are inverted and jump over a b:
//     b.ne 1f; b target; 1:
//     b.al, which has no inverse, becomes b;
//   - those of FEAT_CMPBR, which have no inverse either, become
//     cbgt ., 1f; b 2f; 1: b target; 2:
//   - adr becomes adrp and add, or a nop for xzr;
//   - literals are loaded through their own register, adrp, add, ldr; for SIMD
//     registers through x16, which is kept on the stack meanwhile;
//   - prefetches of literals, which are hints, become nops, and so do loads to xzr;
//   - anything else is copied.
//
// A call leaves in x30 the address after its new place. Whether that matters, and whether the target of a branch has
// moved, too, is for the caller to know; see Retarget for the latter. An exclusive load and its store must not be
// moved apart.
//
// The error is a *RangeError, or says that the instruction signs or authenticates
// with its own address (FEAT_PAuth_LR) and cannot move; dst is then unchanged.
func Relocate(dst []byte, in Inst, src []byte, at, to uint64) ([]byte, error) {
	return Retarget(dst, in, src, to, in.Target(at))
}

// Retarget is like Relocate, but the instruction's operand refers to address target.
func Retarget(dst []byte, in Inst, src []byte, to, target uint64) ([]byte, error) {
	if in.Len != InstLen || len(src) < InstLen || binary.LittleEndian.Uint32(src) != in.Word {
		return dst, fmt.Errorf("%d bytes to move to %#x are not those of the instruction %#08x", len(src), to, in.Word)
	}
	if to%InstLen != 0 {
		return dst, fmt.Errorf("%v to move to %#x: instructions are at multiples of %d", in.Op, to, InstLen)
	}
	start := len(dst)
	a := assembler{dst: dst, pc: to}
	switch in.Op {
	case SignPC, AuthPC:
		return dst, fmt.Errorf("%v to move to %#x: the return address is signed for the place of the instruction", in.Op, to)
	case Ret:
		if in.PCRel == PCRelSign {
			return dst, fmt.Errorf("%v to move to %#x: the return address is signed for the place of the instruction", in.Op, to)
		}
		a.word(in.Word)
	case Call:
		a.branch(AppendCall, target)
	case Jmp:
		a.branch(AppendJump, target)
	case Jcc:
		if in.Cond < condAL {
			a.word(in.Word&^(0x7ffff<<5) ^ 1 | 2<<5)
		}
		a.branch(AppendJump, target)
	case Cbz:
		a.word(in.Word&^(0x7ffff<<5) ^ 1<<24 | 2<<5)
		a.branch(AppendJump, target)
	case Tbz:
		a.word(in.Word&^(0x3fff<<5) ^ 1<<24 | 2<<5)
		a.branch(AppendJump, target)
	case Cb:
		a.word(in.Word&^(0x1ff<<5) | 2<<5)
		a.branch(AppendJump, a.pc+8)
		a.branch(AppendJump, target)
	case Adr:
		if in.Reg == regZero {
			a.word(WordNop)
			break
		}
		a.addr(in.Reg, target)
	case Adrp:
		if in.Reg == regZero {
			a.word(WordNop)
			break
		}
		if a.dst, a.err = AppendAdrp(a.dst, in.Reg, to, target); a.err == nil {
			a.pc += InstLen
		}
	case LdrLit:
		if in.Reg == regZero {
			a.word(WordNop)
			break
		}
		a.addr(in.Reg, target)
		a.word(loadOf(in.Word) | uint32(in.Reg)<<5 | uint32(in.Reg))
	case LdrLitFP:
		a.word(0xf81f0ff0) // str x16, [sp, #-16]!
		a.addr(16, target)
		a.word(loadOf(in.Word) | 16<<5 | uint32(in.Reg))
		a.word(0xf84107f0) // ldr x16, [sp], #16
	case PrfmLit:
		a.word(WordNop)
	default:
		a.word(in.Word)
	}
	if a.err != nil {
		return dst[:start], fmt.Errorf("moved %v: %w", in.Op, a.err)
	}
	return a.dst, nil
}

// RelocatedLen returns the number of bytes that Relocate appends for the instruction, wherever it moves.
func RelocatedLen(in Inst) int {
	switch in.Op {
	case Jcc:
		if in.Cond >= condAL {
			return InstLen
		}
		return 2 * InstLen
	case Cbz, Tbz:
		return 2 * InstLen
	case Cb:
		return 3 * InstLen
	case Adr:
		if in.Reg == regZero {
			return InstLen
		}
		return AddrLen
	case LdrLit:
		if in.Reg == regZero {
			return InstLen
		}
		return AddrLen + InstLen
	case LdrLitFP:
		return AddrLen + 3*InstLen
	}
	return InstLen
}

const (
	condAL  = 14 // conditions 14 and 15 are always true
	regZero = 31 // xzr, where an instruction does not mean sp
)

// loadOf returns the load [x0], to register 0, that loads what the literal load w does.
func loadOf(w uint32) uint32 {
	switch w >> 24 {
	case 0x18:
		return 0xb9400000 // ldr w
	case 0x58:
		return 0xf9400000 // ldr x
	case 0x98:
		return 0xb9800000 // ldrsw
	case 0x1c:
		return 0xbd400000 // ldr s
	case 0x5c:
		return 0xfd400000 // ldr d
	}
	return 0x3dc00000 // ldr q
}

// An assembler appends instructions until one fails.
type assembler struct {
	dst []byte
	pc  uint64
	err error
}

func (a *assembler) word(w uint32) {
	a.dst = appendWord(a.dst, w)
	a.pc += InstLen
}

func (a *assembler) branch(op func([]byte, uint64, uint64) ([]byte, error), target uint64) {
	if a.err != nil {
		return
	}
	if a.dst, a.err = op(a.dst, a.pc, target); a.err == nil {
		a.pc += InstLen
	}
}

func (a *assembler) addr(rd byte, target uint64) {
	if a.err != nil {
		return
	}
	if a.dst, a.err = AppendAddr(a.dst, rd, a.pc, target); a.err == nil {
		a.pc += AddrLen
	}
}
