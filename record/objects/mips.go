package objects

import "debug/elf"

// MIPS calls _mcount in one of three ways, each behind move $at,$ra:
//
//	jal _mcount                                          R_MIPS_26; microMIPS: R_MICROMIPS_26_S1
//	lui $3,%hi ; addiu $3,%lo ; jalr $3                  R_MIPS_HI16, R_MIPS_LO16; -mlong-calls
//	lw|ld $25,%call16(_mcount)($gp) ; jalr $25           R_MIPS_CALL16, R_MIPS_JALR; position independent code
//
// The site of the latter two is the load, if the call follows it, so the relocations behind it belong to that site;
// where the compiler has moved the load away, it is the jalr.

const (
	rMIPSMicro26S1 = 133
	rMIPSMicroCALL = 142 // R_MICROMIPS_CALL16
	rMIPSMicroJALR = 156
	mipsT9         = 25
	mipsCallWindow = 4 // instructions between %hi and the jalr: addiu, move, daddiu of the stack pointer
	mipsJALRMask   = 0xfc1f003f
	mipsJALR       = 0x00000009
)

func callMIPS(c *code, off uint64, typ uint32) (hit, bool) {
	w, ok := c.word32(off)
	if !ok {
		return hit{}, false
	}
	switch elf.R_MIPS(typ & 0xff) { // N64 composes three types, of which the first one names the symbol
	case elf.R_MIPS_26:
		if w>>26 == 3 {
			return hit{len: 4, form: FormCall}, true
		}
	case elf.R_MIPS_HI16:
		if w>>26 == 0xf { // lui
			if k := c.jalrMIPS(off, w>>16&31, mipsCallWindow+1); k > 0 {
				return hit{len: uint8(4*k + 4), call: uint8(256 - 4*k), form: FormRegister}, true
			}
		}
	case elf.R_MIPS_LO16:
		p, ok := c.word32(off - 4)
		if ok && off >= 4 && p>>26 == 0xf && c.jalrMIPS(off-4, p>>16&31, mipsCallWindow+1) > 0 {
			return hit{form: formMore}, true
		}
	case elf.R_MIPS_CALL16, elf.R_MIPS_GOT_DISP, elf.R_MIPS_GOT16:
		if op := w >> 26; op == 0x23 || op == 0x37 { // lw, ld
			reg := w >> 16 & 31
			switch k := c.jalrMIPS(off, reg, mipsCallWindow); {
			case k == 1:
				return hit{len: 8, call: 0xfc, form: FormGOT}, true
			case k > 1:
				return hit{form: formMore}, true // recorded at the jalr
			}
		}
	case elf.R_MIPS_JALR:
		if w&mipsJALRMask&^(31<<11) == mipsJALR {
			if p, ok := c.word32(off - 4); ok && off >= 4 && (p>>26 == 0x23 || p>>26 == 0x37) && p>>16&31 == w>>21&31 {
				return hit{form: formMore}, true
			}
			return hit{len: 4, form: FormRegister}, true
		}
	case rMIPSMicro26S1:
		if h, ok := c.half(off); ok && h>>10 == 0x3d { // jal: 111101
			return hit{len: 4, form: FormCall}, true
		}
	}
	return hit{}, false
}

// jalrMIPS returns how many instructions behind off a jalr of that register is, 0 when none is near.
func (c *code) jalrMIPS(off uint64, reg uint32, window uint64) uint64 {
	for k := uint64(1); k <= window; k++ {
		w, ok := c.word32(off + 4*k)
		if !ok {
			return 0
		}
		if w&0xfc1f003f&^(31<<11) == mipsJALR && w>>21&31 == reg {
			return k
		}
	}
	return 0
}
