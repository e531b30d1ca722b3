//go:build linux && !amd64 && !arm64

package tracee

import (
	"errors"
	"runtime"
)

// errNoInjection: there is no thunk for this machine yet that a process could be
// given, so the exec stop has nothing to do.
var errNoInjection = errors.New("programs cannot be traced at their exec stop on " + runtime.GOARCH + " yet")

type registers struct{}

func (r *registers) pc() uint64                { return 0 }
func (r *registers) sp() uint64                { return 0 }
func (r *registers) setPC(uint64)              {}
func (r *registers) setThreadBlock(uint64)     {}
func (r *registers) noRestart()                {}
func (r *registers) keepThread(*registers)     {}
func (r *registers) setCall(uint64, [6]uint64) {}
func (r *registers) result() uint64            { return 0 }
func (r *registers) stoppedAt(uint64) bool     { return false }

var (
	breakpoint  []byte
	syscallInsn []byte
	openCalls   map[uint64]int
)

func (t *Process) registers() (*registers, error)  { return nil, errNoInjection }
func (t *Process) setRegisters(r *registers) error { return errNoInjection }
