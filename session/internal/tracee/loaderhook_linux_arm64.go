package tracee

import "github.com/fentry-dev/fentry/arch"

var openLayout, callLayout = arm64OpenLayout, arm64CallLayout

func findOpens(code []byte) []int { return arm64FindOpens(code) }

func findCalls(code []byte, open uint64) []int { return arm64FindCalls(code, open) }

func openStub(addr, site uint64, w ways) ([]byte, arch.Edit, error) {
	return arm64OpenStub(addr, site, w)
}

func callStub(addr, site, open uint64) ([]byte, arch.Edit, error) {
	return arm64CallStub(addr, site, open)
}

// openedFile returns the descriptor of the file that has been opened, and the address of its name.
func (r *registers) openedFile() (fd, path uint64) { return r.Regs[0], r.Regs[1] }

// pass has the process go on behind a breakpoint, where it is.
func (t *Process) pass(regs *registers) error {
	regs.setPC(regs.pc() + uint64(len(breakpoint)))
	if err := t.setRegisters(regs); err != nil {
		return &RefusedError{err}
	}
	return nil
}

// exchangeCode: here a descriptor is exchanged by system calls that the process is made to make, one after another.
var exchangeCode []byte

const exchangePath = 0

func (l *loader) exchangeFD(uint64, string) error { panic("unreachable: there is no code for it") }
