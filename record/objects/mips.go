package objects

import "debug/elf"

// MIPS calls _mcount by jal, or loads its address into a register and calls that:
//
//	jal _mcount                                     R_MIPS_26
//	lui $3 ; addiu $3 ; jalr $3                     R_MIPS_HI16, _LO16; -mlong-calls
//	lui $3 ; lui $at ; daddiu $3 ; daddiu $at ;     R_MIPS_HIGHEST, _HI16, _HIGHER, _LO16; -mlong-calls with
//	  dsll32 $3 ; daddu $3,$at ; jalr $3            addresses of 64 bits
//	lw|ld $25,($gp) ; jalr $25                      R_MIPS_CALL16, _JALR; position-independent code
//	lui $25 ; addu $25,$gp ; lw $25 ; jalr $25      R_MIPS_CALL_HI16, _CALL_LO16, _JALR; the same with -mxgot
//
// Assemblers and compilers order these instructions as they like, use other registers for parts of the address and put
// move $at,$ra and more in between. So no sequence is written down here: from the instruction of each relocation the
// value is followed through the registers to the jalr that calls it, and all relocations that lead to one jalr are one
// site. It begins at the first of them if nothing but the load of the address and what a call of _mcount needs stands
// between it and the jalr; otherwise it is the jalr alone.
//
// microMIPS (micromips.go) differs in its encoding and in the numbers of its relocations.

// mipsInsn is what following a value needs to know of an instruction.
type mipsInsn struct {
	size  uint64
	src   uint32 // set of the registers it reads that a result depends on
	dst   uint32 // set of the registers it writes
	calls uint32 // the register it calls, 0 for none
	ends  bool   // the value is not followed beyond: a branch, another call, bytes that are no instruction
	frame bool   // it may stand inside a site: move $at,$ra, and addiu $sp
}

const (
	mipsSP     = 29
	mipsRA     = 31
	mipsAT     = 1
	mipsWindow = 24 // instructions a value is followed
)

func callMIPS(c *code, off uint64, typ uint32) (hit, bool) {
	t := elf.R_MIPS(typ & 0xff) // N64 composes three types, of which the first one names the symbol
	if t >= rMicroFirst && t <= rMicroLast {
		return c.callMicroMIPS(off, t)
	}
	switch t {
	case elf.R_MIPS_26:
		if w, ok := c.word32(off); ok && w>>26 == 3 {
			return hit{len: 4, form: FormCall}, true
		}
	case elf.R_MIPS_HI16, elf.R_MIPS_HIGHEST, elf.R_MIPS_LO16, elf.R_MIPS_HIGHER:
		return c.followMIPS((*code).insnMIPS, off, FormRegister)
	case elf.R_MIPS_CALL_HI16, elf.R_MIPS_GOT_HI16, elf.R_MIPS_CALL_LO16, elf.R_MIPS_GOT_LO16, elf.R_MIPS_CALL16,
		elf.R_MIPS_GOT_DISP, elf.R_MIPS_GOT16:
		return c.followMIPS((*code).insnMIPS, off, FormGOT)
	case elf.R_MIPS_JALR:
		if in := c.insnMIPS(off); in.calls != 0 {
			return hit{len: uint8(in.size), form: FormRegister}, true
		}
	}
	return hit{}, false
}

// followMIPS follows the register that the instruction at off writes to the instruction that calls it.
func (c *code) followMIPS(decode func(*code, uint64) mipsInsn, off uint64, form Form) (hit, bool) {
	first := decode(c, off)
	var seen [mipsWindow]mipsInsn
	at, value := off+first.size, first.dst
	for n := 0; n < mipsWindow && value != 0 && !first.ends; n++ {
		in := decode(c, at)
		if in.calls != 0 && value&(1<<in.calls) != 0 {
			if wholeMIPS(seen[:n], in.calls) {
				return hit{len: uint8(at + in.size - off), call: uint8(off - at), form: form}, true
			}
			return hit{back: uint8(off - at), len: uint8(in.size), call: uint8(off - at), form: FormRegister}, true
		}
		if in.ends {
			break
		}
		if in.src&value != 0 {
			value |= in.dst
		} else {
			value &^= in.dst
		}
		seen[n] = in
		at += in.size
	}
	return hit{}, false
}

// wholeMIPS reports whether instructions do nothing but load the register that is called behind them, and what a call
// of _mcount needs.
func wholeMIPS(l []mipsInsn, reg uint32) bool {
	need := uint32(1) << reg
	for i := len(l) - 1; i >= 0; i-- {
		switch in := &l[i]; {
		case in.dst&need != 0:
			need = need&^in.dst | in.src
		case !in.frame:
			return false
		}
	}
	return true
}

// insnMIPS reads an instruction (MIPS64 Instruction Set, MD00087, "Instruction Formats").
func (c *code) insnMIPS(off uint64) mipsInsn {
	w, ok := c.word32(off)
	if !ok {
		return mipsInsn{ends: true}
	}
	in := mipsInsn{size: 4}
	rs, rt, rd := w>>21&31, w>>16&31, w>>11&31
	switch op := w >> 26; {
	case op == 0 && w&0x3e == 8: // jr, jalr
		in.ends = true
		if w&1 != 0 && rd == mipsRA {
			in.calls = rs
		}
	case op == 0x3e && rs == 0 && w&0xffff == 0: // jialc rt,0 of release 6, written jalrc
		in.calls, in.ends = rt, true
	case op == 0: // SPECIAL: arithmetic, shifts
		in.src, in.dst = 1<<rs|1<<rt, 1<<rd
		in.frame = rd == mipsAT && rs == mipsRA
	case op == 0xf: // lui
		in.src, in.dst = 1<<rs, 1<<rt
	case op >= 8 && op < 0xf, op == 0x18, op == 0x19: // addiu and its like, daddi, daddiu
		in.src, in.dst = 1<<rs, 1<<rt
		in.frame = rs == mipsSP && rt == mipsSP
	case op == 0x1a, op == 0x1b, op >= 0x20 && op < 0x28, op == 0x37: // loads
		in.src, in.dst = 1<<rs, 1<<rt
	case op >= 0x28 && op < 0x30, op == 0x3f: // stores
	default: // branches, calls, coprocessors
		in.ends = true
	}
	in.src, in.dst = in.src&^1, in.dst&^1 // $0
	return in
}
