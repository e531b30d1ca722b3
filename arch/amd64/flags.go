package amd64

// Which status flags instructions use and change (Intel SDM volume 1, appendix A; volume 2).
//
// The calling convention says that no function gets or returns anything in flags, and compilers keep to it; code
// written by hand need not. Whoever puts code at a function's ends, which changes flags, has to see whether they matter.
// Two groups suffice: increments and bit tests change one and leave the other. A flag that an instruction leaves in an
// undefined state is gone, too. Comparisons of floating-point numbers set three flags of the six, on some processors; no
// code looks at the others behind one.

// Flags is a set of groups of status flags.
type Flags uint8

const (
	FlagCarry  Flags = 1 << iota // CF
	FlagOthers                   // OF, SF, ZF, AF, PF

	AllFlags = FlagCarry | FlagOthers
)

// FlagUse returns the flags whose values an instruction may depend on, and those whose old values are certainly gone
// behind it. The direction flag is not one of them. Calls and returns count as neither. raw holds the instruction's bytes.
func (in Inst) FlagUse(raw []byte) (reads, kills Flags) {
	switch {
	case in.Op == Jcc:
		return condition(in.Cond), 0
	case in.Op == Loop:
		return FlagOthers, 0
	case in.Enc != Legacy:
		return 0, vectorFlags(in)
	case in.Map == 0:
		if in.Opcode == 0xc0 || in.Opcode == 0xc1 {
			if in.ModRM>>3&7 >= 4 && in.shifts(raw) {
				return 0, AllFlags
			}
		}
		return oneByteFlags(in.Opcode, in.ModRM)
	case in.Map == 1 && (in.Opcode == 0xa4 || in.Opcode == 0xac) && in.shifts(raw): // shld, shrd
		return 0, AllFlags
	case in.Map == 1:
		return twoByteFlags(in.Opcode, in.ModRM, in.Prefix)
	case in.Map == 2 && in.Opcode == 0xf6: // adcx, adox
		return AllFlags, 0
	case in.Map == 2 && in.Opcode == 0x17, // ptest
		in.Map == 3 && in.Opcode >= 0x60 && in.Opcode <= 0x63: // pcmpestrm and its kin
		return 0, AllFlags
	}
	return 0, 0
}

// shifts reports whether the constant that a shift has is a distance, and not none, by which nothing changes.
func (in Inst) shifts(raw []byte) bool {
	mask := byte(0x1f)
	if in.REX&8 != 0 {
		mask = 0x3f
	}
	return raw[len(raw)-1]&mask != 0
}

// vectorFlags is what is gone behind an instruction with a VEX or EVEX prefix. None reads flags.
func vectorFlags(in Inst) (kills Flags) {
	switch {
	case in.Enc != VEX && in.Enc != EVEX:
	case in.Map == 1 && (in.Opcode == 0x2e || in.Opcode == 0x2f): // vucomis, vcomis
		return AllFlags
	case in.Enc != VEX:
	case in.Map == 1 && (in.Opcode == 0x98 || in.Opcode == 0x99), // kortest, ktest
		in.Map == 2 && (in.Opcode == 0x0e || in.Opcode == 0x0f || in.Opcode == 0x17), // vtestps, vtestpd, vptest
		in.Map == 2 && (in.Opcode == 0xf2 || in.Opcode == 0xf3),                      // andn; blsr, blsmsk, blsi
		in.Map == 3 && in.Opcode >= 0x60 && in.Opcode <= 0x63:                        // vpcmpestrm and its kin
		return AllFlags
	}
	return 0
}

// condition is what condition code cc depends on: b, ae on the carry, be and a on both, the others on others.
func condition(cc byte) Flags {
	switch cc >> 1 {
	case 1:
		return FlagCarry
	case 3:
		return AllFlags
	}
	return FlagOthers
}

func oneByteFlags(op, modrm byte) (reads, kills Flags) {
	ext := modrm >> 3 & 7
	switch {
	case op < 0x40 && op&7 < 6:
		return arithmetic(op >> 3)
	case op == 0x80, op == 0x81, op == 0x83:
		return arithmetic(ext)
	case op == 0x69, op == 0x6b, op == 0x84, op == 0x85, op == 0xa8, op == 0xa9, op == 0x9e: // imul, test, sahf
		return 0, AllFlags
	case op == 0xa6, op == 0xa7, op == 0xae, op == 0xaf: // cmps, scas: a repetition of none changes nothing
		return 0, 0
	case op == 0x9c, op == 0x9f: // pushf, lahf
		return AllFlags, 0
	case op == 0xc0, op == 0xc1, op >= 0xd0 && op <= 0xd3:
		switch {
		case ext == 2 || ext == 3: // rcl, rcr
			return FlagCarry, 0
		case ext < 2, op != 0xd0 && op != 0xd1: // rol, ror; counts that can be zero
			return 0, 0
		}
		return 0, AllFlags
	case op == 0xf6, op == 0xf7:
		if ext == 2 { // not
			return 0, 0
		}
		return 0, AllFlags
	case op == 0xf5: // cmc
		return FlagCarry, FlagCarry
	case op == 0xf8, op == 0xf9: // clc, stc
		return 0, FlagCarry
	case op == 0xfe, op == 0xff: // inc, dec
		if ext < 2 {
			return 0, FlagOthers
		}
	case op == 0xda, op == 0xdb, op == 0xdf:
		switch {
		case op != 0xdf && modrm >= 0xc0 && modrm < 0xe0: // fcmov
			return AllFlags, 0
		case op != 0xda && modrm >= 0xe8 && modrm < 0xf8: // fucomi, fcomi, fucomip, fcomip
			return 0, AllFlags
		}
	}
	return 0, 0
}

// arithmetic is for add, or, adc, sbb, and, sub, xor, cmp.
func arithmetic(which byte) (reads, kills Flags) {
	if which == 2 || which == 3 {
		return FlagCarry, AllFlags
	}
	return 0, AllFlags
}

func twoByteFlags(op, modrm byte, p Prefix) (reads, kills Flags) {
	switch {
	case op >= 0x40 && op <= 0x4f, op >= 0x90 && op <= 0x9f: // cmov, set
		return condition(op & 15), 0
	case op == 0x2e, op == 0x2f: // ucomis, comis
		return 0, AllFlags
	case op == 0xaf, op == 0xb0, op == 0xb1, op == 0xc0, op == 0xc1: // imul, cmpxchg, xadd
		return 0, AllFlags
	case op == 0xb8 && p&PrefixRep != 0, op == 0xbc, op == 0xbd: // popcnt; bsf, bsr, tzcnt, lzcnt
		return 0, AllFlags
	case op == 0xa3, op == 0xab, op == 0xb3, op == 0xbb, op == 0xba: // bt and its kin
		return 0, FlagCarry
	case op == 0xc7 && modrm>>3&7 == 6, op == 0xc7 && modrm>>3&7 == 7: // rdrand, rdseed
		return 0, AllFlags
	}
	return 0, 0
}
