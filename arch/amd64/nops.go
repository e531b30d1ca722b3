package amd64

// The nops the manuals recommend for 1 to 9 bytes (Intel SDM volume 2, NOP,
// "Recommended Multi-Byte Sequence of NOP Instruction"), and what assemblers
// make of them for 10 to 15: more operand-size prefixes and a cs one. Each is
// one instruction.
var nops = [...]string{
	"\x90",                                         // nop
	"\x66\x90",                                     // xchg %ax,%ax
	"\x0f\x1f\x00",                                 // nopl (%rax)
	"\x0f\x1f\x40\x00",                             // nopl 0(%rax)
	"\x0f\x1f\x44\x00\x00",                         // nopl 0(%rax,%rax)
	"\x66\x0f\x1f\x44\x00\x00",                     // nopw 0(%rax,%rax)
	"\x0f\x1f\x80\x00\x00\x00\x00",                 // nopl 0(%rax), 32-bit displacement
	"\x0f\x1f\x84\x00\x00\x00\x00\x00",             // nopl 0(%rax,%rax), 32-bit displacement
	"\x66\x0f\x1f\x84\x00\x00\x00\x00\x00",         // nopw 0(%rax,%rax), 32-bit displacement
	"\x66\x2e\x0f\x1f\x84\x00\x00\x00\x00\x00",     // cs nopw
	"\x66\x66\x2e\x0f\x1f\x84\x00\x00\x00\x00\x00", // data16 cs nopw
	"\x66\x66\x66\x2e\x0f\x1f\x84\x00\x00\x00\x00\x00",
	"\x66\x66\x66\x66\x2e\x0f\x1f\x84\x00\x00\x00\x00\x00",
	"\x66\x66\x66\x66\x66\x2e\x0f\x1f\x84\x00\x00\x00\x00\x00",
	"\x66\x66\x66\x66\x66\x66\x2e\x0f\x1f\x84\x00\x00\x00\x00\x00",
}

// MaxNop is the longest nop that is one instruction.
const MaxNop = len(nops)

// AppendNops appends n bytes of nops to dst: one instruction up to MaxNop
// bytes, several beyond.
func AppendNops(dst []byte, n int) []byte {
	for n > 0 {
		k := min(n, MaxNop)
		dst = append(dst, nops[k-1]...)
		n -= k
	}
	return dst
}

// IsNops returns how many bytes at the start of b are whole nop instructions: 90, 0f 1f /0 with any memory operand,
// and both with prefixes that keep them nops. So gcc's five 90, clang's 0f 1f 44 00 08 and the forms of AppendNops
// all give their length; pause (f3 90) and the reserved hint space do not count.
func IsNops(b []byte) int {
	n, _ := CountNops(b)
	return n
}

// CountNops is like IsNops but also returns the number of instructions. A site of more than one instruction cannot be
// rewritten while threads run: one may have stopped between two of them.
func CountNops(b []byte) (n, insts int) {
	for n < len(b) {
		if b[n] == 0x90 {
			n++
			insts++
			continue
		}
		in, err := Decode(b[n:])
		if err != nil || in.Op != Nop || in.Prefix&(PrefixLock|PrefixRep|PrefixRepne) != 0 {
			break
		}
		n += in.Len
		insts++
	}
	return n, insts
}
