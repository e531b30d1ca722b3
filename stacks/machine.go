//go:build linux

package stacks

import (
	"debug/elf"
	"fmt"
	"runtime"

	"github.com/fentry-dev/fentry/elfio/ehframe"
)

// A machine is what a walk has to know of an instruction set: DWARF numbers of registers.
type machine struct {
	elf      elf.Machine
	sp, pc   int
	names    []string
	volatile uint64 // bitmap of registers that a call can change
	signed   uint64 // bits of a signed return address that are the address
}

// bits is the bitmap of some registers.
func bits(regs ...int) (m uint64) {
	for _, r := range regs {
		m |= 1 << r
	}
	return m
}

// x86_64 is described in the x86-64 psABI, figure 3.36.
var x86_64 = machine{
	elf: elf.EM_X86_64, sp: 7, pc: 16,
	names: []string{"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp",
		"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rip"},
	volatile: bits(0, 1, 2, 4, 5, 8, 9, 10, 11),
}

// aarch64 is described in "DWARF for the Arm 64-bit Architecture", 4.1.
var aarch64 = machine{
	elf: elf.EM_AARCH64, sp: 31, pc: 32, signed: 1<<48 - 1,
	volatile: bits(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 30),
}

// host is the machine that runs this; nil: stacks of its processes cannot be read.
var host = map[string]*machine{"amd64": &x86_64, "arm64": &aarch64}[runtime.GOARCH]

// name is what people call a register.
func (m *machine) name(reg int) string {
	switch {
	case reg >= 0 && reg < len(m.names):
		return m.names[reg]
	case m.elf == elf.EM_AARCH64 && reg == m.sp:
		return "sp"
	case m.elf == elf.EM_AARCH64:
		return fmt.Sprintf("x%d", reg)
	}
	return fmt.Sprintf("r%d", reg)
}

// registers are those of a frame, as far as they are known.
type registers struct {
	pc    uint64
	value [ehframe.Columns]uint64
	known uint64 // bitmap
}

func (r *registers) set(reg int, v uint64) {
	r.value[reg] = v
	r.known |= 1 << reg
}

func (r *registers) has(reg int) bool {
	return reg >= 0 && reg < ehframe.Columns && r.known>>reg&1 != 0
}

// shadow is where return addresses are kept that tracing has taken off a stack: package arch says so for each machine.
func (m *machine) shadow(sp uint64) uint64 {
	if m.elf == elf.EM_AARCH64 && sp < 1<<42 {
		return sp ^ 1<<37
	}
	return sp ^ 1<<46
}
