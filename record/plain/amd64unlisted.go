package plain

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/record/code"
)

// amd64Explorer reads code of x86-64 that nothing lists.
type amd64Explorer struct {
	f    *Finder
	text code.Text
}

func (amd64Machine) explorer(f *Finder) explorer { return &amd64Explorer{f, *f.text} }

func (amd64Machine) padding(b []byte) bool { return amd64.IsNops(b) == len(b) || allZero(b) }

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 && c != 0xcc {
			return false
		}
	}
	return true
}

func (w *amd64Explorer) calls(lo, hi uint64) (out []uint64) {
	b := w.text.Range(lo, hi)
	for at := 0; at < len(b); {
		in, err := amd64.Decode(b[at:])
		if err != nil {
			at++
			continue
		}
		if in.Op == amd64.Call {
			out = append(out, in.Target(lo+uint64(at)))
		}
		at += in.Len
	}
	return out
}

func (w *amd64Explorer) explore(addr uint64, seen map[uint64]bool) (calls []uint64, ok bool) {
	todo := []uint64{addr}
	for len(todo) > 0 {
		pc := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for !seen[pc] && w.f.unlisted(pc) {
			in, err := amd64.Decode(w.text.From(pc))
			if err != nil {
				return nil, false
			}
			seen[pc] = true
			switch {
			case in.PCRel == amd64.PCRelBranch && in.Op == amd64.Call:
				calls = append(calls, in.Target(pc))
			case in.PCRel == amd64.PCRelBranch:
				todo = append(todo, in.Target(pc))
			case in.Op == amd64.JmpInd && w.f.fixed:
				todo = append(todo, w.table(in, w.text.Range(pc, pc+uint64(in.Len)))...)
			}
			if in.Op.EndsBlock() || in.Op == amd64.Int3 {
				break
			}
			pc += uint64(in.Len)
		}
	}
	return calls, true
}

// table returns where jmp *table(,%reg,8) goes: as far as the words of the table are addresses near by.
func (w *amd64Explorer) table(in amd64.Inst, raw []byte) (out []uint64) {
	if in.ModRM>>6 != 0 || in.ModRM&7 != 4 || len(raw) < 5 || raw[len(raw)-5]&7 != 5 {
		return nil
	}
	b, _ := w.f.file.From(uint64(binary.LittleEndian.Uint32(raw[len(raw)-4:])))
	for ; len(b) >= 8 && len(out) < maxLabels; b = b[8:] {
		to := binary.LittleEndian.Uint64(b)
		if w.f.marks.get(to)&pointed == 0 || !w.f.unlisted(to) {
			break
		}
		out = append(out, to)
	}
	return out
}

// maxLabels bounds how much of a table is read.
const maxLabels = 1024

// first: functions are aligned, or stand behind padding.
func (w *amd64Explorer) first(addr uint64) bool {
	if addr%functionAlign == 0 {
		return true
	}
	b := w.text.Range(addr-1, addr)
	return len(b) == 1 && (b[0] == 0x90 || b[0] == 0xcc)
}
