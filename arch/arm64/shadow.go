package arm64

import "fmt"

// A Shadow says where the shadow of a stack address is: the address with one bit flipped. Bit High is flipped in
// addresses that have a bit set at Split or above it, bit Low in others. If High and Low are equal, there is one rule
// for all addresses.
//
// The address spaces of Linux programs have 48, 47, 42 or 39 bits, as their kernel was configured
// (Documentation/arch/arm64/memory.rst), and a file does not know the kernel it will run on. But a stack's address
// tells, and AnyShadow is a function of it alone. So nothing has to be chosen when a program starts, and the unwind
// rules, which cannot be changed then, are right everywhere.
type Shadow struct {
	High, Low, Split uint8
}

// AnyShadow suits every address space. Stacks below 4 TiB are those of address spaces of 42 and 39 bits, and a few
// low ones of larger spaces. Bit 37 keeps shadows as far from the top of a 39-bit space as possible without colliding
// with position-independent programs, which are loaded at two thirds of the address space.
var AnyShadow = Shadow{High: 46, Low: 37, Split: 42}

// ShadowFor returns the one-bit rule for stacks in an address space of the given number of bits: 48, 47, 42 or 39.
func ShadowFor(bits int) (Shadow, error) {
	switch bits {
	case 48, 47:
		return Shadow{High: 46, Low: 46}, nil
	case 42, 39:
		return Shadow{High: 37, Low: 37}, nil
	}
	return Shadow{}, fmt.Errorf("address space of %d bits: not one of 48, 47, 42, 39", bits)
}

// Bit returns the bit that is flipped in address a.
func (s Shadow) Bit(a uint64) uint8 {
	if s.High == s.Low || a>>s.Split != 0 {
		return s.High
	}
	return s.Low
}

// Of returns the shadow of address a.
func (s Shadow) Of(a uint64) uint64 { return a ^ 1<<s.Bit(a) }

// expr returns the DWARF operations that replace the address on top of the stack by
// its shadow.
func (s Shadow) expr() []byte {
	if s.High == s.Low {
		return []byte{opLit0 + 1, opConst1u, s.High, opShl, opXor}
	}
	return []byte{
		opDup, opConst1u, s.Split, opShr, opLit0, opNe, // a, 0 or 1
		opConst1u, s.High - s.Low, opMul, opPlusUconst, s.Low, // a, bit
		opLit0 + 1, opSwap, opShl, opXor,
	}
}
