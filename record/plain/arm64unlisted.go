package plain

import (
	"encoding/binary"
	"math/bits"

	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/record/code"
)

// arm64Explorer reads code of AArch64 that nothing lists.
type arm64Explorer struct {
	f    *Finder
	text code.Text
}

func (arm64Machine) explorer(f *Finder) explorer {
	return &arm64Explorer{f, *f.text}
}

func (arm64Machine) padding(b []byte) bool { return arm64.IsNops(b) == len(b) || allZero(b) }

func (w *arm64Explorer) calls(lo, hi uint64) (out []uint64) {
	b := w.text.Range(lo, hi)
	for at := 0; at+arm64.InstLen <= len(b); at += arm64.InstLen {
		if in := arm64.DecodeWord(binary.LittleEndian.Uint32(b[at:])); in.Op == arm64.Call {
			out = append(out, in.Target(lo+uint64(at)))
		}
	}
	return out
}

func (w *arm64Explorer) explore(addr uint64, seen map[uint64]bool) (calls []uint64, ok bool) {
	if addr%arm64.InstLen != 0 {
		return nil, false
	}
	todo := []uint64{addr}
	for len(todo) > 0 {
		pc := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		var t arm64Table
		for !seen[pc] && w.f.unlisted(pc) {
			in, err := arm64.Decode(w.text.From(pc))
			if err != nil {
				return nil, false
			}
			seen[pc] = true
			switch {
			case in.PCRel == arm64.PCRelBranch && in.Op == arm64.Call:
				calls = append(calls, in.Target(pc))
			case in.PCRel == arm64.PCRelBranch:
				todo = append(todo, in.Target(pc))
			case in.Op == arm64.JmpInd:
				todo = append(todo, t.targets(w.f, in)...)
			}
			if t.step(in, pc); in.Op.EndsBlock() || in.Op == arm64.Brk && !debugger(in) {
				break
			}
			pc += arm64.InstLen
		}
	}
	return calls, true
}

// first: functions are aligned, or stand behind padding.
func (w *arm64Explorer) first(addr uint64) bool {
	if addr%functionAlign == 0 {
		return true
	}
	b := w.text.Range(addr-arm64.InstLen, addr)
	return addr%arm64.InstLen == 0 && len(b) == arm64.InstLen && arm64Machine{}.padding(b)
}

// arm64Table is what is known of a jump by a table: compilers load a distance from a table, of labels that are no more than
// so many, and add it, scaled, to an address.
//
//	cmp   w0, #7
//	b.hi  1f
//	adrp  x1, table
//	add   x1, x1, :lo12:table
//	ldrb  w0, [x1, w0, uxtw]
//	adr   x1, label
//	add   x0, x1, w0, sxtb #2
//	br    x0
type arm64Table struct {
	regs  [31]arm64Value
	limit uint64 // of the last comparison with a constant
}

// arm64Value is what is known of a register.
type arm64Value struct {
	kind  arm64ValueKind
	addr  uint64 // the address; that of the table
	base  uint64 // of a label: what the distance is added to
	size  uint8  // bytes of a distance
	sign  bool   // it is a signed number
	shift uint8
}

type arm64ValueKind uint8

const (
	valueUnknown arm64ValueKind = iota
	valueAddress
	valueDistance
	valueLabel
)

// step follows one instruction.
func (t *arm64Table) step(in arm64.Inst, pc uint64) {
	w := in.Word
	rd, rn, rm := w&31, w>>5&31, w>>16&31
	v := arm64Value{}
	at := func(r uint32) arm64Value {
		if r < 31 {
			return t.regs[r]
		}
		return arm64Value{}
	}
	switch {
	case in.Op == arm64.Call || in.Op == arm64.CallInd:
		for r := range lastScratch + 1 {
			t.regs[r] = arm64Value{}
		}
		return
	case in.Op == arm64.Adr || in.Op == arm64.Adrp:
		v = arm64Value{kind: valueAddress, addr: in.Target(pc)}
	case w&0x7f80001f == 0x7100001f: // cmp #n
		t.limit = uint64(w>>10&0xfff) << (w >> 22 & 1 * 12)
		return
	case w&0xff800000 == 0x91000000: // add #n
		if v = at(rn); v.kind == valueAddress {
			v.addr += uint64(w>>10&0xfff) << (w >> 22 & 1 * 12)
		} else {
			v = arm64Value{}
		}
	case w&0x3f200c00 == 0x38200800 && w>>22&3 != 0 && at(rn).kind == valueAddress: // a load with a register as the index
		v = arm64Value{kind: valueDistance, addr: at(rn).addr, size: 1 << (w >> 30), sign: w>>23&1 == 1}
	case w&0xffe00000 == 0x8b200000 && at(rn).kind == valueAddress && at(rm).kind == valueDistance: // add xd, xn, wm, sxtb #n
		v = at(rm)
		extend := w >> 13 & 7
		v.kind, v.base, v.shift = valueLabel, at(rn).addr, uint8(w>>10&7)
		v.sign = v.sign || extend >= 4
	case w&0xff200000 == 0x8b000000 && w>>22&3 == 0: // add xd, xn, xm, lsl #n
		base, dist := at(rn), at(rm)
		if base.kind == valueDistance && w>>10&63 == 0 {
			base, dist = dist, base
		}
		if base.kind == valueAddress && dist.kind == valueDistance {
			v = dist
			v.kind, v.base, v.shift = valueLabel, base.addr, uint8(w>>10&63)
		}
	case in.PCRel == arm64.PCRelBranch:
		return
	}
	for written := arm64.Writes(w) &^ (1 << 31); written != 0; written &= written - 1 {
		t.regs[bits.TrailingZeros32(written)] = arm64Value{}
	}
	if rd < 31 {
		t.regs[rd] = v
	}
}

// targets returns where br goes, if it is by a table.
func (t *arm64Table) targets(f *Finder, in arm64.Inst) (out []uint64) {
	v := arm64Value{}
	if in.Reg < 31 {
		v = t.regs[in.Reg]
	}
	if v.kind != valueLabel || v.size > 4 || v.shift > 2 || t.limit >= maxLabels {
		return nil
	}
	b, _ := f.file.From(v.addr)
	for i := uint64(0); i <= t.limit && len(b) >= int(v.size); i++ {
		var d uint64
		for k := range v.size {
			d |= uint64(b[k]) << (8 * k)
		}
		if free := 64 - 8*uint(v.size); v.sign {
			d = uint64(int64(d<<free) >> free)
		}
		to := v.base + d<<v.shift
		if to%arm64.InstLen != 0 || !f.unlisted(to) {
			break
		}
		out = append(out, to)
		b = b[v.size:]
	}
	return out
}
