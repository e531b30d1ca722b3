package plain

import (
	"bytes"
	"debug/elf"

	"github.com/fentry-dev/fentry/elfio"
)

// Stacks that are swapped.
//
// Coroutines can share a stack: whoever is left has its piece of it copied elsewhere, and whoever goes on has its own copied back,
// to where it was. What is on a stack stays as it is, so the code does not care; what others know by the stack's addresses is
// wrong from then on. The function that does so can be told by how it goes on behind the copying, which compilers have no
// use for: its stack pointer and frame pointer move by the same register (greenlet, Stackless Python),
//
//	add %reg, %rsp; add %reg, %rbp
//
// or the stack pointer is what a call has returned, unless that is 0 (PyPy's stacklets):
//
//	test %rax, %rax; je 1f; mov %rax, %rsp

const movRAXRSP = "\x48\x89\xc4"

// swapsStackAt reports whether the instruction at an offset of code is the last one of these.
func swapsStackAt(b []byte, at, n int) bool {
	in := b[at : at+n]
	if string(in) == movRAXRSP {
		return at >= 5 && bytes.HasPrefix(b[at-5:], []byte{0x48, 0x85, 0xc0, 0x74})
	}
	return n == 3 && at >= 3 && in[1] == 0x01 && in[2]&0xc7 == 0xc5 && in[0]&^4 == 0x48 &&
		b[at-3] == in[0] && b[at-2] == 0x01 && b[at-1] == in[2]-1
}

// MaySwap reports whether an image's code has bytes that can be such instructions: few others have.
func MaySwap(f *elfio.File) bool {
	if f.Header.Machine != elf.EM_X86_64 {
		return false
	}
	for b := range loaded(f, elf.PF_X) {
		if maySwap(b) {
			return true
		}
	}
	return false
}

// maySwap looks for the bytes that such instructions certainly have: 01, in the middle of both additions, and those of the move.
func maySwap(b []byte) bool {
	for at := 0; ; at++ {
		k := bytes.IndexByte(b[at:], 0x01)
		if k < 0 {
			break
		}
		if at += k; at >= 4 && at+1 < len(b) && swapsStackAt(b, at-1, 3) {
			return true
		}
	}
	for at := 0; ; at++ {
		k := bytes.Index(b[at:], []byte(movRAXRSP))
		if k < 0 {
			return false
		}
		if at += k; swapsStackAt(b, at, len(movRAXRSP)) {
			return true
		}
	}
}
