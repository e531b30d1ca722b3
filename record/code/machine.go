package code

import "debug/elf"

// Machine decodes the instructions of an instruction set. Its methods never read beyond the bytes given.
type Machine interface {
	// Align returns the alignment of instructions in bytes.
	Align() uint64
	// Inst returns the length of the instruction at the start of b, 0 if invalid, and what it means when searching
	// for the beginnings of functions.
	Inst(b []byte) (int, Flow)
	// Nops returns how many bytes at the start of b are nops.
	Nops(b []byte) int
	// HasPad reports whether b begins with a landing pad for indirect branches, of PadLen bytes.
	HasPad(b []byte) bool
	// targets appends the targets of branches in b, which lies at addr, that count for one of the places, in any order.
	targets(b []byte, addr uint64, places []Place, out []uint64) []uint64
}

// PadLen is the length of landing pads on all machines: endbr64, bti.
const PadLen = 4

// Flow is what an instruction means when searching for the beginnings of functions.
type Flow uint8

const (
	FlowOther   Flow = iota
	FlowPadding      // nops, traps between functions
	FlowPad          // a landing pad
	FlowEnds         // does not continue to the next instruction, or is a call, which need not return
)

// MachineOf returns the Machine for the machine number of an ELF header, or nil if it is not supported.
func MachineOf(m elf.Machine) Machine {
	switch m {
	case elf.EM_X86_64:
		return amd64Code{}
	case elf.EM_AARCH64:
		return arm64Code{}
	}
	return nil
}
