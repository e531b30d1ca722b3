package objects

import (
	"bytes"
	"debug/elf"
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch/amd64"
)

// On x86 the relocated place is behind the opcode, at a distance that depends on it:
//
//	e8 rel32                 call __fentry__                  off-1, 5 bytes
//	ff 15 disp32             call *__fentry__@GOTPCREL(%rip)  off-2, 6 bytes; gcc -fPIE and -fpic
//	ff 93 disp32             call *mcount@GOT(%ebx)           off-2, 6 bytes; i386
//	49 ba imm64, 41 ff d2    movabs $mcount,%r10; call *%r10  off-2, 13 bytes; -mcmodel=large
//	49 bb imm64, 4d 01 da,   movabs $mcount@PLTOFF,%r11; add %r11,%r10; call *%r10
//	41 ff d2                                                  off-2, 16 bytes; -mcmodel=large -fpic of gcc
//	48 b8 imm64, ff 14 01    movabs $mcount@GOT,%rax; call *(%rcx,%rax)  off-2, 13 bytes; the same of clang
//	48 b9 imm64,             movabs $mcount@GOT,%rcx; mov (%rax,%rcx),%rax; call *%rax
//	48 8b 04 08, ff d0                                        off-2, 16 bytes; of clang -O0
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
	case elf.R_X86_64_PLTOFF64:
		return c.callPLTOFF(off)
	case elf.R_X86_64_GOT64:
		return c.callGOT64(off)
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

// callPLTOFF recognises the call of position-independent code in the large model: the register that is called holds the
// address of the global offset table, to which the load's register is added.
func (c *code) callPLTOFF(off uint64) (hit, bool) {
	b, ok := c.bytes(off-2, 16)
	if !ok || off < 2 || b[0]&0xfe != 0x48 || b[1]&0xf8 != 0xb8 {
		return hit{}, false
	}
	src := b[0]&1<<3 | b[1]&7
	add := b[10:13] // REX.W 01 /r: add r, r/m
	if add[0]&0xfa != 0x48 || add[1] != 0x01 || add[2] < 0xc0 || add[0]&4<<1|add[2]>>3&7 != src {
		return hit{}, false
	}
	dst := add[0]&1<<3 | add[2]&7
	call, n := b[13:], uint8(15)
	if dst >= 8 {
		if call[0] != 0x41 {
			return hit{}, false
		}
		call, n = call[1:], 16
	}
	if call[0] != 0xff || call[1] != 0xd0|dst&7 {
		return hit{}, false
	}
	return hit{back: 2, len: n, call: 0xf5, form: FormRegister}, true
}

// callGOT64 recognises a call through the global offset table, whose address is in one register and the offset in
// it in the one that is loaded. Where the compiler has put something between the load and the call, the site is the
// call alone.
func (c *code) callGOT64(off uint64) (hit, bool) {
	b, ok := c.bytes(off-2, 10)
	if !ok || off < 2 || b[0]&0xfe != 0x48 || b[1]&0xf8 != 0xb8 {
		return hit{}, false
	}
	reg := b[0]&1<<3 | b[1]&7
	if load, call := c.loadAndCall(off+8, reg); load > 0 {
		return hit{back: 2, len: uint8(10 + load + call), call: uint8(-8 - load), form: FormGOT}, true
	}
	for at := off + 8; at < off+64 && at < uint64(len(c.b)); {
		in, err := amd64.Decode(c.b[at:])
		if err != nil || in.Op != amd64.Other && in.Op != amd64.CallInd {
			break
		}
		if in.Op == amd64.Other {
			at += uint64(in.Len)
			continue
		}
		end := at + uint64(in.Len)
		sib := c.b[end-1]
		if in.ModRM == 0x54 && sib == 0 { // with a displacement of 0: a base of %rbp or %r13 needs one
			sib = c.b[end-2]
		} else if in.ModRM != 0x14 {
			break
		}
		if sib>>6 != 0 || in.REX&2<<2|sib>>3&7 != reg && in.REX&1<<3|sib&7 != reg {
			break
		}
		ahead := uint8(at - off)
		if ahead == 8 {
			return hit{back: 2, len: uint8(10 + in.Len), call: -ahead, form: FormGOT}, true
		}
		return hit{back: -ahead, len: uint8(in.Len), call: -ahead, form: FormGOT}, true
	}
	return hit{}, false
}

// loadAndCall recognises the load of a register from the sum of reg and another, and the call through it. It returns
// the lengths of the two.
func (c *code) loadAndCall(at uint64, reg byte) (load, call int) {
	b, ok := c.bytes(at, 6)
	if !ok || b[0]&0xf8 != 0x48 || b[1] != 0x8b || b[2]&0xc7 != 0x04 && b[2]&0xc7 != 0x44 {
		return 0, 0
	}
	rex, modrm, sib, n := b[0], b[2], b[3], 4
	if modrm&0xc0 != 0 { // with a displacement of 0: a base of %rbp or %r13 needs one
		if b[4] != 0 {
			return 0, 0
		}
		n = 5
	}
	if sib>>6 != 0 || rex&2<<2|sib>>3&7 != reg && rex&1<<3|sib&7 != reg {
		return 0, 0
	}
	want := []byte{0xff, 0xd0 | modrm>>3&7}
	if rex&4 != 0 {
		want = []byte{0x41, 0xff, want[1]}
	}
	if b, ok = c.bytes(at+uint64(n), uint64(len(want))); !ok || !bytes.Equal(b, want) {
		return 0, 0
	}
	return n, len(want)
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
	nop3x64  = []byte{0x0f, 0x1f, 0x00}                                                    // nopl (%rax)
	nop4x64  = []byte{0x0f, 0x1f, 0x40, 0x00}                                              // nopl 0(%rax)
	nop5x64  = []byte{0x0f, 0x1f, 0x44, 0x00, 0x00}                                        // nopl 0(%rax,%rax,1)
	nop6x64  = []byte{0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00}                                  // nopw 0(%rax,%rax,1)
	nop8x64  = []byte{0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0}                                     // nopl 0(%rax,%rax,1)
	nop12x64 = []byte{0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x0f, 0x1f, 0x00}             // nopw; nopl (%rax)
	nop13x64 = []byte{0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x0f, 0x1f, 0x40, 0x00}       // nopw; nopl 0(%rax)
	nop14x64 = []byte{0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x0f, 0x1f, 0x44, 0, 0}       // nopw; nopl 0(%rax,%rax,1)
	nop15x64 = []byte{0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x66, 0x0f, 0x1f, 0x44, 0, 0} // nopw 0(%rax,%rax,1), twice
	nop16x64 = []byte{0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x0f, 0x1f, 0x80, 0, 0, 0, 0} // nopw; nopl 0(%rax)
	nop17x64 = append(nop12x64[:9:9], nop8x64...)                                          // nopw; nopl 0(%rax,%rax,1)
	nop18x64 = append(nop12x64[:9:9], nop12x64[:9]...)                                     // nopw 0(%rax,%rax,1), twice
	nop5x32  = []byte{0x3e, 0x8d, 0x74, 0x26, 0x00}                                        // ds lea 0(%esi,1),%esi
	nop6x32  = []byte{0x8d, 0xb6, 0x00, 0x00, 0x00, 0x00}                                  // lea 0(%esi),%esi
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
	return h.start(off), nopsX64(h.len)
}

func nop386(c *code, h hit, off uint64) (uint64, []byte) {
	if !c.addendSeen(off) {
		return 0, nil
	}
	return h.start(off), nopsX386(h.len)
}

func nopsX64(n uint8) []byte {
	switch n {
	case 3:
		return nop3x64
	case 4:
		return nop4x64
	case 5:
		return nop5x64
	case 6:
		return nop6x64
	case 12:
		return nop12x64
	case 13:
		return nop13x64
	case 14:
		return nop14x64
	case 15:
		return nop15x64
	case 16:
		return nop16x64
	case 17:
		return nop17x64
	case 18:
		return nop18x64
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
