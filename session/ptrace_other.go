//go:build linux && !amd64

package session

import (
	"errors"
	"runtime"
)

// errNoInjection: there is no thunk for this machine yet that a process could be
// given, so the exec stop has nothing to do.
var errNoInjection = errors.New("programs cannot be traced at their exec stop on " + runtime.GOARCH + " yet")

type registers struct{}

func (r *registers) pc() uint64            { return 0 }
func (r *registers) sp() uint64            { return 0 }
func (r *registers) setPC(uint64)          {}
func (r *registers) setThreadBlock(uint64) {}
func (r *registers) noRestart()            {}
func (r *registers) keepThread(*registers) {}
func (r *registers) stoppedAt(uint64) bool { return false }

var breakpoint []byte

func (t *tracee) registers() (*registers, error)  { return nil, errNoInjection }
func (t *tracee) setRegisters(r *registers) error { return errNoInjection }

func (t *tracee) syscall(nr uint64, a0, a1, a2, a3, a4, a5 uint64) (uint64, error) {
	return 0, errNoInjection
}
