package arm64

// Which registers an instruction may change, by its group alone: whoever follows a prologue needs an answer for every
// instruction there will ever be, and one that says yes too often only makes him give up.

import "math/bits"

// Writes returns the set of general registers that an instruction may write, bit 31 for the stack pointer. In doubt a
// register is in the set. Branches and calls are for the caller to handle. From the Arm Architecture Reference Manual
// for A-profile (DDI 0487), C4.1: bits 28 to 25 select the group.
func Writes(w uint32) uint32 {
	rd, rn, rt2, rs := uint32(1)<<(w&31), uint32(1)<<(w>>5&31), uint32(1)<<(w>>10&31), uint32(1)<<(w>>16&31)
	const sp = 1 << 31
	switch op := w >> 25 & 15; {
	case op>>1 == 4: // data processing, immediates: the stack pointer only where flags are not set
		switch {
		case w>>23&7 == 2 && w>>29&1 == 0, w>>23&7 == 3: // add, sub; with tags
			return rd
		case w>>23&7 == 4 && w>>29&3 != 3: // and, orr, eor
			return rd
		}
		return rd &^ sp
	case op>>1 == 5: // branches, exceptions, system
		if w&0xffc00000 == 0xd5000000 && w>>21&1 == 1 { // mrs, sysl
			return rd &^ sp
		}
		return 0
	case op&7 == 5: // data processing, registers: add and sub of extended ones write the stack pointer
		if w>>24&31 == 11 && w>>21&1 == 1 && w>>29&1 == 0 || w&0xffe0fc00 == 0x9ac01000 { // irg
			return rd
		}
		return rd &^ sp
	case op&5 == 4: // loads and stores
		return loadWrites(w, rd, rn, rt2, rs)
	case op&7 == 7: // vectors, floating point: some write a general register
		return rd &^ sp
	}
	return rd // scalable vectors and what is not allocated: addvl, addpl, rdvl, counts
}

func loadWrites(w, rt, rn, rt2, rs uint32) uint32 {
	const sp = 1 << 31
	vector := w>>26&1 == 1
	data := rt &^ sp
	if vector {
		data = 0
	}
	switch kind := w >> 28 & 3; {
	case kind == 2: // pairs
		out := uint32(0)
		if w>>22&1 == 1 && !vector {
			out = (rt | rt2) &^ sp
		}
		if w>>23&1 == 1 { // index
			out |= rn
		}
		return out
	case kind == 1 && w>>24&1 == 0: // literals
		return data
	case kind == 1: // tags, copies and fills
		return rt&^sp | rn | rs&^sp
	case kind == 0 && vector: // structures of vectors
		if w>>23&1 == 1 {
			return rn
		}
		return 0
	case kind == 0: // exclusive, ordered, compare and swap
		return (rt | rt2 | rs | rs<<1) &^ sp
	case w>>24&1 == 1: // unsigned offset
		if w>>22&3 == 0 {
			return 0 // store
		}
		return data
	case w>>21&1 == 1: // register offset, atomics, authenticated loads
		if w>>10&3 == 2 && w>>22&3 == 0 {
			return 0
		}
		if w>>10&1 == 1 {
			data |= rn
		}
		return data
	}
	out := uint32(0) // a signed offset
	if w>>22&3 != 0 {
		out = data
	}
	if w>>10&1 == 1 { // index
		out |= rn
	}
	return out
}

// BitMask decodes the immediate of 64-bit and, orr and eor (DDI 0487, "DecodeBitMasks").
func BitMask(w uint32) (uint64, bool) {
	n, r, s := w>>22&1, int(w>>16&63), w>>10&63
	size := 1 << (31 - bits.LeadingZeros32(n<<6|^s&63))
	if n<<6|^s&63 == 0 || size < 2 {
		return 0, false
	}
	ones := int(s) & (size - 1)
	if ones == size-1 {
		return 0, false
	}
	e := uint64(1)<<(ones+1) - 1
	r &= size - 1
	if r != 0 {
		e = e>>r | e<<(size-r)
	}
	if size < 64 {
		e &= 1<<size - 1
	}
	for ; size < 64; size *= 2 {
		e |= e << size
	}
	return e, true
}
