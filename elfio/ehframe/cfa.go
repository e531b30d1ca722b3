package ehframe

import "github.com/fentry-dev/fentry/elfio"

// Call frame instructions.
//
// They describe a table: for every address of a range of code, how the caller's frame is found (DWARF 5, 6.4). Here they
// are cut up and interpreted; which columns of the table are kept is for who asks: of every function of a large image
// the return address's (rows.go), of a frame that is walked all (frame.go). What is not known is an error, never a
// guess.

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

// Columns is how many columns of a table are kept: those of the registers that a walk can need on x86-64 and AArch64.
// Vector registers lie behind, and are skipped.
const Columns = 64

// A RuleKind is how the value that a register had in the caller is found.
type RuleKind uint8

// Kinds of rules.
const (
	RuleNone      RuleKind = iota // nothing is said
	RuleUndefined                 // it cannot be found
	RuleSame                      // it has not changed
	RuleOffset                    // in memory, Off bytes from the CFA
	RuleValOffset                 // it is the CFA plus Off
	RuleRegister                  // it is register Reg plus Off (which only the CFA has)
	RuleExpr                      // in memory, where Expr says
	RuleValExpr                   // it is what Expr says
)

// A Rule is one column of a row.
type Rule struct {
	Kind RuleKind
	Reg  int
	Off  int64
	Expr []byte
}

// columns are those that are kept: that of the return address, or all.
type columns interface{ [1]Rule | [Columns]Rule }

// row is one of the table.
type row[C columns] struct {
	cfa    Rule // RuleRegister or RuleValExpr; RuleNone if nothing has said what it is
	reg    C
	signed bool // AArch64: the return address is signed (DW_CFA_AARCH64_negate_ra_state)
}

// state is where interpreting has come to.
type state[C columns] struct {
	cie        *CIE
	lo         uint64 // the first column that is kept
	row, first row[C] // first is the CIE's
	stack      []row[C]
}

// maxStates bounds what is remembered; compilers remember one row, for an epilogue in the middle.
const maxStates = 64

// begin interprets the instructions of a CIE. Kept are the columns from lo on.
func begin[C columns](c *CIE, lo uint64) (state[C], error) {
	s := state[C]{cie: c, lo: lo}
	for code := c.Instructions; len(code) > 0; {
		in, rest, ok := cut(code)
		if ok {
			_, moves := c.advance(in)
			ok = !moves && s.step(in)
		}
		if !ok {
			return s, elfio.FormatErrorf("CIE of .eh_frame", c.Off, "call frame instruction %#x", code[0])
		}
		code = rest
	}
	s.first = s.row
	return s, nil
}

// advance returns how far an instruction goes on, if it is one that does.
func (c *CIE) advance(in instruction) (uint64, bool) {
	switch in.op {
	case cfaAdvance, cfaAdvance1, cfaAdvance2, cfaAdvance4:
		return in.a * c.CodeAlign, true
	}
	return 0, false
}

func (d *FDE) malformed(code []byte) error {
	return elfio.FormatErrorf("FDE of .eh_frame", d.Off, "call frame instruction %#x", code[0])
}

// expr returns the expression that an instruction ends with.
func (in *instruction) expr(size uint64) []byte { return in.raw[uint64(len(in.raw))-size:] }

// step interprets an instruction other than one that advances; false: it makes no sense.
func (s *state[C]) step(in instruction) bool {
	data := uint64(s.cie.DataAlign)
	switch in.op {
	case cfaDefCFA:
		s.row.cfa = Rule{Kind: RuleRegister, Reg: int(in.a), Off: int64(in.b)}
	case cfaDefCFASf:
		s.row.cfa = Rule{Kind: RuleRegister, Reg: int(in.a), Off: int64(in.b * data)}
	case cfaDefReg:
		s.row.cfa.Kind, s.row.cfa.Reg = RuleRegister, int(in.a)
	case cfaDefOff:
		s.row.cfa.Off = int64(in.a)
	case cfaDefOffSf:
		s.row.cfa.Off = int64(in.a * data)
	case cfaDefExpr:
		s.row.cfa = Rule{Kind: RuleValExpr, Expr: in.expr(in.a)}
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
		s.row, s.stack = s.stack[n-1], s.stack[:n-1]
	case cfaNegateRA:
		s.row.signed = !s.row.signed
	default:
		if i := in.a - s.lo; i < uint64(len(s.row.reg)) {
			s.row.reg[i] = s.column(in, i, data)
		}
	}
	return true
}

// column is what an instruction says of the register in column lo + i.
func (s *state[C]) column(in instruction, i, data uint64) Rule {
	switch in.op {
	case cfaRestore, cfaRestoreExt:
		return s.first.reg[i]
	case cfaOffset, cfaOffsetExt, cfaOffsetSf:
		return Rule{Kind: RuleOffset, Off: int64(in.b * data)}
	case cfaGNUNegOff:
		return Rule{Kind: RuleOffset, Off: -int64(in.b * data)}
	case cfaValOffset, cfaValOffSf:
		return Rule{Kind: RuleValOffset, Off: int64(in.b * data)}
	case cfaUndefined:
		return Rule{Kind: RuleUndefined}
	case cfaSameValue:
		return Rule{Kind: RuleSame}
	case cfaRegister:
		return Rule{Kind: RuleRegister, Reg: int(in.b)}
	case cfaExpression:
		return Rule{Kind: RuleExpr, Expr: in.expr(in.b)}
	case cfaValExpr:
		return Rule{Kind: RuleValExpr, Expr: in.expr(in.b)}
	}
	return s.row.reg[i] // nop, the size of arguments
}
