package arm64

import "fmt"

// Displaced code.
//
// Where a compiler has left no room for the branch to a thunk, it takes the place of a function's first instruction. That
// goes on elsewhere, relocated, and behind it a branch back to what follows, unless nothing does. One instruction is
// enough, so nothing can branch into the middle of it.
//
// Literals for vector registers are loaded through x16. At a function's first instruction nobody has anything there, and
// the thunk has used it already; the stack stays what unwind tables say.
//
// What may be displaced is not decided here.

// DisplacedLen returns how many bytes [AppendDisplaced] appends for the instructions in src, wherever they go. It is 0 if
// src does not consist of whole instructions.
func DisplacedLen(src []byte) int {
	n, ok := DisplacedAt(src, len(src))
	if ok && n > 0 && continues(src) {
		n += JumpLen
	}
	return n
}

// DisplacedAt returns where in the copy of src the instruction begins that begins at offset off of src. The offset behind
// the last one is that of the branch back. It returns false if none begins there.
func DisplacedAt(src []byte, off int) (int, bool) {
	if off < 0 || off > len(src) || off%InstLen != 0 {
		return 0, false
	}
	n := 0
	for at := 0; at < off; at += InstLen {
		in, err := Decode(src[at:])
		if err != nil {
			return 0, false
		}
		if n += RelocatedLen(in); in.Op == LdrLitFP {
			n -= 2 * InstLen
		}
	}
	return n, true
}

// continues reports whether the instruction behind the last one of src can be reached from it.
func continues(src []byte) bool {
	in, err := Decode(src[len(src)-InstLen:])
	return err != nil || !in.Op.EndsBlock()
}

// AppendDisplaced appends a copy, for address to, of the whole instructions in src, which lie at address at, followed by
// a branch to back if they go on to what is behind them: to there, or to what leads there. It may change x16. Errors are
// those of [Relocate].
func AppendDisplaced(dst, src []byte, at, to, back uint64) ([]byte, error) {
	if len(src)%InstLen != 0 || len(src) == 0 {
		return dst, fmt.Errorf("%d bytes to be displaced at %#x are no whole instructions", len(src), at)
	}
	start := len(dst)
	for o := 0; o < len(src); o += InstLen {
		in, err := Decode(src[o:])
		if err != nil {
			return dst[:start], fmt.Errorf("instruction at %#x: %w", at+uint64(o), err)
		}
		pc := at + uint64(o)
		if in.Op == LdrLitFP {
			a := assembler{dst: dst, pc: to + uint64(len(dst)-start)}
			a.addr(16, in.Target(pc))
			a.word(loadOf(in.Word) | 16<<5 | uint32(in.Reg))
			dst, err = a.dst, a.err
		} else {
			dst, err = Relocate(dst, in, src[o:], pc, to+uint64(len(dst)-start))
		}
		if err != nil {
			return dst[:start], err
		}
	}
	if !continues(src) {
		return dst, nil
	}
	out, err := AppendJump(dst, to+uint64(len(dst)-start), back)
	if err != nil {
		return dst[:start], err
	}
	return out, nil
}
