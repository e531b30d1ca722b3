//go:build linux

package stacks

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fentry-dev/fentry/elfio/ehframe"
)

// Walking.
//
// From a frame's registers, as far as they are known, to its caller's, by the row of the table for its address. That of
// a caller is the row of the byte before the return address, as a call can be the last instruction of its function; a
// frame that a signal has interrupted is looked up by its own address. A register that a call may change is not known
// in the caller, whatever tables leave unsaid. Stacks grow downwards, so a caller's stack pointer is never below its
// callee's, and within the same mapping, unless a signal lies between the two.

// Ends of a stack. That of an unknown register is EndUndefined and its name.
const (
	EndOutermost = "outermost"  // the thread's first frame
	EndUndefined = "undefined:" // a register is needed that is not known
	EndNoTable   = "no-table"   // there are no unwind tables for this code
	EndBadCFA    = "bad-cfa"    // tables say where the caller's frame is, but it cannot be there
	EndDepth     = "depth"      // there are more frames than MaxFrames
	EndGone      = "gone"       // the stack was not there any more, or more of it than was read of a running thread
)

// Register is the DWARF number of the register that an end of EndUndefined names, 0 if it names none.
func Register(end string) int {
	name, ok := strings.CutPrefix(end, EndUndefined)
	for reg := range ehframe.Columns {
		if ok && host.name(reg) == name {
			return reg
		}
	}
	return 0
}

// MaxFrames is how many frames of a stack are followed.
const MaxFrames = 1 << 14

// A Frame is a call that is under way.
type Frame struct {
	PC uint64
	// Exact: PC is that of the next instruction, in the innermost frame and in one that a signal has interrupted. Else it
	// is a return address, and the call is before it.
	Exact bool
	// Trampoline: this is where a signal's handler returns to. The next frame is the one that the signal has interrupted.
	Trampoline bool
}

// At is an address in the instruction that the frame is at.
func (f Frame) At() uint64 {
	if f.Exact {
		return f.PC
	}
	return f.PC - 1
}

// unknownError is that of a register that is not known.
type unknownError struct{ name string }

func (e *unknownError) Error() string { return e.name + " is not known" }

// errGone is that of memory that a stopped thread's snapshot does not have.
var errGone = errors.New("not read while the thread was stopped")

// space is what is walked through.
type space interface {
	// row returns what the tables say of an address; nil: nothing.
	row(pc uint64) *ehframe.Frame
	// read reads up to 8 bytes of stacks, and whatever expressions refer to.
	read(addr uint64, size int) (uint64, error)
	// near reports whether two addresses are in one mapping.
	near(a, b uint64) bool
}

// A walker is a walk under way. It is an [ehframe.Machine].
type walker struct {
	m *machine
	s space
	r registers
}

func (w *walker) Register(n int) (uint64, error) {
	if n == w.m.pc { // as tables of linkers' stubs have it
		return w.r.pc, nil
	}
	if !w.r.has(n) {
		return 0, &unknownError{w.m.name(n)}
	}
	return w.r.value[n], nil
}

func (w *walker) Read(addr uint64, size int) (uint64, error) { return w.s.read(addr, size) }

// walk follows a stack to its end.
func (w *walker) walk() (frames []Frame, end string) {
	exact := true
	for len(frames) < MaxFrames {
		f := Frame{PC: w.r.pc, Exact: exact}
		frames = append(frames, f)
		row := w.s.row(f.At())
		if row == nil {
			return frames, EndNoTable
		}
		if end := w.up(row); end != "" {
			return frames, end
		}
		exact = row.Signal
		frames[len(frames)-1].Trampoline = row.Signal
	}
	return frames, EndDepth
}

// why is the end that an error makes.
func why(err error) string {
	var unknown *unknownError
	switch {
	case errors.As(err, &unknown):
		return EndUndefined + unknown.name
	case errors.Is(err, errGone):
		return EndGone
	case errors.Is(err, ehframe.ErrExpression):
		return EndNoTable
	}
	return EndBadCFA
}

// up goes on to the caller. It returns why it did not.
func (w *walker) up(row *ehframe.Frame) string {
	if row.Reg[row.RetReg].Kind == ehframe.RuleUndefined {
		return EndOutermost
	}
	cfa, err := w.cfa(row)
	if err != nil {
		return why(err)
	}
	sp := w.r.value[w.m.sp]
	if !row.Signal && (cfa < sp || !w.s.near(sp, cfa-1)) {
		return EndBadCFA
	}
	next := registers{known: w.r.known, value: w.r.value}
	if !row.Signal {
		next.known &^= w.m.volatile
	}
	for col := range row.Reg {
		rule := &row.Reg[col]
		if rule.Kind == ehframe.RuleNone || rule.Kind == ehframe.RuleSame || col == row.RetReg {
			continue
		}
		next.known &^= 1 << col
		if v, err := w.value(rule, col, cfa); err == nil {
			next.set(col, v)
		} else if col == w.m.sp {
			return why(err)
		}
	}
	if row.Reg[w.m.sp].Kind == ehframe.RuleNone {
		next.set(w.m.sp, cfa)
	}
	if next.pc, err = w.value(&row.Reg[row.RetReg], row.RetReg, cfa); err != nil {
		return why(err)
	}
	if row.Signed {
		next.pc &= w.m.signed
	}
	switch caller := next.value[w.m.sp]; {
	case next.pc == 0:
		return EndOutermost
	case !row.Signal && (caller < sp || caller == sp && next.pc == w.r.pc):
		return EndBadCFA
	}
	w.r = next
	return ""
}

// cfa is the canonical frame address.
func (w *walker) cfa(row *ehframe.Frame) (uint64, error) {
	switch row.CFA.Kind {
	case ehframe.RuleRegister:
		v, err := w.Register(row.CFA.Reg)
		return v + uint64(row.CFA.Off), err
	case ehframe.RuleValExpr:
		return ehframe.Eval(row.CFA.Expr, w, false, 0)
	}
	return 0, fmt.Errorf("%w: no CFA", ehframe.ErrExpression)
}

// value is what a register had in the caller.
func (w *walker) value(rule *ehframe.Rule, col int, cfa uint64) (uint64, error) {
	at := cfa + uint64(rule.Off)
	switch rule.Kind {
	case ehframe.RuleOffset:
		return w.Read(at, 8)
	case ehframe.RuleValOffset:
		return at, nil
	case ehframe.RuleRegister:
		return w.Register(rule.Reg)
	case ehframe.RuleExpr:
		at, err := ehframe.Eval(rule.Expr, w, true, cfa)
		if err != nil {
			return 0, err
		}
		return w.Read(at, 8)
	case ehframe.RuleValExpr:
		return ehframe.Eval(rule.Expr, w, true, cfa)
	case ehframe.RuleUndefined:
		return 0, &unknownError{w.m.name(col)}
	}
	return w.Register(col)
}
