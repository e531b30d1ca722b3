package arm64

import "encoding/binary"

// AppendNops appends the nops that fit into n bytes.
func AppendNops(dst []byte, n int) []byte {
	for ; n >= InstLen; n -= InstLen {
		dst = binary.LittleEndian.AppendUint32(dst, WordNop)
	}
	return dst
}

// IsNops returns how many bytes at the start of b are nops. Other hints do not count: some processor gives them a
// meaning.
func IsNops(b []byte) int {
	n, _ := CountNops(b)
	return n
}

// CountNops is like IsNops but also returns the number of instructions.
func CountNops(b []byte) (n, insts int) {
	for len(b)-n >= InstLen && binary.LittleEndian.Uint32(b[n:]) == WordNop {
		n += InstLen
		insts++
	}
	return n, insts
}
