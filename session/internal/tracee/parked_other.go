//go:build linux && !amd64

package tracee

import (
	"errors"
	"syscall"
)

// parked is a thread that executes its program again if the recorder is killed (parked_linux_amd64.go).
type parked struct {
	regs *registers
	maps []mapping
}

const parkedSignal = syscall.SIGSTOP // none

func (t *Process) park() error { return errors.New("not on this machine") }

func (t *Process) unpark() error { return nil }

func (p *parked) makes(*Process, []call) (int, error) { return 0, nil }

func (p *parked) runStart(*Process, *registers, uint64, uint64) error { return nil }
