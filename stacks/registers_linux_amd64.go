package stacks

import "golang.org/x/sys/unix"

// stoppedRegisters reads the registers of a stopped thread.
func stoppedRegisters(tid int) (registers, error) {
	var u unix.PtraceRegs
	if err := unix.PtraceGetRegs(tid, &u); err != nil {
		return registers{}, err
	}
	r := registers{pc: u.Rip}
	for i, v := range []uint64{u.Rax, u.Rdx, u.Rcx, u.Rbx, u.Rsi, u.Rdi, u.Rbp, u.Rsp,
		u.R8, u.R9, u.R10, u.R11, u.R12, u.R13, u.R14, u.R15} {
		r.set(i, v)
	}
	return r, nil
}
