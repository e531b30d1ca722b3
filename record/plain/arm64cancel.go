package plain

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch/arm64"
)

// cancellable: ldr w0, [x0]; cbnz w0 (musl) or tbnz w0, #bit (glibc); and then the arguments.
func (arm64Machine) cancellable(b []byte) (r routine, ok bool) {
	const head = 2 // instructions
	call := (head + len(arm64.MoveArguments)) * arm64.InstLen
	if len(b) < call+arm64.InstLen {
		return routine{}, false
	}
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(b[i*arm64.InstLen:]) }
	switch test := word(1); {
	case word(0) != 0xb9400000: // ldr w0, [x0]
		return routine{}, false
	case test&0xff00001f == 0x35000000: // cbnz w0
		r.cancelled = ^uint32(0)
	case test&0xff00001f == 0x37000000: // tbnz w0, #0 to #31
		r.cancelled = 1 << (test >> 19 & 31)
	default:
		return routine{}, false
	}
	for i, w := range arm64.MoveArguments {
		if word(head+i) != w {
			return routine{}, false
		}
	}
	r.call = uint64(call)
	return r, word(head+len(arm64.MoveArguments)) == arm64.WordSvc
}

// direct: bl.
func (arm64Machine) direct(b []byte, at uint64) (to uint64, n int, ok bool) {
	if at%arm64.InstLen != 0 {
		return 0, 0, false
	}
	in, err := arm64.Decode(b)
	if err != nil || in.Op != arm64.Call || in.PCRel != arm64.PCRelBranch {
		return 0, 0, false
	}
	return in.Target(at), arm64.InstLen, true
}

func (arm64Machine) reaches(f *Finder, i int, b []byte, at int) bool {
	w := newARM64Walk(f, i, b)
	return w.walk.walk() && w.seen[at]
}

func (arm64Machine) stackPointer() int { return dwarfSP }
