package objects

import (
	"debug/elf"
	"encoding/binary"
)

// On x86 the relocated place is behind the opcode, at a distance that depends on it:
//
//	e8 rel32                 call __fentry__                  off-1, 5 bytes
//	ff 15 disp32             call *__fentry__@GOTPCREL(%rip)  off-2, 6 bytes; gcc -fPIE and -fpic
//	ff 93 disp32             call *mcount@GOT(%ebx)           off-2, 6 bytes; i386
//	49 ba imm64, 41 ff d2    movabs $mcount,%r10; call *%r10  off-2, 13 bytes; -mcmodel=large
//
// Everything else that refers to a profiling function (lea, mov, a word of data in text) only takes its address.

func callX86(c *code, off uint64, typ uint32) (hit, bool) {
	switch elf.R_X86_64(typ) {
	case elf.R_X86_64_PC32, elf.R_X86_64_PLT32:
		return c.callRel32(off)
	case elf.R_X86_64_GOTPCREL, elf.R_X86_64_GOTPCRELX, elf.R_X86_64_REX_GOTPCRELX:
		if b, ok := c.bytes(off-2, 6); ok && off >= 2 && b[0] == 0xff && b[1] == 0x15 {
			return hit{back: 2, len: 6, call: 2, form: FormGOT}, true
		}
	case elf.R_X86_64_64:
		return c.callMovabs(off)
	}
	return hit{}, false
}

func (c *code) callRel32(off uint64) (hit, bool) {
	b, ok := c.bytes(off-1, 5)
	if !ok || off < 1 || b[0] != 0xe8 {
		return hit{}, false
	}
	return hit{back: 1, len: 5, call: 1, form: FormCall}, true
}

// callMovabs recognises a load of a register and the call through it, both with or without the prefix that selects
// the upper eight registers.
func (c *code) callMovabs(off uint64) (hit, bool) {
	b, ok := c.bytes(off-2, 10)
	if !ok || off < 2 || b[0]&0xfe != 0x48 || b[1]&0xf8 != 0xb8 {
		return hit{}, false
	}
	reg := b[1] & 7
	if b[0] == 0x49 {
		if n, ok := c.bytes(off+8, 3); ok && n[0] == 0x41 && n[1] == 0xff && n[2] == 0xd0|reg {
			return hit{back: 2, len: 13, call: 0xf8, form: FormRegister}, true
		}
		return hit{}, false
	}
	if n, ok := c.bytes(off+8, 2); ok && n[0] == 0xff && n[1] == 0xd0|reg {
		return hit{back: 2, len: 12, call: 0xf8, form: FormRegister}, true
	}
	return hit{}, false
}

func call386(c *code, off uint64, typ uint32) (hit, bool) {
	switch elf.R_386(typ) {
	case elf.R_386_PC32, elf.R_386_PLT32:
		return c.callRel32(off)
	case elf.R_386_GOT32, elf.R_386_GOT32X:
		b, ok := c.bytes(off-2, 6)
		// ModRM: /2, disp32 alone (15) or with a base other than one that needs a SIB byte (90 to 97 without 94).
		if ok && off >= 2 && b[0] == 0xff && (b[1] == 0x15 || b[1]&0xf8 == 0x90 && b[1] != 0x94) {
			return hit{back: 2, len: 6, call: 2, form: FormGOT}, true
		}
	}
	return hit{}, false
}

// nops of 64-bit mode, Intel SDM volume 2, "NOP: Multi-Byte No Operation"; those of 32-bit mode do nothing on every
// processor: what binutils uses for i386.
var (
	nop5x64  = []byte{0x0f, 0x1f, 0x44, 0x00, 0x00}                                  // nopl 0(%rax,%rax,1)
	nop6x64  = []byte{0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00}                            // nopw 0(%rax,%rax,1)
	nop12x64 = []byte{0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x0f, 0x1f, 0x00}       // nopw 0(%rax,%rax,1); nopl (%rax)
	nop13x64 = []byte{0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x0f, 0x1f, 0x40, 0x00} // nopw 0(%rax,%rax,1); nopl 0(%rax)
	nop5x32  = []byte{0x3e, 0x8d, 0x74, 0x26, 0x00}                                  // ds lea 0(%esi,1),%esi
	nop6x32  = []byte{0x8d, 0xb6, 0x00, 0x00, 0x00, 0x00}                            // lea 0(%esi),%esi
)

// addendSeen reports whether the relocated word still is as an assembler leaves it: 0 with the addend in the
// relocation, -4 with the addend in place.
func (c *code) addendSeen(off uint64) bool {
	b, ok := c.bytes(off, 4)
	if !ok {
		return false
	}
	v := int32(binary.LittleEndian.Uint32(b))
	return v == 0 || v == -4
}

func nopX86(c *code, h hit, off uint64) (uint64, []byte) {
	if !c.addendSeen(off) {
		return 0, nil
	}
	return off - uint64(h.back), nopsX64(h.len)
}

func nop386(c *code, h hit, off uint64) (uint64, []byte) {
	if !c.addendSeen(off) {
		return 0, nil
	}
	return off - uint64(h.back), nopsX386(h.len)
}

func nopsX64(n uint8) []byte {
	switch n {
	case 5:
		return nop5x64
	case 6:
		return nop6x64
	case 12:
		return nop12x64
	case 13:
		return nop13x64
	}
	return nil
}

func nopsX386(n uint8) []byte {
	switch n {
	case 5:
		return nop5x32
	case 6:
		return nop6x32
	}
	return nil
}
