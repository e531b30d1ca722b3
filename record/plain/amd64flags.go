package plain

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch/amd64"
)

// Flags.
//
// Thunks change them, so no function may be traced that takes what its caller has left in flags, or leaves something
// there that its caller looks at. Compilers make them of others' parts, as LLVM's outliner does, of one another's, too. From a
// function's first instruction, and from each call's return address, instructions are followed to the first branch: flags that
// none has set before one reads them come from the other side, and perhaps from farther away (flagResults).

// flow follows flags along instructions without a branch.
type flow struct {
	need    amd64.Flags // what nothing has set yet
	counted bool        // %ecx holds a constant other than none: string instructions repeat
}

// step takes one instruction, and reports whether it reads what nothing has set. While need is not 0 the next one follows.
func (w *flow) step(in amd64.Inst, raw []byte) (reads bool) {
	r, kills := in.FlagUse(raw)
	if w.counted && in.Prefix&(amd64.PrefixRep|amd64.PrefixRepne) != 0 && comparesStrings(in) {
		kills = amd64.AllFlags
	}
	if r&w.need != 0 {
		w.need = 0
		return true
	}
	if w.need &^= kills; in.Op != amd64.Other && in.Op != amd64.Pop && in.Op != amd64.Push && in.Op != amd64.Nop {
		w.need = 0
	}
	w.counted = setsCount(in, raw) || w.counted && leavesRCX(in)
	return false
}

// live is for flags.
func (amd64Machine) live(e *entry) bool {
	const mostJumps = 8
	w := flow{need: amd64.AllFlags}
	text, pc, jumps := *e.f.text, e.at, 0
	for b := e.own(); len(b) > 0 && w.need != 0; {
		in, err := amd64.Decode(b)
		if err != nil {
			return false
		}
		if in.Op == amd64.Jmp && jumps < mostJumps {
			pc, jumps = in.Target(pc), jumps+1
			b = text.From(pc)
			continue
		}
		if w.step(in, b[:in.Len]) {
			return true
		}
		b, pc = b[in.Len:], pc+uint64(in.Len)
	}
	return false
}

// comparesStrings is for cmps and scas. gcc compares with short texts by them, inline.
func comparesStrings(in amd64.Inst) bool {
	return legacy(in) && (in.Opcode&^1 == 0xa6 || in.Opcode&^1 == 0xae)
}

// setsCount reports whether an instruction is mov $n,%ecx, and n is not 0.
func setsCount(in amd64.Inst, raw []byte) bool {
	return legacy(in) && in.Opcode == 0xb9 && in.REX&1 == 0 && in.ImmLen == 4 &&
		binary.LittleEndian.Uint32(raw[len(raw)-4:]) != 0
}

// leavesRCX reports whether an instruction certainly does not change rcx: those that compilers put between the two
// above.
func leavesRCX(in amd64.Inst) bool {
	reg, rm := in.ModRM>>3&7|in.REX<<1&8, in.ModRM&7|in.REX<<3&8
	switch {
	case in.Op == amd64.Push, in.Op == amd64.Nop:
		return true
	case !legacy(in):
		return false
	}
	switch in.Opcode {
	case 0x58, 0x59, 0x5a, 0x5b, 0x5c, 0x5d, 0x5e, 0x5f: // pop
		return in.Opcode != 0x59 || in.REX&1 != 0
	case 0xb8, 0xb9, 0xba, 0xbb, 0xbc, 0xbd, 0xbe, 0xbf: // mov $n
		return in.Opcode != 0xb9 || in.REX&1 != 0
	case 0x89, 0x31, 0x29: // mov, xor, sub
		return in.ModRM>>6 != 3 || rm != amd64.RCX
	case 0x8b, 0x8d: // mov, lea
		return reg != amd64.RCX
	case 0x38, 0x39, 0x3a, 0x3b, 0x84, 0x85: // cmp, test
		return true
	}
	return false
}

// legacy is for instructions of one opcode byte.
func legacy(in amd64.Inst) bool { return in.Enc == amd64.Legacy && in.Map == 0 }
