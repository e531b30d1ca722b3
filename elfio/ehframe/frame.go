package ehframe

import "github.com/fentry-dev/fentry/elfio"

// Frames.
//
// Whoever walks a stack needs all that a row says: besides the CFA, where the caller's value of every register is
// (DWARF 5, 6.4.1). That is a rule a column. Expressions are kept as they are; [Eval] evaluates them, with the walker's
// registers and memory.

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

// A Frame is a whole row.
type Frame struct {
	CFA    Rule // RuleRegister or RuleValExpr; RuleNone if nothing has said what it is
	Reg    [Columns]Rule
	RetReg int  // column of the return address
	Signal bool // the frame was interrupted: its caller's pc is not a return address
	Signed bool // AArch64: the return address is signed
}

// frameState is a row while instructions are interpreted.
type frameState struct {
	cie     *CIE
	f, init Frame
	stack   []Frame
}

// FrameAt returns the row for an address of the entry's code.
func (d *FDE) FrameAt(pc uint64) (Frame, error) {
	s := frameState{cie: d.CIE}
	if d.CIE.RetReg >= Columns {
		return Frame{}, elfio.FormatErrorf("CIE of .eh_frame", d.CIE.Off, "return address in column %d", d.CIE.RetReg)
	}
	s.f.RetReg, s.f.Signal = int(d.CIE.RetReg), d.CIE.Signal
	if err := s.run(d.CIE.Instructions, 0, 0); err != nil {
		return Frame{}, err
	}
	s.init = s.f
	if err := s.run(d.Instructions, d.PC, pc); err != nil {
		return Frame{}, err
	}
	return s.f, nil
}

// run interprets instructions from address at on, up to the row for pc.
func (s *frameState) run(code []byte, at, pc uint64) error {
	for len(code) > 0 {
		in, rest, ok := cut(code)
		if !ok {
			return elfio.FormatErrorf("CIE of .eh_frame", s.cie.Off, "call frame instruction %#x of it or an FDE", code[0])
		}
		switch in.op {
		case cfaAdvance, cfaAdvance1, cfaAdvance2, cfaAdvance4:
			if at += in.a * s.cie.CodeAlign; at > pc {
				return nil
			}
		default:
			if !s.step(in) {
				return elfio.FormatErrorf("CIE of .eh_frame", s.cie.Off, "call frame instruction %#x makes no sense", code[0])
			}
		}
		code = rest
	}
	return nil
}

// expr returns the expression that an instruction ends with.
func (in *instruction) expr(size uint64) []byte { return in.raw[uint64(len(in.raw))-size:] }

// step interprets an instruction other than one that advances; false: it makes no sense.
func (s *frameState) step(in instruction) bool {
	data := uint64(s.cie.DataAlign)
	switch in.op {
	case cfaDefCFA:
		s.f.CFA = Rule{Kind: RuleRegister, Reg: int(in.a), Off: int64(in.b)}
	case cfaDefCFASf:
		s.f.CFA = Rule{Kind: RuleRegister, Reg: int(in.a), Off: int64(in.b * data)}
	case cfaDefReg:
		s.f.CFA.Kind, s.f.CFA.Reg = RuleRegister, int(in.a)
	case cfaDefOff:
		s.f.CFA.Off = int64(in.a)
	case cfaDefOffSf:
		s.f.CFA.Off = int64(in.a * data)
	case cfaDefExpr:
		s.f.CFA = Rule{Kind: RuleValExpr, Expr: in.expr(in.a)}
	case cfaRemember:
		if len(s.stack) == maxStates {
			return false
		}
		s.stack = append(s.stack, s.f)
	case cfaRestoreAll:
		n := len(s.stack)
		if n == 0 {
			return false
		}
		s.f, s.stack = s.stack[n-1], s.stack[:n-1]
	case cfaNegateRA:
		s.f.Signed = !s.f.Signed
	default:
		if in.a < Columns {
			s.f.Reg[in.a] = s.column(in, data)
		}
	}
	return true
}

// column is what an instruction says of one register.
func (s *frameState) column(in instruction, data uint64) Rule {
	old := s.f.Reg[in.a]
	switch in.op {
	case cfaRestore, cfaRestoreExt:
		return s.init.Reg[in.a]
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
	return old // nop, the size of arguments
}
