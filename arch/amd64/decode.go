package amd64

import "errors"

// Errors returned by Decode. They are plain values, so that decoding never allocates; the caller knows the address
// and adds it.
var (
	// ErrTruncated: the bytes end before the instruction does.
	ErrTruncated = errors.New("amd64: instruction is cut off")
	// ErrInvalid: processors raise #UD for this in 64-bit mode, whatever follows.
	ErrInvalid = errors.New("amd64: no such instruction")
	// ErrTooLong: more than 15 bytes.
	ErrTooLong = errors.New("amd64: instruction longer than 15 bytes")
	// ErrUndecided: processors disagree about length or target, or the meaning is not settled.
	ErrUndecided = errors.New("amd64: instruction that processors decode differently")
)

const maxLen = 15

// Decode decodes the instruction at the start of code, in 64-bit mode. It
// reads at most 15 bytes, allocates nothing, and never panics. The errors are
// ErrTruncated, ErrInvalid, ErrTooLong and ErrUndecided.
func Decode(code []byte) (in Inst, err error) {
	parsed.Do(parseMaps)
	short := ErrTruncated
	if len(code) >= maxLen {
		code, short = code[:maxLen], ErrTooLong
	}
	i := 0
	var b byte
	var d desc
	for {
		if i >= len(code) {
			return Inst{}, short
		}
		b = code[i]
		d = map0[b]
		if d&dPrefix == 0 {
			break
		}
		if b&0xf0 == 0x40 {
			// Without effect unless the opcode follows: another prefix cancels it.
			in.REX = b
			i++
			continue
		}
		p := prefixes[b]
		if p == 0 {
			break // an escape
		}
		in.REX = 0
		if p&(PrefixRep|PrefixRepne) != 0 {
			in.Prefix &^= PrefixRep | PrefixRepne
		}
		in.Prefix |= p
		i++
	}

	i++
	if b == 0x0f && i < len(code) && map1[code[i]]&dPrefix == 0 {
		in.Map, in.Opcode = 1, code[i] // what escape does, for speed
		d = map1[code[i]]
		i++
	} else if d&dPrefix != 0 {
		d, i, err = escape(&in, code, i, b, short)
		if err != nil {
			return Inst{}, err
		}
	} else {
		in.Opcode = b
	}
	if d&dValid == 0 {
		return Inst{}, ErrInvalid
	}
	in.Op = Op(d >> opShift)

	if d&dModRM != 0 {
		if i >= len(code) {
			return Inst{}, short
		}
		m := code[i]
		i++
		in.ModRM, in.HasModRM = m, true
		if m >= 0xc0 {
			if d&dMem != 0 {
				return Inst{}, ErrInvalid
			}
		} else if d&dReg != 0 {
			return Inst{}, ErrInvalid
		}
		if d&dGroup != 0 {
			if d, err = group(&in, d); err != nil {
				return Inst{}, err
			}
		}
		if f := modrmForms[m]; f&formReg == 0 && d&dReg == 0 {
			n := int(f & formDisp)
			if f&formSIB != 0 {
				if i >= len(code) {
					return Inst{}, short
				}
				if m < 0x40 && code[i]&7 == 5 {
					n = 4 // no base
				}
				i++
			}
			i += n
			if i > len(code) {
				return Inst{}, short
			}
			if f&formRIP != 0 {
				in.PCRel, in.PCOff, in.PCSize = PCRelMem, i-4, 4
				in.Disp = int64(get32(code[i-4:]))
			}
		}
	} else if d&dGroup != 0 {
		if d, err = group(&in, d); err != nil {
			return Inst{}, err
		}
	}

	if k := d >> immShift & immMask; k != immNone {
		if k >= rel8 {
			if err = branch(&in, code, i, k, short); err != nil {
				return Inst{}, err
			}
			return in, nil
		}
		n := immLens[k]
		switch k {
		case immV:
			if in.REX&8 != 0 {
				n = 8
				break
			}
			fallthrough
		case immZ:
			if in.Prefix&PrefixOpSize != 0 && in.REX&8 == 0 {
				n = 2
			}
		case immMoffs:
			if in.Prefix&PrefixAddrSize != 0 {
				n = 4
			}
		}
		in.ImmLen = n
		i += n
		if i > len(code) {
			return Inst{}, short
		}
	}
	if in.Opcode == 0x0f && in.Map == 1 && in.Enc == Legacy {
		in.Enc = Now3D
		if !has3DNow(code[i-1]) {
			return Inst{}, ErrInvalid
		}
	}
	in.Len = i
	return in, nil
}

// branch finishes an instruction that ends in a branch displacement at i.
func branch(in *Inst, code []byte, i int, k desc, short error) error {
	narrow := in.Prefix&PrefixOpSize != 0 && in.REX&8 == 0
	in.PCRel, in.PCOff, in.PCSize = PCRelBranch, i, 4
	switch {
	case in.Op == Xbegin:
		// Operand size 16 gives a 16-bit displacement, but unlike a jump's the target keeps its width (SDM, XBEGIN).
		if narrow {
			in.PCSize = 2
		}
	case narrow:
		// Intel ignores the operand size here, AMD takes a 16-bit displacement and cuts RIP to 16 bits.
		return ErrUndecided
	case k == rel8:
		in.PCSize = 1
	}
	i += in.PCSize
	if i > len(code) {
		return short
	}
	switch in.PCSize {
	case 1:
		in.Disp = int64(int8(code[i-1]))
	case 2:
		in.Disp = int64(int16(code[i-2]) | int16(code[i-1])<<8)
	default:
		in.Disp = int64(get32(code[i-4:]))
	}
	if in.Op == Jcc {
		in.Cond = in.Opcode & 15
	}
	in.Len = i
	return nil
}

// escape reads from an escape byte b to the opcode byte, and returns the
// opcode's description and the offset behind it.
func escape(in *Inst, code []byte, i int, b byte, short error) (desc, int, error) {
	need := func(n int) bool { return i+n <= len(code) }
	switch b {
	case 0x0f:
		if !need(1) {
			return 0, 0, short
		}
		in.Map, in.Opcode = 1, code[i]
		d := map1[code[i]]
		i++
		if d&dPrefix == 0 {
			return d, i, nil
		}
		table := &map2
		switch in.Opcode {
		case 0x38:
			in.Map = 2
		case 0x3a:
			in.Map, table = 3, &map3
		default: // ud0: with a ModRM byte on Intel's newer processors, without on others
			return 0, 0, ErrUndecided
		}
		if !need(1) {
			return 0, 0, short
		}
		in.Opcode = code[i]
		return table[code[i]], i + 1, nil

	case 0x8f:
		if !need(1) {
			return 0, 0, short
		}
		if code[i]&0x1f < 8 { // pop, whose ModRM byte this is
			in.Opcode = b
			return dValid | dModRM | dGroup | desc(Pop)<<opShift, i, nil
		}
		in.Enc, in.Map = XOP, code[i]&0x1f
	case 0xc4:
		if !need(1) {
			return 0, 0, short
		}
		in.Enc, in.Map = VEX, code[i]&0x1f
	case 0xc5:
		if !need(2) {
			return 0, 0, short
		}
		in.Enc, in.Map, in.Opcode = VEX, 1, code[i+1]
		i += 2
	case 0x62:
		if !need(1) {
			return 0, 0, short
		}
		in.Enc, in.Map = EVEX, code[i]&7
		if code[i]&8 != 0 || in.Map == 4 {
			return 0, 0, ErrUndecided // APX: an extended base register, or its map
		}
	case 0xd5:
		return 0, 0, ErrUndecided // APX: REX2
	}
	return vector(in, code, i, b, short)
}

// vector reads the rest of a vector prefix, of which in has the encoding and the map (with c5 also the opcode), up to
// the opcode byte.
func vector(in *Inst, code []byte, i int, b byte, short error) (desc, int, error) {
	need := func(n int) bool { return i+n <= len(code) }
	// A vector prefix brings its own REX bits and operand size.
	if in.REX != 0 || in.Prefix&(PrefixOpSize|PrefixRep|PrefixRepne|PrefixLock) != 0 {
		return 0, 0, ErrInvalid
	}
	switch {
	case in.Enc == EVEX:
		if !need(4) {
			if need(2) && code[i+1]&4 == 0 {
				return 0, 0, ErrUndecided
			}
			return 0, 0, short
		}
		if code[i+1]&4 == 0 {
			return 0, 0, ErrUndecided // APX: an extended index register; AVX10.2: rounding of 256 bits
		}
		in.Opcode = code[i+3]
		i += 4
	case b == 0xc4 || b == 0x8f:
		if !need(3) {
			return 0, 0, short
		}
		in.Opcode = code[i+2]
		i += 3
	}
	m := vectorMaps[in.Enc][in.Map]
	if m == nil {
		return 0, 0, ErrInvalid
	}
	return m[in.Opcode], i, nil
}

func get32(b []byte) int32 {
	_ = b[3]
	return int32(uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24)
}

var prefixes = [256]Prefix{
	0x26: PrefixSeg, 0x2e: PrefixSeg, 0x36: PrefixSeg, 0x3e: PrefixSeg, 0x64: PrefixSeg, 0x65: PrefixSeg,
	0x66: PrefixOpSize, 0x67: PrefixAddrSize, 0xf0: PrefixLock, 0xf2: PrefixRepne, 0xf3: PrefixRep,
}
