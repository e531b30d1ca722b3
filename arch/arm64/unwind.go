package arm64

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Callers makes unwinders see a traced function's real caller. While a function is traced, its return address is that
// of its thunk, in x30 or wherever the function saved it. Its frame description says where, and Callers changes that
// rule: if the address is a thunk's, the caller's is in the shadow.
//
// So two things change in a copy of .eh_frame: Rule is appended to the initial instructions of the CIEs for which
// StartsAtEntry, and the instructions of the FDEs that refer to them are replaced by the result of Rows. If Rows
// fails, the FDE must stay as it is and refer to an unchanged CIE: backtraces are then right but show the thunk's
// frame between the function and its caller.
//
// The rule reads the code at the return address. It does so only for addresses that could be a thunk's, 4 bytes
// after a multiple of 16, so that it reads within the page of the call and leaves most values alone that are not
// addresses.
//
// Functions that sign their return address (DW_CFA_AARCH64_negate_ra_state) are refused. The address they save is
// signed, the one in the shadow is not, so a rule for register 34, RA_SIGN_STATE, would have to say which it is; but
// libgcc before version 13 crashes on any rule for that register. Nor could a rule strip the signature before it
// reads: the signature's width depends on the kernel's address space.
//
// Only for little-endian programs.
type Callers struct {
	Shadow Shadow
}

// StartsAtEntry reports whether a CIE with these fields and initial instructions is the one that compilers use for
// functions: at the first instruction the CFA is sp and the return address is in x30. Others, such as that of _start,
// which has no caller, must stay as they are.
func StartsAtEntry(retReg, codeAlign uint64, dataAlign int64, instructions []byte) bool {
	if retReg != regLR || len(instructions) < 3 || codeAlign == 0 || dataAlign >= 0 {
		return false
	}
	for i, b := range instructions {
		if i < 3 && b != shown[i] || i >= 3 && b != 0 { // DW_CFA_nop
			return false
		}
	}
	return true
}

// CallerRule returns the call frame instructions that belong at the end of a CIE's
// initial instructions.
func CallerRule(s Shadow) []byte { return Callers{s}.Rule() }

// Rule returns the call frame instructions that belong at the end of a CIE's
// initial instructions: the return address is in x30.
func (c Callers) Rule() []byte { return c.rule(nil, lrState{place: inRegister, reg: regLR}) }

// Where a function's return address is.
type lrPlace uint8

const (
	inRegister lrPlace = iota
	inFrame
	elsewhere // as the description says, which is kept
)

type lrState struct {
	place lrPlace
	reg   byte  // inRegister
	off   int64 // inFrame, from the CFA
}

// Errors of Rows: the FDE stays as it is.
var (
	// ErrSigned: the function signs its return address.
	ErrSigned = errors.New("arm64: the return address is signed")
	// ErrRows: unknown call frame instructions.
	ErrRows = errors.New("arm64: unknown call frame instruction")
)

// Rows returns the instructions of an FDE with the changed rules. The FDE's CIE must have Rule and the given data
// alignment. Errors wrap ErrSigned or ErrRows, or say what is wrong with the instructions and at which byte.
func (c Callers) Rows(instructions []byte, dataAlign int64) ([]byte, error) {
	r := rowReader{b: instructions}
	out := make([]byte, 0, 2*len(instructions)+256)
	for r.at < len(r.b) && r.err == nil {
		start := r.at
		op := r.u8()
		reg, st := int64(op&0x3f), lrState{place: elsewhere}
		switch op & 0xc0 {
		case dwAdvance:
			reg = -1
		case dwOffset:
			st = lrState{place: inFrame, off: r.uleb() * dataAlign}
		case dwRestore:
			// Written out, although the CIE says the same: libgcc takes it for no rule.
			st = lrState{place: inRegister, reg: regLR}
		default:
			reg = -1
			switch op {
			case 0: // nop
			case dwAdvance1:
				r.skip(1)
			case dwAdvance2:
				r.skip(2)
			case dwAdvance4:
				r.skip(4)
			case dwDefCFAReg, dwDefCFAOffset, dwDefCFAOffSf, dwArgsSize:
				r.uleb()
			case dwDefCFA, dwDefCFASf:
				r.uleb()
				r.uleb()
			case dwDefCFAExpr:
				r.skip(int(r.uleb()))
			case dwOffsetExt:
				reg = r.uleb()
				st = lrState{place: inFrame, off: r.uleb() * dataAlign}
			case dwOffsetExtSf:
				reg = r.uleb()
				st = lrState{place: inFrame, off: r.sleb() * dataAlign}
			case dwRestoreExt, dwSameValue:
				reg = r.uleb()
				st = lrState{place: inRegister, reg: regLR}
			case dwRegister:
				reg = r.uleb()
				if from := r.uleb(); from <= regSP {
					st = lrState{place: inRegister, reg: byte(from)}
				}
			case dwUndefined:
				reg = r.uleb()
			case dwExpression, dwValExpr:
				reg = r.uleb()
				r.skip(int(r.uleb()))
			case dwValOffset, dwValOffsetSf:
				reg = r.uleb()
				r.uleb()
			case dwRemember, dwRestoreState:
			case dwNegateRA, dwNegateRAPC:
				return nil, fmt.Errorf("byte %#x: %w", start, ErrSigned)
			default:
				return nil, fmt.Errorf("byte %#x: %w: %#x", start, ErrRows, op)
			}
		}
		if r.err != nil {
			break
		}
		if reg == regRAState {
			return nil, fmt.Errorf("byte %#x: %w", start, ErrSigned)
		}
		if reg != regLR || st.place == elsewhere {
			out = append(out, r.b[start:r.at]...)
			continue
		}
		out = c.rule(out, st)
	}
	if r.err != nil {
		return nil, fmt.Errorf("call frame instructions: byte %#x: %w", r.at, r.err)
	}
	return out, nil
}

// rule appends the rule for a return address that is at st: if it is a thunk's, it
// is the one in the shadow.
func (c Callers) rule(b []byte, st lrState) []byte {
	// The CFA is on the stack; on top of it comes the return address, below which is where it is saved, if it is.
	var e []byte
	saved := st.place == inFrame
	switch {
	case !saved:
		e = append(e, opBreg0+st.reg, 0)
	case st.off <= 0:
		e = append(e, opDup, opConstu)
		e = binary.AppendUvarint(e, uint64(-st.off))
		e = append(e, opMinus, opDup, opDeref)
	default:
		e = append(e, opDup, opPlusUconst)
		e = binary.AppendUvarint(e, uint64(st.off))
		e = append(e, opDup, opDeref)
	}
	then := []byte{opDrop}
	if saved {
		then = append(then, opDrop)
	}
	then = append(append(then, opLit0+8, opMinus), c.Shadow.expr()...)
	if saved {
		then = append(then, opDup) // for the drop below
	} else {
		then = append(then, opDeref)
	}
	e = appendThunkTest(e, then)
	// Where it is saved, the rule says where, as compilers do: libgcc aborts when it is linked into the program and its
	// own functions have rules that give values.
	op := byte(dwValExpr)
	if saved {
		op, e = dwExpression, append(e, opDrop)
	}
	b = append(b, op, regLR)
	b = binary.AppendUvarint(b, uint64(len(e)))
	return append(b, e...)
}

// A rowReader reads call frame instructions.
type rowReader struct {
	b   []byte
	at  int
	err error
}

var errShort = errors.New("ends too early")

func (r *rowReader) skip(n int) {
	if n < 0 || n > len(r.b)-r.at {
		r.err, n = errShort, 0
	}
	r.at += n
}

func (r *rowReader) u8() byte {
	if r.at >= len(r.b) {
		r.err = errShort
		return 0
	}
	r.at++
	return r.b[r.at-1]
}

// uleb reads a number below 2^31: offsets and lengths of frames are that.
func (r *rowReader) uleb() int64 {
	v, n := binary.Uvarint(r.b[r.at:])
	if n <= 0 || v >= 1<<31 {
		r.err = errShort
		if n > 0 {
			r.err = fmt.Errorf("number %#x is too large", v)
		}
		return 0
	}
	r.at += n
	return int64(v)
}

func (r *rowReader) sleb() (v int64) {
	for shift := uint(0); ; shift += 7 {
		b := r.u8()
		if r.err != nil || shift > 35 {
			r.err = errShort
			return 0
		}
		v |= int64(b&0x7f) << shift
		if b&0x80 == 0 {
			if b&0x40 != 0 {
				v -= 1 << (shift + 7)
			}
			return v
		}
	}
}
