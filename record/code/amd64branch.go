package code

import "github.com/fentry-dev/fentry/arch/amd64"

// BranchInto decodes code only where it looks suspicious: any four bytes that, taken as a displacement, lead into the
// site, and near the site any byte behind the opcode of a short branch. A compiler's code has few of them, so this costs
// little more than reading it; a function with one is decoded up to the last.
func (amd64Code) BranchInto(b []byte, addr, lo, hi uint64) (uint64, bool) {
	last := lastSuspect(b, addr, lo+1, hi)
	if last == 0 {
		return 0, false
	}
	return firstInto(b[:last], addr, lo+1, hi)
}

// isShortBranch reports whether a byte is the opcode of a branch with a one-byte displacement: jcc, loop, jrcxz, jmp.
func isShortBranch(op byte) bool {
	return op >= 0x70 && op <= 0x7f || op >= 0xe0 && op <= 0xe3 || op == 0xeb
}

// firstInto decodes a function whose bytes b lie at pc, and returns the lowest place in [lo, hi) that one of its branches
// goes to. When something is no instruction, nothing can be said about what follows, and lo is returned.
func firstInto(b []byte, pc, lo, hi uint64) (lowest uint64, found bool) {
	lowest = hi
	for len(b) > 0 {
		in, err := amd64.Decode(b)
		if err == amd64.ErrTruncated {
			break
		}
		if err != nil {
			return lo, true
		}
		// What is in the site itself does not count: a sled's own jump goes behind it.
		if t := in.Target(pc); in.PCRel == amd64.PCRelBranch && t >= lo && t < lowest && (pc < lo-1 || pc >= hi) {
			lowest = t
		}
		b, pc = b[in.Len:], pc+uint64(in.Len)
	}
	return lowest, lowest < hi
}
