package objects

import "debug/elf"

// microMIPS encodes the instructions of MIPS in one or two halfwords, the one with the opcode first in either byte
// order (microMIPS64 Instruction Set, MD00594, "Instruction Formats"). Its relocations have numbers of their own, in
// the order of include/elf/mips.h of the GNU tools, and mean what those of mips.go do.

const (
	rMicroFirst   = elf.R_MIPS(130)
	rMicro26S1    = elf.R_MIPS(133)
	rMicroHI16    = elf.R_MIPS(134)
	rMicroLO16    = elf.R_MIPS(135)
	rMicroGOT16   = elf.R_MIPS(138)
	rMicroCALL16  = elf.R_MIPS(142)
	rMicroGOTDisp = elf.R_MIPS(145)
	rMicroGOTHi   = elf.R_MIPS(148)
	rMicroGOTLo   = elf.R_MIPS(149)
	rMicroHigher  = elf.R_MIPS(151)
	rMicroHighest = elf.R_MIPS(152)
	rMicroCALLHi  = elf.R_MIPS(153)
	rMicroCALLLo  = elf.R_MIPS(154)
	rMicroJALR    = elf.R_MIPS(156)
	rMicroLast    = elf.R_MIPS(173)
)

func (c *code) callMicroMIPS(off uint64, t elf.R_MIPS) (hit, bool) {
	switch t {
	case rMicro26S1:
		if h, ok := c.half(off); ok && (h>>10 == 0x3d || h>>10 == 0x1d) { // jal, jals
			return hit{len: 4, form: FormCall}, true
		}
	case rMicroHI16, rMicroLO16, rMicroHigher, rMicroHighest:
		return c.followMIPS((*code).insnMicro, off, FormRegister)
	case rMicroGOT16, rMicroCALL16, rMicroGOTDisp, rMicroGOTHi, rMicroGOTLo, rMicroCALLHi, rMicroCALLLo:
		return c.followMIPS((*code).insnMicro, off, FormGOT)
	case rMicroJALR:
		if in := c.insnMicro(off); in.calls != 0 {
			return hit{len: uint8(in.size), form: FormRegister}, true
		}
	}
	return hit{}, false
}

// insnMicro reads an instruction as insnMIPS does.
func (c *code) insnMicro(off uint64) mipsInsn {
	h, ok := c.half(off)
	if !ok {
		return mipsInsn{ends: true}
	}
	op := h >> 10
	if m := op & 7; m >= 1 && m <= 3 {
		return insnMicro16(h)
	}
	low, ok := c.half(off + 2)
	if !ok {
		return mipsInsn{ends: true}
	}
	in := mipsInsn{size: 4}
	a, b, rd := uint32(h>>5&31), uint32(h&31), uint32(low>>11)
	switch op {
	case 0: // POOL32A
		switch {
		case low&^0x4000 == 0x0f3c: // jalr, jalrs
			in.ends = true
			if a == mipsRA {
				in.calls = b
			}
		case low&0x3f == 0x10 || low&0x7ff == 0x150 || low&0x7ff == 0x290: // addu, or
			in.src, in.dst = 1<<a|1<<b, 1<<rd
			in.frame = rd == mipsAT && b == mipsRA
		case low&0x7ff == 0: // sll
			in.src, in.dst = 1<<b, 1<<a
		default:
			in.ends = true
		}
	case 0x16: // POOL32S
		if low&0x7ff == 0x150 { // daddu
			in.src, in.dst = 1<<a|1<<b, 1<<rd
		} else { // shifts
			in.src, in.dst = 1<<b, 1<<a
		}
	case 0x10: // POOL32I
		if a == 0xd { // lui
			in.dst = 1 << b
		} else {
			in.ends = true
		}
	case 0xc, 0x17, 0x14: // addiu, daddiu, ori
		in.src, in.dst = 1<<b, 1<<a
		in.frame = a == mipsSP && b == mipsSP
	case 0x3f, 0x37: // lw, ld
		in.src, in.dst = 1<<b, 1<<a
	case 0x3e, 0x36: // sw, sd
	default:
		in.ends = true
	}
	in.src, in.dst = in.src&^1, in.dst&^1
	return in
}

// insnMicro16 reads an instruction of one halfword. Of the eight registers most of them can name ($2 to $7, $16 and
// $17) none holds the address of _mcount in what compilers generate.
func insnMicro16(h uint16) mipsInsn {
	in := mipsInsn{size: 2}
	switch {
	case h&0xffc0 == 0x45c0: // jalr16, jalrs16
		in.calls, in.ends = uint32(h&31), true
	case h>>10 == 0x11 && h&0x3c0 >= 0x180: // the other jumps of POOL16C
		in.ends = true
	case h>>10 == 0x23 || h>>10 == 0x2b || h>>10 == 0x33: // beqz16, bnez16, b16
		in.ends = true
	case h>>10 == 3: // move16
		in.src, in.dst = 1<<(h&31), 1<<(h>>5&31)
		in.frame = in.dst == 1<<mipsAT && in.src == 1<<mipsRA
	case h&0xfc01 == 0x4c01: // addiusp
		in.src, in.dst, in.frame = 1<<mipsSP, 1<<mipsSP, true
	}
	return in
}
