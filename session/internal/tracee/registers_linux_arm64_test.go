package tracee

import (
	"testing"
	"unsafe"
)

// What the kernel writes, and what is put into programs.
func TestRegisters(t *testing.T) {
	var r registers
	// struct user_pt_regs: 31 registers, sp, pc, pstate.
	if n := unsafe.Sizeof(r.PtraceRegs); n != 34*8 {
		t.Errorf("registers take %d bytes", n)
	}
	r.setPC(0x1234)
	r.setCall(222, [6]uint64{1, 2, 3, 4, 5, 6})
	if r.Regs[8] != 222 || r.Regs[0] != 1 || r.Regs[5] != 6 || r.Regs[6] != 0 || r.Regs[7] != 0 || r.Pc != 0x1234 || r.result() != 1 {
		t.Errorf("%+v", r)
	}
	if !r.stoppedAt(0x1234) || r.stoppedAt(0x1230) {
		t.Error("a process stops at a breakpoint")
	}
	// Arm ARM C6.2: BRK is 11010100 001 imm16 000 00, SVC 11010100 000 imm16 000 01.
	if w := le.Uint32(breakpoint); w&0xffe0001f != 0xd4200000 {
		t.Errorf("breakpoint %#x", w)
	}
	if w := le.Uint32(syscallInsn); w&0xffe0001f != 0xd4000001 {
		t.Errorf("system call %#x", w)
	}
}
