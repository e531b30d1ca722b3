package code

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch/arm64"
)

// targets decodes the words that can be branches: bits 28 to 26 say so (DDI 0487, C4.1).
func (arm64Code) targets(b []byte, addr uint64, places []Place, out []uint64) []uint64 {
	lo, hi := places[0].first(), places[len(places)-1].Hi
	for k := 0; k+arm64.InstLen <= len(b); k += arm64.InstLen {
		w := binary.LittleEndian.Uint32(b[k:])
		if w>>26&7 != 5 {
			continue
		}
		in := arm64.DecodeWord(w)
		if in.PCRel != arm64.PCRelBranch {
			continue
		}
		pc := addr + uint64(k)
		if t := in.Target(pc); t >= lo && t < hi && counts(places, pc, t) {
			out = append(out, t)
		}
	}
	return out
}
