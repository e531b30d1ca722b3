package arm64

import (
	"encoding/binary"
	"fmt"
)

// Instructions without operands, as words.
const (
	WordNop     = 0xd503201f // nop
	WordBti     = 0xd503241f // bti; the other forms have bits 6 and 7 set
	WordBtiC    = 0xd503245f // bti c
	WordBtiJ    = 0xd503249f // bti j
	WordBtiJC   = 0xd50324df // bti jc
	WordPaciasp = 0xd503233f // paciasp
	WordAutiasp = 0xd50323bf // autiasp
	WordRet     = 0xd65f03c0 // ret
	WordRetX9   = 0xd65f0120 // ret x9
	WordMovX9LR = 0xaa1e03e9 // mov x9, x30
)

// Lengths of what this file encodes, in bytes.
const (
	CallLen    = InstLen     // bl
	JumpLen    = InstLen     // b
	AddrLen    = 2 * InstLen // adrp; add
	VeneerLen  = 3 * InstLen // adrp; add; br
	LandingLen = 2 * InstLen // bti c; b
)

// How far b and bl reach, in bytes from the instruction: a signed 26-bit number of words.
const (
	BranchMin = -1 << 27
	BranchMax = 1<<27 - InstLen
)

// A RangeError says that an instruction at From cannot reach To.
type RangeError struct {
	Inst     string // instruction to be encoded, such as "bl"
	From, To uint64 // address of the instruction, and of what it refers to
	Dist     int64  // displacement it would need, for adrp between pages
	Bits     int    // width of a signed displacement in bytes that would fit
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("%s at %#x cannot reach %#x: displacement %#x does not fit in %d bits",
		e.Inst, e.From, e.To, e.Dist, e.Bits)
}

// Reaches reports whether b and bl at address from can go to address to. Nothing else decides that.
func Reaches(from, to uint64) bool {
	d := int64(to - from)
	return d >= BranchMin && d <= BranchMax
}

// AppendCall appends the call at address from to address to: bl.
func AppendCall(dst []byte, from, to uint64) ([]byte, error) {
	return appendBranch(dst, "bl", 0x94000000, from, to)
}

// AppendJump appends the jump at address from to address to: b.
func AppendJump(dst []byte, from, to uint64) ([]byte, error) {
	return appendBranch(dst, "b", 0x14000000, from, to)
}

// appendBranch appends b or bl. On error dst is unchanged.
func appendBranch(dst []byte, name string, op uint32, from, to uint64) ([]byte, error) {
	if err := aligned(name, from, to); err != nil {
		return dst, err
	}
	if !Reaches(from, to) {
		return dst, &RangeError{name, from, to, int64(to - from), 28}
	}
	return appendWord(dst, op|uint32(to-from)>>2&0x3ffffff), nil
}

// aligned refuses addresses at which no instruction can be.
func aligned(name string, from, to uint64) error {
	if (from|to)%InstLen != 0 {
		return fmt.Errorf("%s at %#x to %#x: instructions are at multiples of %d", name, from, to, InstLen)
	}
	return nil
}

// AppendAdrp appends adrp of register rd, 0 to 30, for the page of address to.
func AppendAdrp(dst []byte, rd byte, from, to uint64) ([]byte, error) {
	d := int64(to&^pageMask - from&^pageMask)
	if d < -1<<32 || d >= 1<<32 {
		return dst, &RangeError{"adrp", from, to, d, 33}
	}
	return appendWord(dst, adrp(rd, d)), nil
}

func adrp(rd byte, d int64) uint32 {
	p := uint32(d >> 12)
	return 0x90000000 | p&3<<29 | p>>2&0x7ffff<<5 | uint32(rd&31)
}

// AppendAddr appends instructions that load address to into register rd, 0 to 30: adrp rd, to; add rd, rd, #:lo12:to.
func AppendAddr(dst []byte, rd byte, from, to uint64) ([]byte, error) {
	dst, err := AppendAdrp(dst, rd, from, to)
	if err != nil {
		return dst, err
	}
	return appendWord(dst, addImm(rd, rd, uint32(to)&pageMask)), nil
}

// addImm is add xd, xn, #imm, of 12 bits.
func addImm(rd, rn byte, imm uint32) uint32 {
	return 0x91000000 | imm<<10 | uint32(rn&31)<<5 | uint32(rd&31)
}

// movz and movk are of the w register rd, with imm in bits 15 to 0, or 31 to 16 if high.
func movz(rd byte, imm uint32) uint32     { return 0x52800000 | imm&0xffff<<5 | uint32(rd&31) }
func movkHigh(rd byte, imm uint32) uint32 { return 0x72a00000 | imm&0xffff<<5 | uint32(rd&31) }

// movReg is mov xd, xm.
func movReg(rd, rm byte) uint32 { return 0xaa0003e0 | uint32(rm&31)<<16 | uint32(rd&31) }

// AppendVeneer appends the veneer at address from to address to, within 4 GiB: adrp x16, to; add x16, x16, #:lo12:to;
// br x16. It clobbers x16, as veneers may (AAPCS64, 6.1.1). In memory guarded by BTI the target needs a landing pad:
// see AppendLanding.
func AppendVeneer(dst []byte, from, to uint64) ([]byte, error) {
	if err := aligned("veneer", from, to); err != nil {
		return dst, err
	}
	dst, err := AppendAddr(dst, 16, from, to)
	if err != nil {
		return dst, err
	}
	return appendWord(dst, 0xd61f0200), nil // br x16
}

// AppendLanding appends a landing at address from, to which a veneer can go if its target is not a landing pad: bti
// c; b to.
func AppendLanding(dst []byte, from, to uint64) ([]byte, error) {
	n := len(dst)
	dst, err := AppendJump(appendWord(dst, WordBtiC), from+InstLen, to)
	if err != nil {
		return dst[:n], err
	}
	return dst, nil
}

// VeneerTarget returns where the veneer at address addr goes, and whether code begins with a veneer as AppendVeneer
// makes it.
func VeneerTarget(code []byte, addr uint64) (uint64, bool) {
	if len(code) < VeneerLen {
		return 0, false
	}
	le := binary.LittleEndian
	page, add := DecodeWord(le.Uint32(code)), le.Uint32(code[4:])
	if page.Op != Adrp || page.Reg != 16 || add&^(pageMask<<10) != addImm(16, 16, 0) || le.Uint32(code[8:]) != 0xd61f0200 {
		return 0, false
	}
	return page.Target(addr) + uint64(add>>10&pageMask), true
}

// AppendCallSite appends a call that fills a site of n bytes, at least 4: bl, followed by nops.
func AppendCallSite(dst []byte, n int, from, to uint64) ([]byte, error) {
	return appendSite(dst, n, from, to, AppendCall)
}

// AppendJumpSite appends a jump that fills a site of n bytes, at least 4: b, followed by nops.
func AppendJumpSite(dst []byte, n int, from, to uint64) ([]byte, error) {
	return appendSite(dst, n, from, to, AppendJump)
}

func appendSite(dst []byte, n int, from, to uint64, op func([]byte, uint64, uint64) ([]byte, error)) ([]byte, error) {
	if n < InstLen || n%InstLen != 0 {
		return dst, fmt.Errorf("site at %#x: %d bytes are no whole instructions", from, n)
	}
	dst, err := op(dst, from, to)
	if err != nil {
		return dst, err
	}
	return AppendNops(dst, n-InstLen), nil
}

// appendWord appends an instruction. They are little-endian in big-endian programs, too.
func appendWord(dst []byte, w uint32) []byte { return binary.LittleEndian.AppendUint32(dst, w) }
