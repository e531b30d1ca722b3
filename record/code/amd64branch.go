package code

import "github.com/fentry-dev/fentry/arch/amd64"

// targets decodes code only where it looks suspicious: any four bytes that, taken as a displacement, lead into the
// place, and near the place any byte behind the opcode of a short branch. A compiler's code has few of them, so this
// costs little more than reading it; a function with one is decoded up to the last. That is for one place in the code.
// For several all is decoded.
func (amd64Code) targets(b []byte, addr uint64, places []Place, out []uint64) []uint64 {
	end := addr + uint64(len(b))
	if p := places[0]; len(places) == 1 && p.Lo >= addr && p.Hi <= end && p.Lo < p.Hi {
		b = b[:lastSuspect(b, addr, p)]
	}
	for pc := addr; len(b) > 0; {
		in, err := amd64.Decode(b)
		if err == amd64.ErrTruncated {
			break
		}
		if err != nil {
			return spoilt(places, addr, end, out)
		}
		if in.PCRel == amd64.PCRelBranch {
			if t := in.Target(pc); counts(places, pc, t) {
				out = append(out, t)
			}
		}
		b, pc = b[in.Len:], pc+uint64(in.Len)
	}
	return out
}

// isShortBranch reports whether a byte is the opcode of a branch with a one-byte displacement: jcc, loop, jrcxz, jmp.
func isShortBranch(op byte) bool {
	return op >= 0x70 && op <= 0x7f || op >= 0xe0 && op <= 0xe3 || op == 0xeb
}
