package arm64

// An Access is what an instruction loads or stores at a register plus a constant: one register, or two that lie side by
// side. Only the address and the registers count, not what is done with the value.
type Access struct {
	Base  uint8  // the register, 31 for the stack pointer
	Disp  int64  // of the first byte from the base as it is before the instruction
	Size  uint8  // bytes of each register
	Store bool   // the registers go to memory
	Regs  []byte // in the order of memory; RegVector for those that are not general ones
	Index int64  // what is added to the base register, before or behind the access
}

// RegVector is a register of an [Access] that is not a general one.
const RegVector = 0xff

// AccessOf decodes loads and stores at a register plus a constant, without or with an index: ldr, str, ldp, stp and their
// kin, and not those that are exclusive, ordered or atomic. room is where Regs is kept. From DDI 0487, C4.1.
func AccessOf(w uint32, room *[2]byte) (Access, bool) {
	a := Access{Base: byte(w >> 5 & 31)}
	vector := w>>26&1 == 1
	switch {
	case w>>27&1 == 0 || w>>25&1 == 1:
		return a, false // another group
	case w>>28&3 == 2:
		return a.pair(w, room, vector)
	case w>>28&3 != 3:
		return a, false
	}
	size, op := w>>30, w>>22&3
	room[0] = byte(w & 31)
	if vector {
		room[0] = RegVector
		size |= op >> 1 << 2
		op &= 1
	} else if size == 3 && op == 2 {
		return a, false // a prefetch
	}
	if size > 4 {
		return a, false
	}
	a.Store, a.Size, a.Regs = op == 0, 1<<size, room[:1]
	switch {
	case w>>24&1 == 1:
		a.Disp = int64(w>>10&0xfff) << size
		return a, true
	case w>>21&1 == 1:
		return a, false
	}
	a.indexed(signed(w>>12, 9), w>>10&3)
	return a, true
}

// pair decodes ldp, stp and their kin.
func (a Access) pair(w uint32, room *[2]byte, vector bool) (Access, bool) {
	size := w >> 30
	room[0], room[1] = byte(w&31), byte(w>>10&31)
	switch {
	case vector:
		room[0], room[1] = RegVector, RegVector
		size += 2
	case size == 1: // ldpsw; or stgp, which stores a tag, too
		if size = 2; w>>22&1 == 0 {
			size = 3
		}
	default:
		size = 2 + size>>1
	}
	if size > 4 {
		return a, false
	}
	a.Store, a.Size, a.Regs = w>>22&1 == 0, 1<<size, room[:2]
	disp := signed(w>>15, 7) << size
	if w>>30 == 1 && a.Store && !vector {
		disp <<= 1 // in units of tags
	}
	switch w >> 23 & 3 {
	case 1:
		a.indexed(disp, 1)
	case 3:
		a.indexed(disp, 3)
	default:
		a.Disp = disp
	}
	return a, true
}

// indexed sets the displacement: how is 1 if the base changes behind the access, 3 if it does before.
func (a *Access) indexed(disp int64, how uint32) {
	switch how {
	case 1:
		a.Index = disp
	case 3:
		a.Disp, a.Index = disp, disp
	default:
		a.Disp = disp
	}
}
