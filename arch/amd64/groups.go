package amd64

// group settles an opcode marked g: whether the form that prefixes and ModRM
// byte ask for exists, its class, and what follows where that depends on them.
func group(in *Inst, d desc) (desc, error) {
	ok := false
	if in.Map == 0 {
		d, ok = group0(in, d)
	} else {
		d, ok = group1(in, d)
	}
	if !ok {
		return 0, ErrInvalid
	}
	return d, nil
}

// group0 is group for opcodes of one byte.
func group0(in *Inst, d desc) (_ desc, ok bool) {
	m := in.ModRM
	mod3, reg := m >= 0xc0, m>>3&7
	ok = true
	switch in.Opcode {
	case 0x8c: // mov from a segment register
		ok = reg < 6
	case 0x8e: // mov to one, not to cs
		ok = reg < 6 && reg != 1
	case 0x8f: // pop
		ok = reg == 0
	case 0x90:
		if in.Prefix&PrefixRep != 0 || in.REX&1 != 0 { // pause, xchg with r8
			in.Op = Other
		}
	case 0xc6: // mov, xabort
		ok = reg == 0 || m == 0xf8
	case 0xc7: // mov, xbegin
		if m == 0xf8 {
			in.Op = Xbegin
			return d&^(immMask<<immShift) | rel32<<immShift, true
		}
		ok = reg == 0
	case 0xd8, 0xd9, 0xda, 0xdb, 0xdc, 0xdd, 0xde, 0xdf:
		if mod3 {
			ok = x87Reg[in.Opcode&7]>>(m&63)&1 != 0
		} else {
			ok = x87Mem[in.Opcode&7]>>reg&1 != 0
		}
	case 0xf6: // test has an immediate; not, neg, mul, imul, div, idiv have none
		if reg < 2 {
			d |= imm8 << immShift
		}
	case 0xf7:
		if reg < 2 {
			d |= immZ << immShift
		}
	case 0xfe:
		ok = reg < 2
	case 0xff:
		in.Op = groupFF[reg]
		ok = reg != 7 && !(mod3 && (reg == 3 || reg == 5)) // far pointers are in memory
	}
	return d, ok
}

// group1 is group for opcodes behind 0f.
func group1(in *Inst, d desc) (_ desc, ok bool) {
	m := in.ModRM
	mod3, reg := m >= 0xc0, m>>3&7
	f2, f3 := in.Prefix&PrefixRepne != 0, in.Prefix&PrefixRep != 0
	ok = true
	switch in.Opcode {
	case 0x00: // sldt ... verw; lkgs
		ok = reg < 6 || reg == 6 && f2
	case 0x01:
		if mod3 {
			ok = group7Reg>>(m&63)&1 != 0
		} else {
			ok = reg != 5 || f3 // rstorssp
		}
	case 0x0d: // prefetch
		ok = !mod3
	case 0x1e:
		if f3 && m == 0xfa {
			in.Op = Endbr64
		} else if f3 && m == 0xfb {
			in.Op = Endbr32
		}
	case 0x1f:
		if reg != 0 { // reserved nops
			in.Op = Other
		}
	case 0x20, 0x22: // mov to and from control registers 0, 2, 3, 4, 8; mod is ignored
		ok = (1<<0|1<<2|1<<3|1<<4)>>reg&1 != 0
		d |= dReg
	case 0x21, 0x23: // debug registers
		d |= dReg
	case 0x71, 0x72:
		ok = reg == 2 || reg == 4 || reg == 6
	case 0x73:
		ok = reg == 2 || reg == 3 || reg == 6 || reg == 7
	case 0x78: // vmread; SSE4a extrq and insertq take two immediate bytes
		if f2 || in.Prefix&PrefixOpSize != 0 {
			ok = mod3 && (f2 || reg == 0)
			d |= imm16 << immShift
		}
	case 0x79:
	case 0xa6: // VIA montmul, xsha1, xsha256, xsha512, ccs_hash
		ok = mod3 && m&7 == 0 && reg < 6 && reg != 3
	case 0xa7: // VIA xstore, xcrypt, ccs_encrypt
		ok = mod3 && m&7 == 0 && reg < 7
	case 0xae:
		ok = !mod3 || reg >= 5 || f3 && reg != 7
	case 0xb8: // popcnt
		ok = f3
	case 0xba:
		ok = reg >= 4
	case 0xc7: // cmpxchg8b, xrstors, xsavec, xsaves, vmptrld ...; rdrand, rdseed, rdpid, senduipi
		if mod3 {
			ok = reg >= 6
		} else {
			ok = reg != 0 && reg != 2
		}
	}
	return d, ok
}

// inc, dec, call, lcall, jmp, ljmp, push
var groupFF = [8]Op{Other, Other, CallInd, CallFar, JmpInd, JmpFar, Push, Other}

// group7Reg has a bit for each ModRM byte from c0 that 0f 01 has an instruction for, with any prefix.
const group7Reg uint64 = 0 |
	0xff<<0x00 | // c0-c7: enclv, vmcall, vmlaunch, vmresume, vmxoff, pconfig, wrmsrns, pbndkb
	0xff<<0x08 | // c8-cf: monitor, mwait, clac, stac, tdcall, seamret, seamops, encls
	0xf3<<0x10 | // d0, d1, d4-d7: xgetbv, xsetbv, vmfunc, xend, xtest, enclu
	0xff<<0x18 | // d8-df: AMD's virtual machine instructions
	0xff<<0x20 | // e0-e7: smsw
	0xf7<<0x28 | // e8-ea, ec-ef: serialize, saveprevssp, uiret, testui, clui, stui, rdpkru, wrpkru
	0xff<<0x30 | // f0-f7: lmsw
	0xff<<0x38 //   f8-ff: swapgs, rdtscp, monitorx, mwaitx, clzero, rdpru, invlpgb, tlbsync

// x87: a bit for each ModRM byte from c0 that exists after d8 ... df.
var x87Reg = [8]uint64{
	0xffffffffffffffff,
	0xffff7f330001ffff, // fld, fxch, fnop, fchs, fabs, ftst, fxam, fld1 ... fldz, f2xm1 ... fcos
	0x00000200ffffffff, // fcmovcc, fucompp
	0x00ffff1fffffffff, // fcmovncc, feni ... fsetpm, fucomi, fcomi
	0xffffffff0000ffff,
	0x0000ffffffff00ff, // ffree, fst, fstp, fucom, fucomp
	0xffffffff0200ffff, // fcompp
	0x00ffff01000000ff, // ffreep, fnstsw, fucomip, fcomip
}

// x87: a bit for each ModRM reg field that exists with a memory operand after d8 ... df.
var x87Mem = [8]byte{0xff, 0xfd, 0xff, 0xaf, 0xff, 0xdf, 0xff, 0xff}

// has3DNow reports whether 3DNow! has an operation with this code (AMD APM volume 3, 3DNow! opcodes).
func has3DNow(op byte) bool {
	switch op {
	case 0x0c, 0x0d, 0x1c, 0x1d, 0x8a, 0x8e, 0x90, 0x94, 0x96, 0x97, 0x9a, 0x9e,
		0xa0, 0xa4, 0xa6, 0xa7, 0xaa, 0xae, 0xb0, 0xb4, 0xb6, 0xb7, 0xbb, 0xbf:
		return true
	}
	return false
}
