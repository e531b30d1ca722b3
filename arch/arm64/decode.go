package arm64

import (
	"encoding/binary"
	"errors"
)

// ErrTruncated: fewer than InstLen bytes.
var ErrTruncated = errors.New("arm64: instruction is cut off")

// Decode classifies the instruction at the start of code, whose bytes are in little-endian order whatever the order
// of the program's data. It allocates nothing. Every word has a class, since encodings unallocated today may be
// allocated tomorrow: even those are Other, which can be moved, so whether bytes are code is for the caller to know.
// The only error is ErrTruncated.
func Decode(code []byte) (Inst, error) {
	if len(code) < InstLen {
		return Inst{}, ErrTruncated
	}
	return DecodeWord(binary.LittleEndian.Uint32(code)), nil
}

// DecodeWord is like Decode for an instruction given as a word.
func DecodeWord(w uint32) Inst {
	in := Inst{Len: InstLen, Word: w}
	r := match(w)
	if r == nil {
		return in
	}
	in.Op, in.PCRel = r.op, r.rel
	switch r.form {
	case form26:
		in.Disp = signed(w, 26) * InstLen
	case form19:
		in.Disp = signed(w>>5, 19) * InstLen
	case form14:
		in.Disp = signed(w>>5, 14) * InstLen
	case form9:
		in.Disp = signed(w>>5, 9) * InstLen
	case formAdr:
		in.Disp = signed(w>>5&0x7ffff<<2|w>>29&3, 21)
	case formAdrp:
		in.Disp = signed(w>>5&0x7ffff<<2|w>>29&3, 21) * (pageMask + 1)
	case formBack:
		in.Disp = -int64(w>>5&0xffff) * InstLen
	}
	switch in.Op {
	case Jcc:
		in.Cond = byte(w & 15)
	case Cbz, Tbz, Cb, Adr, Adrp, LdrLit, LdrLitFP, PrfmLit:
		in.Reg = byte(w & 31)
	case CallInd, JmpInd, Ret:
		in.Reg = byte(w >> 5 & 31)
		if in.Op == Ret && w&0xfffffc1f != 0xd65f0000 {
			in.Reg = 30 // authenticated
		}
	}
	return in
}

// match returns the most special row for w.
func match(w uint32) *row {
	made.Do(makeByTop)
	var found *row
	list := byTop[w>>24]
	for i := range list {
		if w&list[i].mask == list[i].value {
			found = &list[i]
		}
	}
	return found
}

// signed returns the low n bits of w as a signed number.
func signed(w uint32, n uint) int64 {
	return int64(int32(w<<(32-n)) >> (32 - n))
}
