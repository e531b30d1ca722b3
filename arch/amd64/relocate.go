package amd64

import (
	"encoding/binary"
	"fmt"
)

// Relocate appends to dst an instruction that does at address to what src, decoded as in, does at address at.
// RelocatedLen returns how many bytes that takes.
//
//   - disp32(%rip) and 32-bit branches get a new displacement, prefixes stay;
//   - jmp rel8 and jcc rel8 become rel32, xbegin rel16 too;
//   - loop, loope, loopne and jrcxz, which have no other form, jump over a jump:
//     loop 1f; jmp 2f; 1: jmp target; 2:
//   - anything else is copied.
//
// A call pushes the address after its new place. Whether that matters, and whether the target of a branch has moved,
// too, is for the caller to know; see Retarget for the latter. The error is a *RangeError, or wraps ErrTooLong for a
// short branch with so many prefixes that a long one would exceed 15 bytes; dst is then unchanged.
func Relocate(dst []byte, in Inst, src []byte, at, to uint64) ([]byte, error) {
	return Retarget(dst, in, src, to, in.Target(at))
}

// Retarget is like Relocate, but the instruction's branch or memory operand refers to address target.
func Retarget(dst []byte, in Inst, src []byte, to, target uint64) ([]byte, error) {
	if in.Len == 0 || in.Len > len(src) {
		return dst, fmt.Errorf("%d bytes for an instruction of %d to move to %#x", len(src), in.Len, to)
	}
	src = src[:in.Len]
	if in.PCRel == PCRelNone {
		return append(dst, src...), nil
	}
	start := len(dst)
	name := "moved " + in.Op.String()
	rel32 := func(next uint64, b ...byte) ([]byte, error) {
		d, err := disp32(name, to, next, target)
		if err != nil {
			return dst[:start], err
		}
		return binary.LittleEndian.AppendUint32(append(dst, b...), d), nil
	}

	if in.PCSize == 4 {
		next := to + uint64(in.Len)
		d := uint32(target - next)
		// With disp32(%eip) every address a program can name is within reach.
		if in.PCRel == PCRelBranch || in.Prefix&PrefixAddrSize == 0 {
			var err error
			if d, err = disp32(name, to, next, target); err != nil {
				return dst, err
			}
		}
		dst = append(dst, src...)
		binary.LittleEndian.PutUint32(dst[start+in.PCOff:], d)
		return dst, nil
	}

	if n := RelocatedLen(in); n > maxLen && in.Op != Loop && in.Op != Jrcxz {
		return dst, fmt.Errorf("%s at %#x, with %d bytes of prefixes: %w", name, to, in.PCOff-1, ErrTooLong)
	}
	end := to + uint64(RelocatedLen(in))
	prefixes := src[:in.PCOff-1]
	switch in.Op {
	case Jmp:
		dst = append(dst, prefixes...)
		return rel32(end, 0xe9)
	case Jcc:
		dst = append(dst, prefixes...)
		return rel32(end, 0x0f, 0x80|in.Cond)
	case Loop, Jrcxz:
		dst = append(dst, prefixes...)
		return rel32(end, in.Opcode, 2, // loop 1f
			0xeb, 5, //                    jmp 2f
			0xe9) //                       1: jmp target; 2:
	case Xbegin:
		// The operand size is what made it 16 bits wide: a prefix without effect instead.
		for _, b := range src[:in.PCOff-2] {
			if b == 0x66 {
				b = 0x2e
			}
			dst = append(dst, b)
		}
		return rel32(end, 0xc7, 0xf8)
	}
	return dst, fmt.Errorf("%v with a displacement of %d bytes to move to %#x", in.Op, in.PCSize, to)
}

// RelocatedLen returns the number of bytes that Relocate appends for the instruction, wherever it moves.
func RelocatedLen(in Inst) int {
	if in.PCRel == PCRelNone || in.PCSize == 4 {
		return in.Len
	}
	switch in.Op {
	case Jmp:
		return in.Len + 3
	case Jcc:
		return in.Len + 4
	case Loop, Jrcxz:
		return in.Len + 7
	case Xbegin:
		return in.Len + 2
	}
	return in.Len
}
