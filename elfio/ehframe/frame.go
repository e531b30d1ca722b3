package ehframe

import "github.com/fentry-dev/fentry/elfio"

// Frames.
//
// Whoever walks a stack needs all that a row says: besides the CFA, where the caller's value of every register is
// (DWARF 5, 6.4.1). That is a rule a column. Expressions are kept as they are; [Eval] evaluates them, with the walker's
// registers and memory.

// A Frame is a whole row.
type Frame struct {
	CFA    Rule // RuleRegister or RuleValExpr; RuleNone if nothing has said what it is
	Reg    [Columns]Rule
	RetReg int  // column of the return address
	Signal bool // the frame was interrupted: its caller's pc is not a return address
	Signed bool // AArch64: the return address is signed
}

// FrameAt returns the row for an address of the entry's code.
func (d *FDE) FrameAt(pc uint64) (Frame, error) {
	if d.CIE.RetReg >= Columns {
		return Frame{}, elfio.FormatErrorf("CIE of .eh_frame", d.CIE.Off, "return address in column %d", d.CIE.RetReg)
	}
	s, err := begin[[Columns]Rule](d.CIE, 0)
	if err != nil {
		return Frame{}, err
	}
	at := d.PC
	for code := d.Instructions; len(code) > 0; {
		in, rest, ok := cut(code)
		if !ok {
			return Frame{}, d.malformed(code)
		}
		if delta, moves := d.CIE.advance(in); moves {
			if at += delta; at > pc {
				break
			}
		} else if !s.step(in) {
			return Frame{}, d.malformed(code)
		}
		code = rest
	}
	return Frame{s.row.cfa, s.row.reg, int(d.CIE.RetReg), d.CIE.Signal, s.row.signed}, nil
}
