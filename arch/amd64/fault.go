package amd64

// MayFault reports whether an instruction can raise a fault that its registers decide about: by an access to memory that may
// not be there, or by a division. Memory at the stack pointer, at what is relative to the instruction, and at registers of
// which safe says so, is there. raw holds the instruction's bytes. It returns true when in doubt, and so for all that is not
// usual between the calls of compiled code.
func (in Inst) MayFault(raw []byte, safe func(base int) bool) bool {
	switch in.Op {
	case Nop, Leave, Jmp, Jcc, Ret:
		return false
	case Push, Pop, JmpInd:
		return in.accessMayFault(raw, safe)
	case Other:
		return in.accessMayFault(raw, safe) || !in.isPlain()
	}
	return true
}

// accessMayFault reports that for the operand in memory that ModRM names, if it names one.
func (in Inst) accessMayFault(raw []byte, safe func(base int) bool) bool {
	if !in.HasModRM || in.ModRM>>6 == 3 || in.Enc == Legacy && in.Map == 0 && in.Opcode == 0x8d { // lea
		return false
	}
	if in.Enc != Legacy || in.Prefix&(PrefixAddrSize|PrefixSeg) != 0 {
		return true
	}
	if in.PCRel == PCRelMem {
		return false
	}
	m, ok := in.Memory(raw)
	return !ok || m.Base != RSP && !safe(m.Base)
}

// isPlain reports whether an instruction of class Other only computes, and moves data between registers and the operand
// that ModRM names (Intel SDM volume 2, appendix A).
func (in Inst) isPlain() bool {
	op, ext := in.Opcode, in.ModRM>>3&7
	switch {
	case in.Enc != Legacy:
		return false
	case in.Map == 0:
		switch {
		case op < 0x40: // arithmetic
			return op&7 < 6
		case op == 0xf6, op == 0xf7: // not div and idiv
			return ext < 6
		case op == 0xfe, op == 0xff: // inc, dec
			return ext < 2
		}
		return op == 0x63 || op == 0x69 || op == 0x6b || op >= 0x80 && op <= 0x8b || op == 0x8d || op >= 0x90 && op <= 0x99 ||
			op == 0xa8 || op == 0xa9 || op >= 0xb0 && op <= 0xc1 || op == 0xc6 || op == 0xc7 || op >= 0xd0 && op <= 0xd3
	case in.Map == 1: // vectors without names of general registers, and what is done to those
		return op >= 0x10 && op <= 0x17 || op >= 0x28 && op <= 0x2f || op >= 0x40 && op <= 0x6f || op >= 0x90 && op <= 0x9f ||
			op == 0x7e || op == 0x7f || op == 0xaf || op == 0xb6 || op == 0xb7 || op >= 0xbc && op <= 0xbf || op >= 0xc8 && op <= 0xcf ||
			op == 0xd6 || op == 0xef
	}
	return false
}
