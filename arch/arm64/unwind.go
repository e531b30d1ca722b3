package arm64

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Callers makes unwinders see a traced function's real caller. While a function is
// traced, what it has for its return address is that of its thunk: in x30, or
// wherever it saved that. Its frame description says where, and Callers changes
// that rule: if the address is a thunk's, the caller's is in the shadow.
//
// So two things change in a copy of .eh_frame: the CIEs get Rule at the end of
// their initial instructions, if StartsAtEntry, and the FDEs that refer to them
// get what Rows makes of theirs. Frame descriptions left as they are stay right:
// backtraces then have the thunk's frame between the function and its caller.
//
// The rule reads the code at the return address. It does so only for addresses
// that a thunk's could be, 32 bytes behind a multiple of 64, so that it reads
// within the page of the call and leaves alone values that are no addresses.
//
// Where a function has signed its return address, the bits of the signature have to
// come off first, and their number depends on the address space. If Bits is 0, they
// are known for stacks above 2^47, which is where 48-bit address spaces have
// theirs; elsewhere a signed address is taken for no thunk's. A shadow's address is
// not signed, so the rule says that, too (RA_SIGN_STATE).
//
// Only for little-endian programs.
type Callers struct {
	Shadow Shadow
	Bits   int // of the address space the rules are for, 0: unknown
}

// StartsAtEntry reports whether a CIE with these fields and initial instructions
// is the one compilers use for functions: at the first instruction the CFA is sp
// and the return address is in x30. Others, such as that of _start, which has no
// caller, must stay as they are.
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
// initial instructions: Callers of an unknown address space.
func CallerRule(s Shadow) []byte { return Callers{Shadow: s}.Rule() }

// Rule returns the call frame instructions that belong at the end of a CIE's
// initial instructions: the return address is in x30, unsigned.
func (c Callers) Rule() []byte { return c.rules(nil, lrState{place: inRegister, reg: regLR}, false) }

// Where a function's return address is.
type lrPlace uint8

const (
	inRegister lrPlace = iota
	inFrame
	elsewhere // as the description says, which is kept
)

type lrState struct {
	place  lrPlace
	reg    byte  // inRegister
	off    int64 // inFrame, from the CFA
	signed bool
}

// maxRemembered bounds what DW_CFA_remember_state nests.
const maxRemembered = 64

// ErrRows: call frame instructions that Rows cannot change. The FDE stays as it is.
var ErrRows = errors.New("arm64: call frame instructions with rules for x30 that have no equivalent")

// Rows returns an FDE's instructions with the changed rules, for one whose CIE has
// Rule and the given data alignment. Errors wrap ErrRows, or say what is wrong with
// the instructions and at which byte.
func (c Callers) Rows(instructions []byte, dataAlign int64) ([]byte, error) {
	r := rowReader{b: instructions}
	out := make([]byte, 0, 2*len(instructions)+256)
	st := lrState{place: inRegister, reg: regLR}
	var stack []lrState
	signs := false // the sign state has a rule by now
	for r.at < len(r.b) && r.err == nil {
		start := r.at
		op := r.u8()
		reg, next := uint64(op&0x3f), st
		changes := true // st
		switch op & 0xc0 {
		case dwAdvance:
			changes = false
		case dwOffset:
			next.place, next.off = inFrame, r.uleb()*dataAlign
		case dwRestore:
			next.place, next.reg = inRegister, regLR
		default:
			reg = regLR + 1
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
				reg = uint64(r.uleb())
				next.place, next.off = inFrame, r.uleb()*dataAlign
			case dwOffsetExtSf:
				reg = uint64(r.uleb())
				next.place, next.off = inFrame, r.sleb()*dataAlign
			case dwRestoreExt, dwSameValue:
				reg = uint64(r.uleb())
				next.place, next.reg = inRegister, regLR
			case dwRegister:
				reg = uint64(r.uleb())
				from := r.uleb()
				next.place, next.reg = inRegister, byte(from)
				if from > regSP {
					next.place = elsewhere
				}
			case dwUndefined:
				reg = uint64(r.uleb())
				next.place = elsewhere
			case dwExpression, dwValExpr:
				reg = uint64(r.uleb())
				r.skip(int(r.uleb()))
				next.place = elsewhere
			case dwValOffset, dwValOffsetSf:
				reg = uint64(r.uleb())
				r.uleb()
				next.place = elsewhere
			case dwNegateRA:
				reg = regLR
				next.signed = !st.signed
			case dwRemember:
				if len(stack) == maxRemembered {
					return nil, fmt.Errorf("byte %#x: more than %d remembered states: %w", start, maxRemembered, ErrRows)
				}
				stack = append(stack, st)
			case dwRestoreState:
				if len(stack) == 0 {
					return nil, fmt.Errorf("call frame instructions: byte %#x: no state to restore", start)
				}
				st, stack = stack[len(stack)-1], stack[:len(stack)-1]
			default:
				return nil, fmt.Errorf("byte %#x: instruction %#x: %w", start, op, ErrRows)
			}
		}
		if r.err != nil {
			break
		}
		if reg == regRAState {
			return nil, fmt.Errorf("byte %#x: a rule for the sign state: %w", start, ErrRows)
		}
		if reg != regLR || !changes {
			out = append(out, r.b[start:r.at]...)
			continue
		}
		if next.signed && next.place == elsewhere || st.signed && next.place == elsewhere {
			return nil, fmt.Errorf("byte %#x: a signed return address: %w", start, ErrRows)
		}
		st = next
		if st.place == elsewhere {
			out = append(out, r.b[start:r.at]...)
			continue
		}
		signs = signs || st.signed
		out = c.rules(out, st, signs)
	}
	if r.err != nil {
		return nil, fmt.Errorf("call frame instructions: byte %#x: %w", r.at, r.err)
	}
	return out, nil
}

// rules appends the rules for the return address, and if signs that for whether it is signed.
func (c Callers) rules(b []byte, st lrState, signs bool) []byte {
	deref := append([]byte{opDrop, opDrop, opLit0 + 8, opMinus}, c.Shadow.expr()...)
	b = appendRule(b, regLR, c.test(st, append(deref, opDeref), nil))
	switch {
	case st.signed:
		b = appendRule(b, regRAState, c.test(st, []byte{opLit0}, []byte{opLit0 + 1}))
	case signs:
		b = appendRule(b, regRAState, []byte{opLit0})
	}
	return b
}

func appendRule(b []byte, reg byte, expr []byte) []byte {
	b = append(b, dwValExpr, reg)
	b = binary.AppendUvarint(b, uint64(len(expr)))
	return append(b, expr...)
}

// test returns an expression that looks at the return address. If it is a thunk's,
// then runs, with CFA, address, address without signature on the stack; else
// otherwise, with CFA, address.
func (c Callers) test(st lrState, then, otherwise []byte) []byte {
	var e []byte
	switch {
	case st.place == inRegister:
		e = append(e, opBreg0+st.reg, 0)
	case st.off <= 0:
		e = append(e, opDup, opConstu)
		e = binary.AppendUvarint(e, uint64(-st.off))
		e = append(e, opMinus, opDeref)
	default:
		e = append(e, opDup, opPlusUconst)
		e = binary.AppendUvarint(e, uint64(st.off))
		e = append(e, opDeref)
	}
	e = append(e, opDup)
	if st.signed {
		bits := c.Bits
		if bits == 0 {
			bits = 48
		}
		e = append(e, opConst8u)
		e = binary.LittleEndian.AppendUint64(e, 1<<bits-1)
		e = append(e, opAnd)
	}
	const lowestCode = 0x10000
	e = append(e, opDup, opConst1u, ThunkSize-1, opAnd, opConst1u, ThunkRet, opEq, opOver, opConst4u)
	e = binary.LittleEndian.AppendUint32(e, lowestCode)
	e = append(e, opGt, opAnd)
	if st.signed && c.Bits == 0 {
		e = append(e, opPick, 3, opConst1u, 47, opShr, opLit0, opNe, opAnd) // the CFA
	}
	e = append(e, opLit0, opEq, opBra)
	first := len(e)
	e = append(e, 0, 0, opDup, opPlusUconst, thunkMarkAt-InstLen-ThunkRet, opDeref, opConst1u, 32, opShr, opConst4u)
	e = binary.LittleEndian.AppendUint32(e, thunkMark)
	e = append(e, opEq, opLit0, opEq, opBra)
	second := len(e)
	e = append(e, 0, 0)
	e = append(e, then...)
	e = append(e, opSkip)
	e = binary.LittleEndian.AppendUint16(e, uint16(1+len(otherwise)))
	no := len(e)
	e = append(append(e, opDrop), otherwise...)
	binary.LittleEndian.PutUint16(e[first:], uint16(no-first-2))
	binary.LittleEndian.PutUint16(e[second:], uint16(no-second-2))
	return e
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
