//go:build linux

package tracee

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// resume lets the process go on, as how does it with a signal to deliver, until
// it stops with a SIGTRAP. All signals that can be are blocked, but a SIGSTOP, and the one that a parked process uses,
// can come in between: they are put off until the program runs.
func (t *Process) resume(how func(pid, signal int) error) error {
	var late []syscall.Signal
	for {
		if err := how(t.pid, 0); err != nil {
			return &RefusedError{fmt.Errorf("ptrace: %w", err)}
		}
		ws, err := t.wait()
		switch {
		case err != nil:
			return err
		case !ws.Stopped():
			return &EndedError{ws}
		case ws.StopSignal() == syscall.SIGTRAP, ws.StopSignal() == syscallTrap:
			for _, s := range late {
				syscall.Kill(t.pid, s)
			}
			return nil
		case ws.StopSignal() == syscall.SIGSTOP, ws.StopSignal() == parkedSignal:
			late = append(late, ws.StopSignal())
		default:
			return &RefusedError{fmt.Errorf("stopped by %v", ws.StopSignal())}
		}
	}
}

// A call is a system call that a process is made to make.
type call struct {
	nr    uint64
	args  [6]uint64
	value uint64 // what it returned
}

// makes has the process make system calls until one fails. done is how many have not.
func (t *Process) makes(calls []call) (done int, err error) {
	if t.parked != nil {
		return t.parked.makes(t, calls)
	}
	for i := range calls {
		c := &calls[i]
		if c.value, err = t.syscall(c.nr, c.args[:]...); err != nil {
			return i, err
		}
	}
	return len(calls), nil
}

// syscall has the process make a system call: the instruction is put where it
// stands, stepped over once, and everything is put back. The instruction cache
// is the kernel's business when it writes on behalf of a tracer.
func (t *Process) syscall(nr uint64, args ...uint64) (uint64, error) {
	if t.parked != nil {
		c := call{nr: nr}
		copy(c.args[:], args)
		calls := []call{c}
		_, err := t.parked.makes(t, calls)
		return calls[0].value, err
	}
	orig, err := t.registers()
	if err != nil {
		return 0, err
	}
	at := orig.pc()
	saved := make([]byte, len(syscallInsn))
	if err := t.ReadAt(saved, at); err != nil {
		return 0, err
	}
	if err := t.WriteAt(syscallInsn, at); err != nil {
		return 0, err
	}
	r := *orig
	var a [6]uint64
	copy(a[:], args)
	r.setCall(nr, a)
	r.noRestart()
	err = t.setRegisters(&r)
	if err == nil {
		err = t.step()
	}
	var after *registers
	if err == nil {
		after, err = t.registers()
	}
	if werr := t.WriteAt(saved, at); err == nil {
		err = werr
	}
	if serr := t.setRegisters(orig); err == nil {
		err = serr
	}
	if err != nil {
		return 0, err
	}
	if after.pc() != at+uint64(len(syscallInsn)) {
		return 0, fmt.Errorf("system call %d: stopped at %#x", nr, after.pc())
	}
	return after.value()
}

// value is what a system call has returned.
func (r *registers) value() (uint64, error) {
	const maxErrno = 4095
	if v := r.result(); v > ^uint64(maxErrno) {
		return 0, syscall.Errno(-v)
	}
	return r.result(), nil
}

// step has the process execute one instruction.
func (t *Process) step() error {
	return t.resume(func(pid, _ int) error { return unix.PtraceSingleStep(pid) })
}

const mapFixedNoreplace = 0x100000 // ignored by kernels before 4.17

// anonymous is a call that maps memory at exactly an address.
func anonymous(addr, n uint64, prot int) call {
	const flags = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | mapFixedNoreplace
	return call{nr: unix.SYS_MMAP, args: [6]uint64{addr, n, uint64(prot), flags, ^uint64(0), 0}}
}

// maps makes calls that map memory at exact addresses.
func (t *Process) maps(calls ...call) error {
	done, err := t.makes(calls)
	for i := range done {
		if c := &calls[i]; c.value != c.args[0] {
			done, err = i, fmt.Errorf("got %#x", c.value)
			break
		}
	}
	if err == nil {
		return nil
	}
	a := &calls[done].args
	return &RefusedError{fmt.Errorf("map %d bytes at %#x in the program: %w", a[1], a[0], err)}
}
