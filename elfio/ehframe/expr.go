package ehframe

import (
	"errors"
	"fmt"
)

// Expressions.
//
// What compilers, linkers and C libraries put into unwind tables, and what thunks' rows are: a machine with a stack of
// 64-bit words (DWARF 5, 2.5). Operators for types, objects and threads do not occur there and are errors.

// Operators (DWARF 5, 7.7.1).
const (
	opAddr       = 0x03
	opDeref      = 0x06
	opConst1u    = 0x08 // and 1s, 2u, 2s, 4u, 4s, 8u, 8s
	opConst8s    = 0x0f
	opConstu     = 0x10
	opConsts     = 0x11
	opDup        = 0x12
	opDrop       = 0x13
	opOver       = 0x14
	opPick       = 0x15
	opSwap       = 0x16
	opRot        = 0x17
	opAbs        = 0x19
	opAnd        = 0x1a
	opDiv        = 0x1b
	opMinus      = 0x1c
	opMod        = 0x1d
	opMul        = 0x1e
	opNeg        = 0x1f
	opNot        = 0x20
	opOr         = 0x21
	opPlus       = 0x22
	opPlusUconst = 0x23
	opShl        = 0x24
	opShr        = 0x25
	opShra       = 0x26
	opXor        = 0x27
	opBra        = 0x28
	opEq         = 0x29
	opGe         = 0x2a
	opGt         = 0x2b
	opLe         = 0x2c
	opLt         = 0x2d
	opNe         = 0x2e
	opSkip       = 0x2f
	opLit0       = 0x30
	opLit31      = 0x4f
	opBreg0      = 0x70
	opBreg31     = 0x8f
	opBregx      = 0x92
	opDerefSize  = 0x94
	opNop        = 0x96
)

// Bounds of an expression, which can loop.
const (
	maxOperations = 1000
	maxOperands   = 64
)

// ErrExpression is wrapped by errors about expressions themselves; others are the Machine's.
var ErrExpression = errors.New("malformed expression")

// A Machine is what expressions are evaluated against.
type Machine interface {
	// Register returns the value of a register by its DWARF number.
	Register(n int) (uint64, error)
	// Read returns the size bytes of memory at an address, 1 to 8, as a little-endian number.
	Read(addr uint64, size int) (uint64, error)
}

// evaluation is an expression under way.
type evaluation struct {
	m     Machine
	d     pointerReader
	code  []byte
	stack []uint64
	bad   bool // an operand is missing
}

// Eval evaluates an expression of little-endian code, with first on the stack if push says so, and returns what is on
// top at the end.
func Eval(code []byte, m Machine, push bool, first uint64) (uint64, error) {
	e := evaluation{m: m, d: pointerReader{b: code}, code: code}
	if push {
		e.stack = append(e.stack, first)
	}
	for n := 0; len(e.d.b) > 0; n++ {
		op := e.d.u8()
		if err := e.step(op); err != nil {
			return 0, err
		}
		if e.bad || e.d.bad || n == maxOperations || len(e.stack) > maxOperands {
			return 0, fmt.Errorf("%w: operator %#x", ErrExpression, op)
		}
	}
	if len(e.stack) == 0 {
		return 0, fmt.Errorf("%w: no result", ErrExpression)
	}
	return e.stack[len(e.stack)-1], nil
}

func (e *evaluation) push(v uint64) { e.stack = append(e.stack, v) }

// peek returns the operand n below the top.
func (e *evaluation) peek(n int) uint64 {
	if n >= len(e.stack) {
		e.bad = true
		return 0
	}
	return e.stack[len(e.stack)-1-n]
}

func (e *evaluation) pop() uint64 {
	v := e.peek(0)
	if !e.bad {
		e.stack = e.stack[:len(e.stack)-1]
	}
	return v
}

// fixed reads a constant of size bytes.
func (e *evaluation) fixed(size int, signed bool) uint64 {
	var v uint64
	for i := range size {
		v |= uint64(e.d.u8()) << (8 * i)
	}
	if shift := 64 - 8*size; signed {
		v = uint64(int64(v<<shift) >> shift)
	}
	return v
}

// jump goes on a signed distance of two bytes from behind it.
func (e *evaluation) jump(taken bool) {
	by := int64(e.fixed(2, true))
	to := int64(len(e.code)-len(e.d.b)) + by
	if !taken {
		return
	}
	if to < 0 || to > int64(len(e.code)) {
		e.bad = true
		return
	}
	e.d.b = e.code[to:]
}

// load pushes what is in memory.
func (e *evaluation) load(size int) error {
	addr := e.pop()
	if e.bad || size < 1 || size > 8 {
		e.bad = true
		return nil
	}
	v, err := e.m.Read(addr, size)
	e.push(v)
	return err
}

// register pushes a register plus an offset.
func (e *evaluation) register(n int) error {
	off := e.d.sleb()
	v, err := e.m.Register(n)
	e.push(v + uint64(off))
	return err
}

// step executes one operator.
func (e *evaluation) step(op byte) error {
	switch {
	case op >= opLit0 && op <= opLit31:
		e.push(uint64(op - opLit0))
	case op >= opBreg0 && op <= opBreg31:
		return e.register(int(op - opBreg0))
	case op >= opConst1u && op <= opConst8s:
		n := op - opConst1u
		e.push(e.fixed(1<<(n/2), n%2 == 1))
	case op >= opAbs && op <= opXor || op >= opEq && op <= opNe:
		e.compute(op)
	default:
		return e.other(op)
	}
	return nil
}

// other executes what moves operands, reads memory or jumps.
func (e *evaluation) other(op byte) error {
	switch op {
	case opAddr:
		e.push(e.fixed(8, false))
	case opConstu:
		e.push(e.d.uleb())
	case opConsts:
		e.push(uint64(e.d.sleb()))
	case opBregx:
		return e.register(int(min(e.d.uleb(), 1<<16)))
	case opDeref:
		return e.load(8)
	case opDerefSize:
		return e.load(int(e.d.u8()))
	case opDup:
		e.push(e.peek(0))
	case opDrop:
		e.pop()
	case opOver:
		e.push(e.peek(1))
	case opPick:
		e.push(e.peek(int(e.d.u8())))
	case opSwap:
		b, a := e.pop(), e.pop()
		e.stack = append(e.stack, b, a)
	case opRot:
		c, b, a := e.pop(), e.pop(), e.pop()
		e.stack = append(e.stack, c, a, b)
	case opSkip:
		e.jump(true)
	case opBra:
		e.jump(e.pop() != 0)
	case opNop:
	default:
		e.bad = true
	}
	return nil
}

// compute executes an operator of one or two operands, the second of which is on top.
func (e *evaluation) compute(op byte) {
	b := e.pop()
	switch op {
	case opAbs:
		if int64(b) < 0 {
			b = -b
		}
	case opNeg:
		b = -b
	case opNot:
		b = ^b
	case opPlusUconst:
		b += e.d.uleb()
	default:
		b = e.binary(op, e.pop(), b)
	}
	e.push(b)
}

func (e *evaluation) binary(op byte, a, b uint64) uint64 {
	truth := func(v bool) uint64 {
		if v {
			return 1
		}
		return 0
	}
	switch op {
	case opAnd:
		return a & b
	case opOr:
		return a | b
	case opXor:
		return a ^ b
	case opPlus:
		return a + b
	case opMinus:
		return a - b
	case opMul:
		return a * b
	case opShl:
		return a << b
	case opShr:
		return a >> b
	case opShra:
		return uint64(int64(a) >> min(b, 63))
	case opEq:
		return truth(a == b)
	case opNe:
		return truth(a != b)
	case opGe:
		return truth(int64(a) >= int64(b))
	case opGt:
		return truth(int64(a) > int64(b))
	case opLe:
		return truth(int64(a) <= int64(b))
	case opLt:
		return truth(int64(a) < int64(b))
	}
	if b == 0 { // what is left divides
		e.bad = true
		return 0
	}
	if op == opMod {
		return a % b
	}
	return uint64(int64(a) / int64(b))
}
