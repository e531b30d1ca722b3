package ehframe

import (
	"bytes"
	"fmt"

	"github.com/fentry-dev/fentry/elfio"
)

// Rows.
//
// Whoever moves code needs two things of an entry's table. Where the stack pointer is below the canonical frame address,
// CFA, tells which instructions touch the return address. And the rows of code that is copied elsewhere are those of the
// original, at the places where the copies of its instructions begin.
//
// So instructions are interpreted only as far as the CFA and the return address go, of every function of an image, and
// the others are passed on as they are.

// Row is how the frame of code is found, from an address up to that of the next row.
type Row struct {
	At    uint64 // distance from the first address of the FDE
	Reg   int    // DWARF number of the register that the CFA is relative to, or RegExpr
	Off   int64  // CFA minus that register
	Moved bool   // the return address is not where the CIE's instructions say
	Saved bool   // it is in memory, at a constant distance from the CFA
	Ret   int64  // that distance
	// Signed says, on AArch64, that the function has signed it (DW_CFA_AARCH64_negate_ra_state).
	Signed bool
}

// RegExpr is the Reg of a row whose CFA is an expression.
const RegExpr = -1

// rowAt is the row that a state has come to.
func rowAt(s *state[[1]Rule], at uint64) Row {
	ret, first := s.row.reg[0], s.first.reg[0]
	r := Row{At: at, Reg: RegExpr, Off: s.row.cfa.Off, Signed: s.row.signed}
	if s.row.cfa.Kind == RuleRegister {
		r.Reg = s.row.cfa.Reg
	}
	r.Moved = ret.Kind != first.Kind || ret.Reg != first.Reg || ret.Off != first.Off || !bytes.Equal(ret.Expr, first.Expr)
	if ret.Kind == RuleOffset {
		r.Saved, r.Ret = true, ret.Off
	}
	return r
}

// AppendRows appends the rows of an entry, by address; the first is that of its first address. It returns an error for
// instructions that it does not know, and for malformed ones.
func (d *FDE) AppendRows(dst []Row) ([]Row, error) {
	s, err := begin[[1]Rule](d.CIE, d.CIE.RetReg)
	if err != nil {
		return dst, err
	}
	at := uint64(0)
	for code := d.Instructions; len(code) > 0; {
		in, rest, ok := cut(code)
		if !ok {
			return dst, d.malformed(code)
		}
		if delta, moves := d.CIE.advance(in); moves {
			dst = append(dst, rowAt(&s, at))
			if at += delta; at > d.Size {
				return dst, elfio.FormatErrorf("FDE of .eh_frame", d.Off, "a row behind its %d bytes of code", d.Size)
			}
		} else if !s.step(in) {
			return dst, d.malformed(code)
		}
		code = rest
	}
	return append(dst, rowAt(&s, at)), nil
}

// AppendMoved appends the call frame instructions for a copy of the first bytes of an entry's code, up to distance end
// from its first address. place returns where the copy of what begins at a distance from the first address begins,
// counted from the first byte of the copy; false: nothing begins there. Places must not descend.
func (d *FDE) AppendMoved(dst []byte, end uint64, place func(at uint64) (uint64, bool)) ([]byte, error) {
	at, to := uint64(0), uint64(0)
	for code := d.Instructions; len(code) > 0; {
		in, rest, ok := cut(code)
		if !ok {
			return dst, d.malformed(code)
		}
		delta, moves := d.CIE.advance(in)
		switch {
		case moves:
			if at += delta; at > end {
				return dst, nil
			}
			next, ok := place(at)
			if !ok || next < to || (next-to)%max(d.CIE.CodeAlign, 1) != 0 {
				return dst, fmt.Errorf("%v: the row at %#x begins in the middle of an instruction", d, d.PC+at)
			}
			dst = appendAdvance(dst, (next-to)/max(d.CIE.CodeAlign, 1))
			to = next
		case in.op != cfaNop:
			dst = append(dst, in.raw...)
		}
		code = rest
	}
	return dst, nil
}

// appendAdvance appends what goes on by delta units of code. Copies are short, but entries can say otherwise.
func appendAdvance(dst []byte, delta uint64) []byte {
	for delta > 0 {
		n := min(delta, 0xffffffff)
		switch {
		case n <= 0x3f:
			dst = append(dst, cfaAdvance|byte(n))
		case n <= 0xff:
			dst = append(dst, cfaAdvance1, byte(n))
		default:
			dst = append(dst, cfaAdvance4, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
		}
		delta -= n
	}
	return dst
}
