package plain

import (
	"bytes"
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch/amd64"
)

// amd64Shuffle takes the routine's arguments (the word, the number, six arguments) to where the kernel has them, and calls
// it.
const amd64Shuffle = "\x49\x89\xfb" + // mov %rdi, %r11
	amd64.MoveArguments +
	"\x4c\x8b\x44\x24\x08" + // mov 8(%rsp), %r8
	"\x4c\x8b\x4c\x24\x10" + // mov 16(%rsp), %r9
	"\x4c\x89\x5c\x24\x08" + // mov %r11, 8(%rsp)
	"\x0f\x05" // syscall

// cancellable reports whether code that begins with b is such a routine. Addresses in r are offsets then.
func (amd64Machine) cancellable(b []byte) (r routine, ok bool) {
	n := 0
	switch {
	case bytes.HasPrefix(b, []byte{0x8b, 0x07, 0x85, 0xc0}): // mov (%rdi), %eax; test %eax, %eax
		n, r.cancelled = 4, ^uint32(0)
	case bytes.HasPrefix(b, []byte{0x8b, 0x07, 0xf6, 0x07}) && len(b) > 4: // mov (%rdi), %eax; testb $n, (%rdi)
		n, r.cancelled = 5, uint32(b[4])
	default:
		return routine{}, false
	}
	in, err := amd64.Decode(b[n:])
	if err != nil || in.Op != amd64.Jcc || b[n] != jne && b[n+1] != jneNear || !bytes.HasPrefix(b[n+in.Len:], []byte(amd64Shuffle)) {
		return routine{}, false
	}
	r.call = uint64(n + in.Len + len(amd64Shuffle) - len(syscallOp))
	return r, true
}

// jne, short, and the second byte of the long one.
const jne, jneNear = 0x75, 0x85

// direct: call rel32.
func (amd64Machine) direct(b []byte, at uint64) (to uint64, n int, ok bool) {
	const op = 0xe8
	if len(b) < amd64.JumpLen || b[0] != op {
		return 0, 0, false
	}
	return at + amd64.JumpLen + uint64(int64(int32(binary.LittleEndian.Uint32(b[1:])))), amd64.JumpLen, true
}

func (amd64Machine) reaches(f *Finder, i int, b []byte, at int) bool {
	w := newAMD64Walk(f, i, b)
	return w.walk.walk() && w.seen[at]
}

func (amd64Machine) stackPointer() int { return dwarfRSP }
