package ehframe

import "bytes"

// Runs.
//
// Short pieces of code that lie one behind another, each with a few rows of its own, need an entry each: 24 bytes and 8
// of the search table, several times what their rows take. One entry can have the rows of many. Each piece begins with
// the CIE's row again, which DW_CFA_restore_state brings back where the piece before has changed it, and a piece
// without rows takes no byte. The price is paid by unwinders, which read an entry from its beginning: that is why a run
// is bounded. Pieces whose instructions keep more than a row does (another remembered state, the size of arguments, a
// signed return address) are never joined, because not all unwinders bring that back.

// MaxRun is how many pieces a [Run] has at most.
const MaxRun = 64

// A Run is the entry of contiguous pieces of code.
type Run struct {
	FDE            // Size is 0 before the first piece; Instructions are valid until the next one
	pieces  int    // how many there are
	alone   bool   // no other piece can be joined
	at      uint64 // up to where the instructions have gone on, from PC
	changed bool   // and that the last piece has left a row that is not the CIE's
	code    []byte
}

// Add adds the piece of size bytes at pc, whose call frame instructions are code, for FDEs of a CIE. It returns false if
// the piece needs another run; to an empty one every piece can be added.
func (r *Run) Add(c *CIE, pc, size uint64, code []byte) bool {
	reach, joins := r.reach(c, code)
	if r.Size == 0 {
		r.FDE = FDE{PC: pc, CIE: c}
	} else if r.alone || !joins || r.pieces == MaxRun || c != r.CIE || pc != r.PC+r.Size {
		return false
	}
	start := r.Size
	if r.changed || len(code) > 0 {
		unit := max(c.CodeAlign, 1)
		if (start-r.at)%unit != 0 || start < r.at {
			return false
		}
		r.code = appendAdvance(r.code, (start-r.at)/unit)
		r.at = start
	}
	if r.changed {
		r.code = append(r.code, cfaRestoreAll)
	}
	if r.changed = len(code) > 0; r.changed {
		if joins {
			r.code = append(r.code, cfaRemember)
		}
		r.code = append(r.code, code...)
		r.at += reach
	}
	r.pieces++
	r.alone = !joins
	r.Size += size
	r.Instructions = r.code
	return true
}

// Reset makes the run empty.
func (r *Run) Reset() { *r = Run{code: r.code[:0]} }

// reach returns how far the instructions of a piece go on, and whether it can be joined with others.
func (r *Run) reach(c *CIE, code []byte) (n uint64, joins bool) {
	for len(code) > 0 {
		in, rest, ok := cut(code)
		if !ok {
			return n, false
		}
		switch in.op {
		case cfaRemember, cfaRestoreAll, cfaGNUArgs, cfaNegateRA:
			return n, false
		}
		delta, _ := c.advance(in)
		n += delta
		code = rest
	}
	return n, true
}

// AppendUnchanged appends call frame instructions without those that say where in the frame a register is saved that
// still has the value, which is one of unchanged, by their DWARF numbers: code that only saves registers needs none of them.
// dst may be what is in front of code.
func AppendUnchanged(dst, code []byte, unchanged uint64) []byte {
	for len(code) > 0 {
		in, rest, ok := cut(code)
		if !ok {
			return append(dst, code...)
		}
		switch in.op {
		case cfaOffset, cfaOffsetExt, cfaOffsetSf:
			if unchanged>>in.a&1 != 0 {
				code = rest
				continue
			}
		}
		dst, code = append(dst, in.raw...), rest
	}
	return dst
}

// Plainest returns, for each CIE of the table, one by which its FDEs can be described as well if they have no
// language-specific data: it says the same of frames, and names no personality routine if any such CIE names none.
func (t *Table) Plainest() map[*CIE]*CIE {
	out := make(map[*CIE]*CIE, len(t.cies))
	for i := range t.cies {
		c := t.cies[i].cie
		best := c
		for k := range t.cies {
			if o := t.cies[k].cie; best.personality != 0 && o.personality == 0 && o.fdeEnc == c.fdeEnc && sameFrames(o, c) {
				best = o
			}
		}
		out[c] = best
	}
	return out
}

// sameFrames reports whether two CIEs say the same of frames.
func sameFrames(a, b *CIE) bool {
	rows := func(c *CIE) []byte { return bytes.TrimRight(c.Instructions, "\x00") }
	letters := func(c *CIE) string {
		var out []byte
		for _, ch := range []byte(c.Augmentation) {
			if ch != 'P' && ch != 'L' {
				out = append(out, ch)
			}
		}
		return string(out)
	}
	return a.CodeAlign == b.CodeAlign && a.DataAlign == b.DataAlign && a.RetReg == b.RetReg && a.Signal == b.Signal &&
		letters(a) == letters(b) && bytes.Equal(rows(a), rows(b))
}
