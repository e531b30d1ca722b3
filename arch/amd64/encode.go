package amd64

import (
	"encoding/binary"
	"fmt"
)

// A RangeError says that an instruction at From cannot reach To.
type RangeError struct {
	Inst     string // instruction to be encoded, such as "call" or "jmp rel8"
	From, To uint64 // address of the instruction, and of what it refers to
	Dist     int64  // displacement it would need, from the end of the instruction
	Bits     int    // width of the field for it
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("%s at %#x cannot reach %#x: displacement %#x does not fit in %d bits",
		e.Inst, e.From, e.To, e.Dist, e.Bits)
}

// Lengths of what this file encodes, in bytes.
const (
	CallLen      = 5 // e8 rel32
	JumpLen      = 5 // e9 rel32
	JumpShortLen = 2 // eb rel8
	CallGOTLen   = 6 // ff 15 disp32
	JumpGOTLen   = 6 // ff 25 disp32
)

// AppendCall appends the call at address from to address to:
// e8 rel32 in 5 bytes.
func AppendCall(dst []byte, from, to uint64) ([]byte, error) {
	return appendRel32(dst, "call", from, to, 0xe8)
}

// AppendCallAddr32 appends the six-byte call that linkers relax an indirect one to:
// 67 e8 rel32. The prefix has no effect, so the return address is still the
// end of the site.
func AppendCallAddr32(dst []byte, from, to uint64) ([]byte, error) {
	return appendRel32(dst, "addr32 call", from, to, 0x67, 0xe8)
}

// AppendJump appends the jump at address from to address to: e9 rel32 in 5 bytes.
func AppendJump(dst []byte, from, to uint64) ([]byte, error) {
	return appendRel32(dst, "jmp", from, to, 0xe9)
}

// AppendJumpShort appends the jump at address from to address to: eb rel8 in 2 bytes.
func AppendJumpShort(dst []byte, from, to uint64) ([]byte, error) {
	d := int64(to - (from + JumpShortLen))
	if d != int64(int8(d)) {
		return dst, &RangeError{"jmp rel8", from, to, d, 8}
	}
	return append(dst, 0xeb, byte(d)), nil
}

// AppendCallGOT appends the call at address from through the pointer at
// address slot: ff 15 disp32 in 6 bytes.
func AppendCallGOT(dst []byte, from, slot uint64) ([]byte, error) {
	return appendRel32(dst, "call *disp(%rip)", from, slot, 0xff, 0x15)
}

// AppendJumpGOT appends the jump at address from through the pointer at
// address slot: ff 25 disp32 in 6 bytes.
func AppendJumpGOT(dst []byte, from, slot uint64) ([]byte, error) {
	return appendRel32(dst, "jmp *disp(%rip)", from, slot, 0xff, 0x25)
}

// appendRel32 appends op and a displacement that ends the instruction. On error dst is unchanged.
func appendRel32(dst []byte, name string, from, to uint64, op ...byte) ([]byte, error) {
	d, err := disp32(name, from, from+uint64(len(op))+4, to)
	if err != nil {
		return dst, err
	}
	return binary.LittleEndian.AppendUint32(append(dst, op...), d), nil
}

// disp32 returns the displacement from next, the end of the instruction at from, to to.
func disp32(name string, from, next, to uint64) (uint32, error) {
	d := int64(to - next)
	if d != int64(int32(d)) {
		return 0, &RangeError{name, from, to, d, 32}
	}
	return uint32(d), nil
}

// AppendCallSite appends a call that fills a site of n bytes, at least 5: e8 rel32, for 6 bytes 67 e8 rel32, for more
// with nops after the call.
func AppendCallSite(dst []byte, n int, from, to uint64) ([]byte, error) {
	switch {
	case n < CallLen:
		return dst, fmt.Errorf("site at %#x: %d bytes are too short for a call", from, n)
	case n == 6:
		return AppendCallAddr32(dst, from, to)
	}
	dst, err := AppendCall(dst, from, to)
	if err != nil {
		return dst, err
	}
	return AppendNops(dst, n-CallLen), nil
}

// AppendJumpSite appends a jump that fills a site of n bytes, at least 5: e9 rel32 and nops after it, as linkers
// relax jmp *foo@GOTPCREL(%rip).
func AppendJumpSite(dst []byte, n int, from, to uint64) ([]byte, error) {
	if n < JumpLen {
		return dst, fmt.Errorf("site at %#x: %d bytes are too short for a jmp", from, n)
	}
	dst, err := AppendJump(dst, from, to)
	if err != nil {
		return dst, err
	}
	return AppendNops(dst, n-JumpLen), nil
}
