package code

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch/arm64"
)

// BranchInto decodes the words that can be branches: bits 28 to 26 say so (DDI 0487, C4.1).
func (arm64Code) BranchInto(b []byte, addr, lo, hi uint64) (lowest uint64, found bool) {
	lowest = hi
	for k := 0; k+arm64.InstLen <= len(b); k += arm64.InstLen {
		w := binary.LittleEndian.Uint32(b[k:])
		if w>>26&7 != 5 {
			continue
		}
		pc := addr + uint64(k)
		if pc >= lo && pc < hi {
			continue
		}
		if in := arm64.DecodeWord(w); in.PCRel == arm64.PCRelBranch {
			if t := in.Target(pc); t > lo && t < lowest {
				lowest = t
			}
		}
	}
	return lowest, lowest < hi
}
