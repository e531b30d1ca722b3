package plain

import "bytes"

// How functions that swap pieces of a stack go on behind the copying (swap.go), on x86-64: the stack pointer and the frame pointer move
// by the same register,
//
//	add %reg, %rsp; add %reg, %rbp
//
// or the stack pointer is what a call has returned, unless that is 0:
//
//	test %rax, %rax; je 1f; mov %rax, %rsp

const movRAXRSP = "\x48\x89\xc4"

// amd64SwapsAt reports whether the instruction at an offset of code is the last one of these.
func amd64SwapsAt(b []byte, at, n int) bool {
	in := b[at : at+n]
	if string(in) == movRAXRSP {
		return at >= 5 && bytes.HasPrefix(b[at-5:], []byte{0x48, 0x85, 0xc0, 0x74})
	}
	return n == 3 && at >= 3 && in[1] == 0x01 && in[2]&0xc7 == 0xc5 && in[0]&^4 == 0x48 &&
		b[at-3] == in[0] && b[at-2] == 0x01 && b[at-1] == in[2]-1
}

// maySwap looks for 01, which is in the middle of both additions, and for the move.
func (amd64Machine) maySwap(b []byte) bool {
	for at := 0; ; at++ {
		k := bytes.IndexByte(b[at:], 0x01)
		if k < 0 {
			break
		}
		if at += k; at >= 4 && at+1 < len(b) && amd64SwapsAt(b, at-1, 3) {
			return true
		}
	}
	for at := 0; ; at++ {
		k := bytes.Index(b[at:], []byte(movRAXRSP))
		if k < 0 {
			return false
		}
		if at += k; amd64SwapsAt(b, at, len(movRAXRSP)) {
			return true
		}
	}
}
