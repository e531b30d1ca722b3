package patch

import (
	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/elfio/ehframe"
)

// callers: the description of a function that signs its return address stays as it
// is, and backtraces have the thunk's frame between that function and its caller.
func (arm64Machine) callers() ehframe.Rules {
	rules := arm64.Callers{Shadow: arm64.AnyShadow}
	return ehframe.Rules{
		CIE: func(c *ehframe.CIE) []byte {
			if !arm64Entry(c) {
				return nil
			}
			return rules.Rule()
		},
		FDE: func(d *ehframe.FDE) ([]byte, bool) {
			b, err := rules.Rows(d.Instructions, d.CIE.DataAlign)
			return b, err == nil
		},
	}
}

// arm64Entry reports whether the functions of a CIE begin as compilers' do.
func arm64Entry(c *ehframe.CIE) bool {
	return !c.Signal && arm64.StartsAtEntry(c.RetReg, c.CodeAlign, c.DataAlign, c.Instructions)
}

func (arm64Machine) reviser() ehframe.Reviser { return arm64Columns{} }

// arm64Columns finds return addresses by the column of the pc: see arch/arm64/column.go. Keys are distances from the CFA.
type arm64Columns struct{}

// Variant is the CIE of functions that save x30 at a distance from the CFA.
func (arm64Columns) Variant(c *ehframe.CIE, key int64) (uint64, []byte, bool) {
	if !arm64Entry(c) {
		return 0, nil, false
	}
	return arm64.PCColumn, arm64.Callers{Shadow: arm64.AnyShadow}.ColumnRule(key), true
}

// Lead: before it is saved, the return address is in x30.
func (arm64Columns) Lead() int64 { return arm64.InRegister }

// Revise finds the one distance from the CFA that x30 is saved at. Where it is not saved, the CFA must be the stack
// pointer, but in front of the first row in which it is.
func (arm64Columns) Revise(_ *ehframe.FDE, rows []ehframe.Row) (r ehframe.Revision, ok bool) {
	early := false // x30 is not saved, but there is a frame
	for i := range rows {
		row := &rows[i]
		atEntry := row.Reg == arm64.StackPointer && row.Off == 0
		switch {
		case row.Signed || row.Moved && !row.Saved:
			return r, false
		case row.Saved && r.Key == arm64.InRegister:
			if r.Key = row.Ret; early {
				r.Lead, r.Mark = row.At, true
			}
			fallthrough
		case row.Saved:
			if row.Ret != r.Key || row.Ret >= 0 || atEntry {
				return r, false
			}
		case atEntry:
		case r.Key != arm64.InRegister:
			return r, false
		default:
			early = true
		}
	}
	return r, true
}
