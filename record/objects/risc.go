package objects

import (
	"debug/elf"
)

// Machines with 4-byte instructions. The relocation of a direct call is at the instruction, so a site is one word;
// what differs is the opcode and the relocations compilers use for it.

// callPPC: bl is 18 LI AA=0 LK=1 (Power ISA, "Branch I-form"); R_PPC_PLTREL24 with -fpic, R_PPC_LOCAL24PC (23) for
// calls that are known to stay inside.
func callPPC(c *code, off uint64, typ uint32) (hit, bool) {
	switch elf.R_PPC(typ) {
	case elf.R_PPC_REL24, elf.R_PPC_PLTREL24, 23:
		return c.branchPPC(off)
	}
	return hit{}, false
}

// Relocations of 64-bit Power that debug/elf lacks (Power Architecture 64-Bit ELF V2 ABI, "Relocation Types").
const (
	rPPC64PLT16Lo      = 29
	rPPC64PLT16Hi      = 30
	rPPC64PLT16Ha      = 31
	rPPC64PLT16LoDS    = 60
	rPPC64Rel24NoTOC   = 116
	rPPC64PLTSeq       = 119
	rPPC64PLTCall      = 120
	rPPC64PLTSeqNoTOC  = 121
	rPPC64PLTCallNoTOC = 122
	rPPC64Rel24P9NoTOC = 124
	rPPC64PLTPCRel34   = 134
	rPPC64PLTPCRel34No = 135
)

// callPPC64: bl, with a relocation of its own with -mcpu=power10. With -mlongcall or -fno-plt the address is loaded
// from the slot of the PLT, moved to the counter register and called by bctrl; compilers put other instructions between
// these, so the site is the bctrl.
func callPPC64(c *code, off uint64, typ uint32) (hit, bool) {
	switch typ {
	case uint32(elf.R_PPC64_REL24), rPPC64Rel24NoTOC, rPPC64Rel24P9NoTOC:
		return c.branchPPC(off)
	case rPPC64PLTCall, rPPC64PLTCallNoTOC:
		if w, ok := c.word32(off); ok && w == 0x4e800421 {
			return hit{len: 4, form: FormRegister}, true
		}
	case rPPC64PLT16Lo, rPPC64PLT16Hi, rPPC64PLT16Ha, rPPC64PLT16LoDS, rPPC64PLTSeq, rPPC64PLTSeqNoTOC,
		rPPC64PLTPCRel34, rPPC64PLTPCRel34No:
		return hit{form: formMore}, true // a sequence that ends with R_PPC64_PLTCALL
	}
	return hit{}, false
}

func (c *code) branchPPC(off uint64) (hit, bool) {
	if w, ok := c.word32(off); ok && w&0xfc000003 == 0x48000001 {
		return hit{len: 4, form: FormCall}, true
	}
	return hit{}, false
}

// callS390: the relocated word is two bytes into brasl, c0 R5 I2. Behind a prologue the compiler saves %r14 around the
// call, which belongs to the site because the three go together:
//
//	e3 e0 f0 08 00 24   stg %r14,8(%r15)
//	c0 e5 ........      brasl %r14,_mcount
//	e3 e0 f0 08 00 04   lg %r14,8(%r15)
//
// With -mfentry there is one brasl %r0,__fentry__.
func callS390(c *code, off uint64, typ uint32) (hit, bool) {
	t := elf.R_390(typ)
	if t != elf.R_390_PC32DBL && t != elf.R_390_PLT32DBL {
		return hit{}, false
	}
	b, ok := c.bytes(off-2, 6)
	if !ok || off < 2 || b[0] != 0xc0 || b[1]&15 != 5 {
		return hit{}, false
	}
	pre, ok1 := c.bytes(off-8, 6)
	post, ok2 := c.bytes(off+4, 6)
	if off >= 8 && ok1 && ok2 && string(pre) == "\xe3\xe0\xf0\x08\x00\x24" && string(post) == "\xe3\xe0\xf0\x08\x00\x04" {
		return hit{back: 8, len: 18, call: 2, form: FormSaved}, true
	}
	return hit{back: 2, len: 6, call: 2, form: FormCall}, true
}

// callSPARC: call is 01 disp30 (SPARC V9 manual, "Call and Link").
func callSPARC(c *code, off uint64, typ uint32) (hit, bool) {
	t := elf.R_SPARC(typ)
	if t != elf.R_SPARC_WDISP30 && t != elf.R_SPARC_WPLT30 {
		return hit{}, false
	}
	if w, ok := c.word32(off); ok && w>>30 == 1 {
		return hit{len: 4, form: FormCall}, true
	}
	return hit{}, false
}

// callRISCV: auipc and jalr through the same register, 8 bytes, which the linker may relax to one jump; or jal.
func callRISCV(c *code, off uint64, typ uint32) (hit, bool) {
	w, ok := c.word32(off)
	if !ok {
		return hit{}, false
	}
	switch elf.R_RISCV(typ) {
	case elf.R_RISCV_CALL, elf.R_RISCV_CALL_PLT:
		j, ok := c.word32(off + 4)
		rd := w >> 7 & 31
		if ok && w&0x7f == 0x17 && j&0x707f == 0x67 && j>>15&31 == rd && j>>7&31 != 0 {
			return hit{len: 8, form: FormCall}, true
		}
	case elf.R_RISCV_JAL:
		if w&0x7f == 0x6f && w>>7&31 != 0 {
			return hit{len: 4, form: FormCall}, true
		}
	}
	return hit{}, false
}

// LoongArch ELF psABI, "Relocation types".
const (
	rLarchMarkLA          = 20
	rLarchSopPushPLTPCRel = 29
	rLarchB26             = 66
	rLarchGOTPCHi20       = 75
	rLarchGOTPCLo12       = 76
	rLarchGOT64PCLo20     = 77
	rLarchGOT64PCHi12     = 78
	rLarchCall36          = 110
)

// callLoong: bl is 010101 offs; pcaddu18i and jirl with the medium model; pcalau12i, ld.d and jirl through the global
// offset table with -fno-plt, of which the first word counts; with the extreme model pcalau12i, addi.d, lu32i.d,
// lu52i.d, ldx.d and jirl.
func callLoong(c *code, off uint64, typ uint32) (hit, bool) {
	w, ok := c.word32(off)
	if !ok {
		return hit{}, false
	}
	switch typ {
	case rLarchB26, rLarchSopPushPLTPCRel:
		if w>>26 == 0x15 {
			return hit{len: 4, form: FormCall}, true
		}
	case rLarchCall36:
		j, ok := c.word32(off + 4)
		if ok && w>>25 == 0xf && j>>26 == 0x13 && j>>5&31 == w&31 && j&31 != 0 {
			return hit{len: 8, form: FormCall}, true
		}
	case rLarchGOTPCHi20:
		ld, ok1 := c.word32(off + 4)
		j, ok2 := c.word32(off + 8)
		if ok1 && ok2 && w>>25 == 0xd && ld>>22 == 0xa3 && j>>26 == 0x13 && j>>5&31 == ld&31 && j&31 != 0 {
			return hit{len: 12, call: 0xf8, form: FormGOT}, true
		}
		ldx, ok1 := c.word32(off + 16)
		j, ok2 = c.word32(off + 20)
		if ok1 && ok2 && w>>25 == 0xd && ldx>>15 == 0x7018 && j>>26 == 0x13 && j>>5&31 == ldx&31 && j&31 != 0 {
			return hit{len: 24, call: 0xec, form: FormGOT}, true
		}
	case rLarchGOTPCLo12, rLarchGOT64PCLo20, rLarchGOT64PCHi12: // one, two and three words behind the first
		back := uint64(typ-rLarchGOTPCLo12+1) * 4
		if p, ok := c.word32(off - back); ok && off >= back && p>>25 == 0xd {
			return hit{form: formMore}, true
		}
	case rLarchMarkLA: // of la.global, whose jirl follows the load: up to the five instructions of an absolute address
		reg := w & 31
		for k := uint64(1); k <= 5; k++ {
			if j, ok := c.word32(off + 4*k); ok && j>>26 == 0x13 && j>>5&31 == reg && j&31 != 0 {
				return hit{len: uint8(4*k + 4), call: uint8(256 - 4*k), form: FormRegister}, true
			}
		}
	}
	return hit{}, false
}
