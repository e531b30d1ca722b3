//go:build linux

package session

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests that x/sys has no function for (linux/ptrace.h).
const (
	ptraceSetSigmask = 0x420b
)

// syscallTrap is how a stop at a system call looks with PTRACE_O_TRACESYSGOOD.
const syscallTrap = syscall.SIGTRAP | 0x80

// errInject: the memory could not be added. Nothing of the program has run, so
// it can be started again in another way.
type errInject struct{ err error }

func (e *errInject) Error() string { return e.err.Error() }
func (e *errInject) Unwrap() error { return e.err }

// tracee is a process in its exec stop. All methods must be called from the
// thread that started it: ptrace knows tracers by thread.
type tracee struct {
	pid int
	mem *os.File // /proc/PID/mem
	// poke: /proc/PID/mem does not write to read-only memory here
	// (proc_mem.force_override), ptrace must.
	poke bool
}

// stopAtExec waits for a child started with PTRACE_TRACEME to finish execve. It
// returns ended true with its status if the child died instead.
func stopAtExec(pid int) (t *tracee, status syscall.WaitStatus, ended bool, err error) {
	for {
		_, err = syscall.Wait4(pid, &status, syscall.WALL, nil)
		if err == nil {
			break
		}
		if err != syscall.EINTR {
			return nil, status, false, fmt.Errorf("wait for the exec stop: %w", err)
		}
	}
	if status.Exited() || status.Signaled() {
		return nil, status, true, nil
	}
	t = &tracee{pid: pid}
	// From here to the detach a half-made image must not run, whatever happens
	// to this process.
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_EXITKILL); err != nil {
		return t, status, false, &errInject{fmt.Errorf("PTRACE_SETOPTIONS: %w", err)}
	}
	t.mem, err = os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return t, status, false, &errInject{err}
	}
	return t, status, false, nil
}

// checkFile compares the file the process runs with the one that was planned.
func (t *tracee) checkFile(want os.FileInfo) error {
	if want == nil {
		return nil
	}
	have, err := os.Stat(fmt.Sprintf("/proc/%d/exe", t.pid))
	if err != nil {
		return &errInject{err}
	}
	if !os.SameFile(have, want) {
		return errNotPlanned
	}
	return nil
}

// resume lets the process go on, as how does it with a signal to deliver, until
// it stops with a SIGTRAP. All signals that can be are blocked, but a SIGSTOP
// can come in between: it is put off until the program runs.
func (t *tracee) resume(how func(pid, signal int) error) error {
	stopped := false
	for {
		if err := how(t.pid, 0); err != nil {
			return &errInject{fmt.Errorf("ptrace: %w", err)}
		}
		var ws syscall.WaitStatus
		for {
			_, err := syscall.Wait4(t.pid, &ws, syscall.WALL, nil)
			if err == nil {
				break
			}
			if err != syscall.EINTR {
				return &errInject{fmt.Errorf("wait: %w", err)}
			}
		}
		switch {
		case !ws.Stopped():
			return &errDied{ws}
		case ws.StopSignal() == syscall.SIGTRAP, ws.StopSignal() == syscallTrap:
			if stopped {
				syscall.Kill(t.pid, syscall.SIGSTOP)
			}
			return nil
		case ws.StopSignal() == syscall.SIGSTOP:
			stopped = true
		default:
			return &errInject{fmt.Errorf("stopped by %v", ws.StopSignal())}
		}
	}
}

// syscall has the process make a system call: the instruction is put where it
// stands, stepped over once, and everything is put back. The instruction cache
// is the kernel's business when it writes on behalf of a tracer.
func (t *tracee) syscall(nr uint64, args ...uint64) (uint64, error) {
	orig, err := t.registers()
	if err != nil {
		return 0, err
	}
	at := orig.pc()
	saved := make([]byte, len(syscallInsn))
	if err := t.read(saved, at); err != nil {
		return 0, err
	}
	if err := t.write(syscallInsn, at); err != nil {
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
	if werr := t.write(saved, at); err == nil {
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
	const maxErrno = 4095
	if v := after.result(); v > ^uint64(maxErrno) {
		return 0, syscall.Errno(-v)
	}
	return after.result(), nil
}

// step has the process execute one instruction.
func (t *tracee) step() error {
	return t.resume(func(pid, _ int) error { return unix.PtraceSingleStep(pid) })
}

// mmap maps anonymous memory in the process at exactly addr.
func (t *tracee) mmap(addr, n uint64, prot int) error {
	const mapFixedNoreplace = 0x100000 // ignored by kernels before 4.17
	got, err := t.syscall(unix.SYS_MMAP, addr, n, uint64(prot), unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|mapFixedNoreplace, ^uint64(0), 0)
	if err == nil && got != addr {
		err = fmt.Errorf("got %#x", got)
	}
	if err != nil {
		return &errInject{fmt.Errorf("map %d bytes at %#x in the program: %w", n, addr, err)}
	}
	return nil
}

func (t *tracee) read(b []byte, addr uint64) error {
	if _, err := t.mem.ReadAt(b, int64(addr)); err != nil {
		return &errInject{fmt.Errorf("read %d bytes at %#x of the program: %w", len(b), addr, err)}
	}
	return nil
}

func (t *tracee) write(b []byte, addr uint64) error {
	var err error
	if !t.poke {
		if _, err = t.mem.WriteAt(b, int64(addr)); err != nil {
			t.poke = true
		}
	}
	if t.poke {
		_, err = unix.PtracePokeData(t.pid, uintptr(addr), b)
	}
	if err != nil {
		return &errInject{fmt.Errorf("write %d bytes at %#x of the program: %w", len(b), addr, err)}
	}
	return nil
}

// setSignals gives the process the mask, and has it ignore the signals, that it
// would have inherited. This process cannot ignore all of them itself: the Go
// runtime needs some.
func (t *tracee) setSignals(in inherited) error {
	ignored, err := ignoredBy(t.pid)
	if err != nil {
		return &errInject{err}
	}
	if missing := in.ignored &^ ignored; missing != 0 {
		if err := t.ignore(missing); err != nil {
			return err
		}
	}
	if _, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, ptraceSetSigmask, uintptr(t.pid), 8, uintptr(unsafe.Pointer(&in.blocked)), 0, 0); errno != 0 {
		return &errInject{fmt.Errorf("PTRACE_SETSIGMASK: %w", errno)}
	}
	return nil
}

// ignore sets dispositions in the process, with a struct sigaction on its
// stack, below all that is in use.
func (t *tracee) ignore(signals uint64) error {
	const (
		sigIgn     = 1
		actionSize = 32 // handler, flags, restorer, mask
		below      = 256
	)
	regs, err := t.registers()
	if err != nil {
		return &errInject{err}
	}
	action := make([]byte, actionSize)
	action[0] = sigIgn
	addr := regs.sp() - below
	if err := t.write(action, addr); err != nil {
		return err
	}
	for s := uint64(1); s <= numSignals; s++ {
		if signals&(1<<(s-1)) == 0 {
			continue
		}
		if _, err := t.syscall(unix.SYS_RT_SIGACTION, s, addr, 0, 8); err != nil {
			return &errInject{fmt.Errorf("ignore signal %d in the program: %w", s, err)}
		}
	}
	return t.write(make([]byte, actionSize), addr)
}

// detach lets the process go.
func (t *tracee) detach() error {
	t.mem.Close()
	if err := unix.PtraceDetach(t.pid); err != nil && err != unix.ESRCH {
		return fmt.Errorf("PTRACE_DETACH: %w", err)
	}
	return nil
}

// kill ends the process before it has run a single instruction.
func (t *tracee) kill() {
	if t.mem != nil {
		t.mem.Close()
	}
	syscall.Kill(t.pid, syscall.SIGKILL)
	for {
		var ws syscall.WaitStatus
		_, err := syscall.Wait4(t.pid, &ws, syscall.WALL, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || ws.Exited() || ws.Signaled() {
			return
		}
	}
}
