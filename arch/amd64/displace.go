package amd64

import "fmt"

// Displaced code.
//
// A jump to a thunk takes five bytes, and where a compiler has left no room for it, it takes the place of a function's
// first instructions. These go on elsewhere: each of them relocated, and behind the last one a jump back to what
// follows, unless nothing does. The copies are not as long as the originals, because short branches become long ones.
//
// A ret gets a prefix that does nothing. gdb takes the bare instruction, where it knows of no line, for the end of an
// epilogue, and then does not ask unwind tables where the caller is.
//
// What may be displaced is not decided here. Nothing may branch into the middle of it; and what its instructions find in
// the instruction pointer, a call's return address above all, differs.

// DisplacedLen returns how many bytes [AppendDisplaced] appends for the instructions in src, wherever they go. It is 0 if
// src does not consist of whole instructions.
func DisplacedLen(src []byte) int {
	n, ok := DisplacedAt(src, len(src))
	if ok && n > 0 && Continues(src) {
		n += JumpLen
	}
	return n
}

// DisplacedAt returns where in the copy of src the instruction begins that begins at offset off of src. The offset behind
// the last one is that of the jump back. It returns false if none begins there.
func DisplacedAt(src []byte, off int) (int, bool) {
	n := 0
	for at := 0; at < off; {
		in, err := Decode(src[at:])
		if err != nil || at+in.Len > off {
			return 0, false
		}
		at += in.Len
		if n += RelocatedLen(in); isBareRet(in) {
			n++
		}
	}
	return n, true
}

func isBareRet(in Inst) bool { return in.Op == Ret && in.Len == 1 }

// Continues reports whether the instruction behind the last one of src can be reached from it.
func Continues(src []byte) bool {
	var last Inst
	for len(src) > 0 {
		in, err := Decode(src)
		if err != nil {
			return true
		}
		last, src = in, src[in.Len:]
	}
	return !last.Op.EndsBlock()
}

// AppendDisplaced appends a copy, for address to, of the whole instructions in src, which lie at address at, followed by
// a jump to what is behind them if they go on to that. Errors are those of [Relocate].
func AppendDisplaced(dst, src []byte, at, to uint64) ([]byte, error) {
	start := len(dst)
	for o := 0; o < len(src); {
		in, err := Decode(src[o:])
		if err != nil {
			return dst[:start], fmt.Errorf("instruction at %#x: %w", at+uint64(o), err)
		}
		if isBareRet(in) {
			dst = append(dst, 0xf3) // repz ret
		}
		dst, err = Relocate(dst, in, src[o:], at+uint64(o), to+uint64(len(dst)-start))
		if err != nil {
			return dst[:start], err
		}
		o += in.Len
	}
	if !Continues(src) {
		return dst, nil
	}
	out, err := AppendJump(dst, to+uint64(len(dst)-start), at+uint64(len(src)))
	if err != nil {
		return dst[:start], err
	}
	return out, nil
}
