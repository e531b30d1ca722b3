package record

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch/arm64"
)

// The instructions that tell profiling functions.
const (
	wordMovLRX0 = 0xaa0003fe // mov x30, x0
	wordMovX0LR = 0xaa1e03e0 // mov x0, x30
	wordXpaclri = 0xd50320ff // xpaclri
)

// stripsArgument reports whether a function begins by taking the signature off its first argument, which only return
// addresses have. glibc's looks like this:
//
//	stp x29, x30, [sp, #-64]!; mov x1, x30; mov x30, x0; mov x29, sp; xpaclri
func stripsArgument(b []byte) bool {
	const begin = 12 // instructions
	moved := false
	for k := 0; k < begin && len(b) >= arm64.InstLen; k++ {
		w := binary.LittleEndian.Uint32(b)
		b = b[arm64.InstLen:]
		in := arm64.DecodeWord(w)
		switch {
		case w == wordMovLRX0:
			moved = true
		case w == wordXpaclri && moved:
			return true
		case in.PCRel == arm64.PCRelBranch || in.Op == arm64.CallInd || in.Op.EndsBlock():
			return false
		case arm64.Writes(w)&1 != 0 && !moved:
			return false
		}
	}
	return false
}

// isProfiler takes what behaves like a profiling function, or does nothing.
func (arm64Machine) isProfiler(b []byte) bool {
	for len(b) >= arm64.InstLen {
		in := arm64.DecodeWord(binary.LittleEndian.Uint32(b))
		if in.Op != arm64.Nop && in.Op != arm64.Bti {
			return in.Op == arm64.Ret || stripsArgument(b)
		}
		b = b[arm64.InstLen:]
	}
	return false
}

// profilersIn looks at programs that have profiling functions linked in and were stripped: what functions call first,
// with their own return address as the argument, and which treats it as one.
//
//	xpaclri; mov w19, w0; mov x0, x30; bl _mcount
//
// clang passes no argument, so nothing is found in what it made.
func (m arm64Machine) profilersIn(im *image, p *profiling) {
	const begin = 32 // instructions
	shapes := make(map[uint64]bool)
	for i := range im.funcs.list {
		pc := im.funcs.list[i].Addr
		b := im.code.Range(pc, im.funcs.extent(i, im.code))
		given := false // x0 is the return address
		for k := 0; k < begin && len(b) >= arm64.InstLen; k++ {
			w := binary.LittleEndian.Uint32(b)
			in := arm64.DecodeWord(w)
			if in.Op == arm64.Call && given {
				t := in.Target(pc)
				is, seen := shapes[t]
				if !seen {
					is = stripsArgument(im.code.From(t))
					shapes[t] = is
				}
				if is {
					p.targets[t], p.entries[t] = profMcount, profMcount
				}
			}
			if in.PCRel == arm64.PCRelBranch || in.Op == arm64.CallInd || in.Op.EndsBlock() {
				break
			}
			given = w == wordMovX0LR || given && arm64.Writes(w)&1 == 0
			b, pc = b[arm64.InstLen:], pc+arm64.InstLen
		}
	}
}
