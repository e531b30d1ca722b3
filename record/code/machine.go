package code

import "debug/elf"

// Machine decodes the instructions of an instruction set. Its methods take code as bytes that lie at an address, and
// never read beyond them.
type Machine interface {
	// Align is what the addresses of instructions are multiples of.
	Align() uint64
	// Inst returns the length of an instruction and what it means to one who looks for the beginnings of functions.
	// 0: it is none.
	Inst(b []byte) (int, Flow)
	// Nops returns how many bytes at the start of b are nops.
	Nops(b []byte) int
	// HasPad reports whether b begins with a landing pad of indirect branches, PadLen bytes.
	HasPad(b []byte) bool
	// targets appends the targets of branches in b, which lies at addr, that count for one of the places, in any order.
	targets(b []byte, addr uint64, places []Place, out []uint64) []uint64
}

// PadLen is the length of landing pads on all machines: endbr64, bti.
const PadLen = 4

// Flow is what an instruction means to one who looks for the beginnings of functions.
type Flow uint8

const (
	FlowOther   Flow = iota
	FlowPadding      // nops, traps between functions
	FlowPad          // a landing pad
	FlowEnds         // does not go on to the next one, or is a call, which need not return
)

// MachineOf returns the machine of an ELF header's number, nil for one that is not supported.
func MachineOf(m elf.Machine) Machine {
	switch m {
	case elf.EM_X86_64:
		return amd64Code{}
	case elf.EM_AARCH64:
		return arm64Code{}
	}
	return nil
}
