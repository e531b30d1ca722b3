package objects

import (
	"debug/elf"
	"encoding/binary"
)

// The relocation of a call is at the instruction on Arm. A64 instructions are little-endian whatever the data is
// (Arm ARM, "Endian support"); A32 and T32 ones of an object have the byte order of its data, and the linker swaps
// them for BE8 images.

func callARM64(c *code, off uint64, typ uint32) (hit, bool) {
	b, ok := c.bytes(off, 4)
	// bl: 1 00101 imm26
	call := elf.R_AARCH64_CALL26
	if !c.is64 {
		call = elf.R_AARCH64_P32_CALL26
	}
	if !ok || elf.R_AARCH64(typ) != call || binary.LittleEndian.Uint32(b)>>26 != 0b100101 {
		return hit{}, false
	}
	return hit{len: 4, form: FormCall}, true
}

func nopARM64(c *code, _ hit, off uint64) (uint64, []byte) {
	if b, ok := c.bytes(off, 4); !ok || binary.LittleEndian.Uint32(b) != 0x94000000 { // bl .+0
		return 0, nil
	}
	return off, []byte{0x1f, 0x20, 0x03, 0xd5} // nop
}

func callARM(c *code, off uint64, typ uint32) (hit, bool) {
	switch elf.R_ARM(typ) {
	case elf.R_ARM_PC24, elf.R_ARM_PLT32, elf.R_ARM_CALL, 29: // 29: R_ARM_JUMP24, of a conditional bl
		// bl: cond 1011 imm24; blx: 1111 101 H imm24
		if w, ok := c.word32(off); ok && (w>>24&0xf == 0xb && w>>28 != 0xf || w>>25 == 0b1111101) {
			return hit{len: 4, form: FormCall}, true
		}
	case elf.R_ARM_THM_PC22: // R_ARM_THM_CALL of the ABI
		// bl, blx: 11110 S imm10, 11 J1 x J2 imm11
		h1, ok1 := c.half(off)
		h2, ok2 := c.half(off + 2)
		if ok1 && ok2 && h1>>11 == 0b11110 && h2>>14 == 0b11 {
			return hit{len: 4, form: FormCall}, true
		}
	}
	return hit{}, false
}

// nopARM replaces the call and, where it stands before it, push {lr}, which __gnu_mcount_nc pops.
func nopARM(c *code, _ hit, off uint64) (uint64, []byte) {
	w, ok := c.word32(off)
	if ok && w == 0xebfffffe { // bl .+0
		nop := c.order.AppendUint32(nil, 0xe1a00000)                       // nop (mov r0, r0)
		if p, ok := c.word32(off - 4); ok && off >= 4 && p == 0xe52de004 { // push {lr}
			return off - 4, append(nop, nop...)
		}
		return off, nop
	}
	p, ok0 := c.half(off - 2)
	h1, ok1 := c.half(off)
	h2, ok2 := c.half(off + 2)
	if off >= 2 && ok0 && ok1 && ok2 && p == 0xb500 && h1 == 0xf7ff && h2 == 0xfffe { // push {lr}; bl .+0
		nop := c.order.AppendUint16(nil, 0xbf00)
		return off - 2, append(append(append([]byte(nil), nop...), nop...), nop...)
	}
	return 0, nil
}
