package arm64

// Which registers and flags an instruction depends on, by its group, as Writes says which it changes: whoever puts code
// in front of an instruction, or moves it, has to know what must still be there. Here, too, a register is named in
// doubt. That is so for scalable vectors, whose operands are not told apart, and for what is not allocated.

// IsSVE reports whether an instruction is one of scalable vectors (DDI 0487, C4.1: op0 is 0010).
func IsSVE(w uint32) bool { return w>>25&15 == 2 }

// Reads returns the set of general registers that an instruction may read, bit 31 for the stack pointer or for zero. What
// instructions that sign and authenticate the return address do with x30 does not count, nor that ret goes there. From
// the Arm Architecture Reference Manual for A-profile (DDI 0487), C4.1.
func Reads(w uint32) uint32 {
	rd, rn, rt2, rm := uint32(1)<<(w&31), uint32(1)<<(w>>5&31), uint32(1)<<(w>>10&31), uint32(1)<<(w>>16&31)
	switch op := w >> 25 & 15; {
	case op>>1 == 4:
		return immediateReads(w, rd, rn, rm)
	case op>>1 == 5:
		return systemReads(w, rd, rn, rm)
	case op&7 == 5:
		return registerReads(w, rd, rn, rt2, rm)
	case op&5 == 4:
		return memoryReads(w, rd, rn, rt2, rm)
	case op&7 == 7:
		return vectorReads(w, rn)
	}
	return rd | rn | rm
}

// immediateReads is for data processing with immediates.
func immediateReads(w, rd, rn, rm uint32) uint32 {
	switch w >> 23 & 7 {
	case 0, 1: // adr, adrp
		return 0
	case 5: // movz, movn, movk
		if w>>29&3 == 3 {
			return rd
		}
		return 0
	case 6: // bit fields: bfm leaves the other bits
		if w>>29&3 == 1 {
			return rd | rn
		}
	case 7: // extr
		return rn | rm
	}
	return rn
}

// systemReads is for branches, exceptions and system instructions.
func systemReads(w, rd, rn, rm uint32) uint32 {
	in := DecodeWord(w)
	switch in.Op {
	case Cbz, Tbz:
		return rd
	case Cb:
		if w>>24&1 == 0 {
			return rd | rm
		}
		return rd
	case CallInd, JmpInd:
		if w>>24&1 == 1 { // with a modifier
			return rn | rd
		}
		return rn
	case Ret:
		if in.Reg == 30 {
			return 0
		}
		return rn
	case Pac, Aut:
		if w>>8&15 == 1 { // of x17 with x16
			return 1<<16 | 1<<17
		}
		return 0
	case Hint:
		if w == 0xd503251f { // chkfeat x16
			return 1 << 16
		}
		return 0
	}
	if w>>24 == 0xd5 && w>>21&1 == 0 && rd != 1<<31 { // msr, sys, wfet
		if w>>22&1 == 1 { // pairs
			return rd | rd<<1
		}
		return rd
	}
	return 0
}

// registerReads is for data processing with registers.
func registerReads(w, rd, rn, ra, rm uint32) uint32 {
	switch {
	case w>>28&1 == 0: // logical, add, sub
		return rn | rm
	case w>>24&1 == 1: // three sources
		return rn | rm | ra
	}
	switch w >> 21 & 7 {
	case 0: // with carry; rmif, setf
		if w>>10&63 != 0 {
			return rn
		}
	case 2: // conditional comparisons, of a constant as well
		if w>>11&1 == 1 {
			return rn
		}
	case 6:
		if w>>30&1 == 0 {
			break
		}
		if rm == 1<<1 { // pacia and its kin
			return rd | rn
		}
		return rn
	}
	return rn | rm
}

// memoryReads is for loads and stores.
func memoryReads(w, rt, rn, rt2, rs uint32) uint32 {
	data, pair := rt, rt|rt2
	if w>>26&1 == 1 {
		data, pair = 0, 0
	}
	load := w>>22&1 == 1
	switch w >> 28 & 3 {
	case 0:
		switch {
		case w>>26&1 == 1 && w>>23&1 == 1: // structures of vectors, with an index
			return rn | rs
		case w>>26&1 == 1:
			return rn
		}
		return rn | exclusiveReads(w, rt, rt2, rs)
	case 1:
		switch {
		case w>>24&1 == 0: // literals
			return 0
		case w>>24 == 0xd9 && w>>21&1 == 1: // tags
			return rn | rt
		case w>>21&1 == 0 && w>>10&3 == 0: // ldapur, stlur
			if w>>22&3 == 0 {
				return rn | data
			}
			return rn
		}
		return rn | rt | rt2 | rs
	case 2:
		if load {
			return rn
		}
		return rn | pair
	}
	if w>>24&1 == 0 && w>>21&1 == 1 {
		switch w >> 10 & 3 {
		case 0: // atomics; of 64 bytes in doubt
			if w>>15&1 == 1 && w>>12&7 != 0 && w>>12&7 != 4 {
				return rn | rs | rt
			}
			return rn | rs
		case 2: // the index in a register
			rn |= rs
		default: // authenticated
			return rn
		}
	}
	if w>>22&3 == 0 {
		return rn | data
	}
	return rn
}

// exclusiveReads is for exclusive and ordered accesses, and compare and swap.
func exclusiveReads(w, rt, rt2, rs uint32) uint32 {
	const sp = 1 << 31
	switch w >> 21 & 5 {
	case 5: // cas
		return rs | rt
	case 1:
		if w>>31 == 0 { // casp
			return rs | rs<<1 | rt | rt<<1
		}
		rt |= rt2
	}
	if w>>22&1 == 1 {
		return 0
	}
	return rt &^ sp
}

// vectorReads is for vectors and floating point: what comes from a general register.
func vectorReads(w, rn uint32) uint32 {
	switch {
	case w&0x5f000000 == 0x1e000000 && (w>>21&1 == 0 || w>>10&63 == 0): // conversions: scvtf, ucvtf, fmov
		if op := w >> 16 & 7; op == 2 || op == 3 || op == 7 {
			return rn
		}
	case w&0xbfe0fc00 == 0x0e000c00, w&0xffe0fc00 == 0x4e001c00: // dup, ins
		return rn
	}
	return 0
}

// FlagUse reports whether an instruction may depend on the flags, and whether their old values are certainly gone behind
// it. Calls and returns count as neither.
func FlagUse(w uint32) (reads, kills bool) {
	switch op := w >> 25 & 15; {
	case op>>1 == 4:
		return false, w>>23&7 == 2 && w>>29&1 == 1 || w>>23&7 == 4 && w>>29&3 == 3
	case op>>1 == 5:
		switch {
		case DecodeWord(w).Op == Jcc, w&0xffffffe0 == 0xd53b4200: // mrs nzcv
			return true, false
		case w&0xffffff1f == 0xd500401f: // cfinv, xaflag, axflag
			return true, false
		}
		return false, w&0xffffffe0 == 0xd51b4200 // msr nzcv
	case op&7 == 5 && w>>28&1 == 0:
		return false, w>>24&1 == 1 && w>>29&1 == 1 || w>>24&1 == 0 && w>>29&3 == 3
	case op&7 == 5 && w>>24&1 == 0:
		switch w >> 21 & 7 {
		case 0:
			return w>>10&63 == 0, w>>10&63 == 0 && w>>29&1 == 1
		case 2:
			return true, true
		case 4:
			return true, false
		}
	case op&7 == 7 && w&0xff200000 == 0x1e200000: // of one floating-point number
		switch {
		case w>>10&3 == 1:
			return true, true // fccmp
		case w>>10&3 == 3:
			return true, false // fcsel
		}
		return false, w>>10&15 == 8 // fcmp
	}
	return false, false
}
