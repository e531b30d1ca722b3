package ehframe

import (
	"fmt"

	"github.com/fentry-dev/fentry/elfio"
)

// Rows.
//
// Call frame instructions describe a table: for every address of a range of code, how the caller's frame is found
// (DWARF 5, 6.4). Whoever moves code needs two things of it. Where the stack pointer is below the canonical frame
// address, CFA, tells which instructions touch the return address. And the rows of code that is copied elsewhere are
// those of the original, at the places where the copies of its instructions begin.
//
// So instructions are cut up here, and interpreted only as far as the CFA and the return address go; expressions and
// the registers that a function saves are passed on as they are. What is not known is an error, never a guess.

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

// Call frame instructions (DWARF 5, 7.24; the last three are those of GNU and of the LSB).
const (
	cfaAdvance    = 0x40 // | delta
	cfaOffset     = 0x80 // | register
	cfaRestore    = 0xc0 // | register
	cfaNop        = 0x00
	cfaSetLoc     = 0x01
	cfaAdvance1   = 0x02
	cfaAdvance2   = 0x03
	cfaAdvance4   = 0x04
	cfaOffsetExt  = 0x05
	cfaRestoreExt = 0x06
	cfaUndefined  = 0x07
	cfaSameValue  = 0x08
	cfaRegister   = 0x09
	cfaRemember   = 0x0a
	cfaRestoreAll = 0x0b
	cfaDefCFA     = 0x0c
	cfaDefReg     = 0x0d
	cfaDefOff     = 0x0e
	cfaDefExpr    = 0x0f
	cfaExpression = 0x10
	cfaOffsetSf   = 0x11
	cfaDefCFASf   = 0x12
	cfaDefOffSf   = 0x13
	cfaValOffset  = 0x14
	cfaValOffSf   = 0x15
	cfaValExpr    = 0x16
	cfaGNUArgs    = 0x2e
	cfaGNUNegOff  = 0x2f
	cfaNegateRA   = 0x2d // AArch64: the return address is signed from here on, or no longer
)

// instruction is one call frame instruction.
type instruction struct {
	op   byte   // without the operand in its low bits
	a, b uint64 // operands, as they are stored; signed ones are sign-extended. Of an expression only its length counts.
	raw  []byte
}

// cut takes the first instruction off code; false: it is malformed, or unknown.
func cut(code []byte) (in instruction, rest []byte, ok bool) {
	d := pointerReader{b: code[1:]}
	in.op = code[0]
	if primary := in.op & 0xc0; primary != 0 {
		in.a, in.op = uint64(in.op&0x3f), primary
		if primary == cfaOffset {
			in.b = d.uleb()
		}
	} else {
		switch in.op {
		case cfaNop, cfaRemember, cfaRestoreAll, cfaNegateRA:
		case cfaAdvance1, cfaAdvance2, cfaAdvance4:
			for i := range 1 << (in.op - cfaAdvance1) {
				in.a |= uint64(d.u8()) << (8 * i)
			}
		case cfaOffsetExt, cfaRegister, cfaDefCFA, cfaValOffset, cfaGNUNegOff:
			in.a, in.b = d.uleb(), d.uleb()
		case cfaOffsetSf, cfaDefCFASf, cfaValOffSf:
			in.a, in.b = d.uleb(), uint64(d.sleb())
		case cfaRestoreExt, cfaUndefined, cfaSameValue, cfaDefReg, cfaDefOff, cfaGNUArgs:
			in.a = d.uleb()
		case cfaDefOffSf:
			in.a = uint64(d.sleb())
		case cfaDefExpr:
			in.a = d.uleb()
			d.skip(in.a)
		case cfaExpression, cfaValExpr:
			in.a, in.b = d.uleb(), d.uleb()
			d.skip(in.b)
		default:
			return in, nil, false
		}
	}
	if d.bad {
		return in, nil, false
	}
	in.raw = code[: len(code)-len(d.b) : len(code)-len(d.b)]
	return in, d.b, true
}

// state is a row while instructions are interpreted.
type state struct {
	cie   *CIE
	row   Row
	first Row // of the CIE
	stack []Row
}

// maxStates bounds what is remembered; compilers remember one row, for an epilogue in the middle.
const maxStates = 64

// step interprets an instruction other than one that advances; false: it makes no sense.
func (s *state) step(in instruction) bool {
	data := uint64(s.cie.DataAlign)
	switch in.op {
	case cfaDefCFA:
		s.row.Reg, s.row.Off = int(in.a), int64(in.b)
	case cfaDefCFASf:
		s.row.Reg, s.row.Off = int(in.a), int64(in.b*data)
	case cfaDefReg:
		s.row.Reg = int(in.a)
	case cfaDefOff:
		s.row.Off = int64(in.a)
	case cfaDefOffSf:
		s.row.Off = int64(in.a * data)
	case cfaDefExpr:
		s.row.Reg, s.row.Off = RegExpr, 0
	case cfaRemember:
		if len(s.stack) == maxStates {
			return false
		}
		s.stack = append(s.stack, s.row)
	case cfaRestoreAll:
		n := len(s.stack)
		if n == 0 {
			return false
		}
		at := s.row.At
		s.row, s.stack = s.stack[n-1], s.stack[:n-1]
		s.row.At = at
	case cfaRestore, cfaRestoreExt:
		if in.a == s.cie.RetReg {
			s.row.Moved, s.row.Saved, s.row.Ret = false, s.first.Saved, s.first.Ret
		}
	case cfaOffset, cfaOffsetExt, cfaOffsetSf:
		if in.a == s.cie.RetReg {
			s.row.Moved, s.row.Saved, s.row.Ret = true, true, int64(in.b*data)
		}
	case cfaUndefined, cfaSameValue, cfaRegister, cfaExpression, cfaValOffset, cfaValOffSf, cfaValExpr, cfaGNUNegOff:
		if in.a == s.cie.RetReg {
			s.row.Moved, s.row.Saved, s.row.Ret = true, false, 0
		}
	case cfaNegateRA:
		s.row.Signed = !s.row.Signed
	}
	return true
}

// advance returns how far an instruction goes on, if it is one that does.
func (s *state) advance(in instruction) (uint64, bool) {
	switch in.op {
	case cfaAdvance, cfaAdvance1, cfaAdvance2, cfaAdvance4:
		return in.a * s.cie.CodeAlign, true
	}
	return 0, false
}

// start interprets the instructions of a CIE.
func start(c *CIE) (state, error) {
	s := state{cie: c, row: Row{Reg: RegExpr}}
	for code := c.Instructions; len(code) > 0; {
		in, rest, ok := cut(code)
		if ok {
			if _, moves := s.advance(in); moves {
				ok = false
			}
		}
		if !ok || !s.step(in) {
			return s, elfio.FormatErrorf("CIE of .eh_frame", c.Off, "call frame instruction %#x", code[0])
		}
		code = rest
	}
	s.row.Moved = false // what the CIE says is where it is
	s.first = s.row
	return s, nil
}

// AppendRows appends the rows of an entry, by address; the first is that of its first address. It returns an error for
// instructions that it does not know, and for malformed ones.
func (d *FDE) AppendRows(dst []Row) ([]Row, error) {
	s, err := start(d.CIE)
	if err != nil {
		return dst, err
	}
	for code := d.Instructions; len(code) > 0; {
		in, rest, ok := cut(code)
		if !ok {
			return dst, d.malformed(code)
		}
		if delta, moves := s.advance(in); moves {
			dst = append(dst, s.row)
			if s.row.At += delta; s.row.At > d.Size {
				return dst, elfio.FormatErrorf("FDE of .eh_frame", d.Off, "a row behind its %d bytes of code", d.Size)
			}
		} else if !s.step(in) {
			return dst, d.malformed(code)
		}
		code = rest
	}
	return append(dst, s.row), nil
}

func (d *FDE) malformed(code []byte) error {
	return elfio.FormatErrorf("FDE of .eh_frame", d.Off, "call frame instruction %#x", code[0])
}

// AppendMoved appends the call frame instructions for a copy of the first bytes of an entry's code, up to distance end
// from its first address. place returns where the copy of what begins at a distance from the first address begins,
// counted from the first byte of the copy; false: nothing begins there. Places must not descend.
func (d *FDE) AppendMoved(dst []byte, end uint64, place func(at uint64) (uint64, bool)) ([]byte, error) {
	s := state{cie: d.CIE}
	at, to := uint64(0), uint64(0)
	for code := d.Instructions; len(code) > 0; {
		in, rest, ok := cut(code)
		if !ok {
			return dst, d.malformed(code)
		}
		delta, moves := s.advance(in)
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
