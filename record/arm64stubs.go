package record

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/record/code"
)

// jumpStubs finds the stubs of a section:
//
//	[bti c] adrp x16, slot; ldr x17, [x16, #:lo12:slot]; add x16, x16, #:lo12:slot; [autia1716] br x17
//
// The site is adrp. What follows needs x16, which a thunk does not keep; adrp is displaced and makes it behind the thunk.
func (m arm64Machine) jumpStubs(r *code.Region) (out []stub) {
	for at := 0; at+arm64.InstLen <= len(r.Data); at += arm64.InstLen {
		if binary.LittleEndian.Uint32(r.Data[at:]) != 0xd61f0220 { // br x17
			continue
		}
		v, ok := valueOf(r, at, 17, maxStub)
		if !ok || !v.slot || arm64.DecodeWord(binary.LittleEndian.Uint32(r.Data[v.from:])).Reg != 16 {
			continue
		}
		st := stub{r.Addr + uint64(v.from), r.Addr + uint64(v.from), arm64.InstLen, v.addr}
		if from := v.from - code.PadLen; from >= 0 && m.HasPad(r.Data[from:]) {
			st.start -= code.PadLen
		}
		out = append(out, st)
	}
	return out
}

// maxStub is how many instructions stand before a stub's jump, autia1716 being one.
const maxStub = 4
