package ehframe

import "encoding/binary"

// Marks.
//
// An expression can tell by the CFA what cannot be told from it otherwise: stack pointers are even, so a CFA that is one
// more than it should be says that code is at the beginning of its function, where the return address has not been saved.
// The rule of the CIE for the stack pointer takes the mark off. To say so takes two more bytes, as behind that code the
// CFA must be said once more. They are those by which the entry says where the return address is: the CIE names another
// column for that.

// mark returns the entry's instructions with a CFA that is one more in the rows behind the first one that begin in front
// of lead, where one begins, and without what the row there says of the return address's column. They are as long as they
// were. It returns false if these rows say something else, or if there is no room.
func (d *FDE) mark(lead uint64) ([]byte, bool) {
	out := make([]byte, 0, len(d.Instructions)+binary.MaxVarintLen64)
	at, off := uint64(0), uint64(0)
	for code := d.Instructions; len(code) > 0; {
		in, rest, ok := cut(code)
		if !ok {
			return nil, false
		}
		delta, moves := d.CIE.advance(in)
		switch {
		case in.op == cfaNop || at == lead && in.op == cfaOffset && in.a == d.CIE.RetReg:
		case moves && at < lead:
			if at += delta; at > lead {
				return nil, false
			}
			if out = append(out, in.raw...); at == lead {
				out = appendOffset(out, off, d.CIE.DataAlign)
			}
		case moves:
			at += delta
			fallthrough
		case at >= lead:
			out = append(out, in.raw...)
		case in.op == cfaDefOff && at > 0 && in.a%2 == 0:
			off = in.a
			n := len(out)
			out = append(out, in.raw...)
			out[n+1] |= 1
		default:
			return nil, false
		}
		code = rest
	}
	if at < lead || off == 0 || len(out) > len(d.Instructions) {
		return nil, false
	}
	for len(out) < len(d.Instructions) {
		out = append(out, cfaNop)
	}
	return out, true
}

// appendOffset appends what says how far the CFA is from its register, in as few bytes as can be.
func appendOffset(dst []byte, off uint64, align int64) []byte {
	if align != 0 && int64(off)%align == 0 {
		if n := int64(off) / align; off >= 0x80 && n >= -0x40 && n < 0x40 {
			return append(dst, cfaDefOffSf, byte(n)&0x7f)
		}
	}
	return binary.AppendUvarint(append(dst, cfaDefOff), off)
}
