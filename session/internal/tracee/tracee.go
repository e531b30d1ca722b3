//go:build linux

package tracee

import (
	"encoding/binary"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

var le = binary.LittleEndian

// Requests that x/sys has no function for (linux/ptrace.h).
const (
	ptraceGetSigmask = 0x420a
	ptraceSetSigmask = 0x420b
)

// syscallTrap is how a stop at a system call looks with PTRACE_O_TRACESYSGOOD.
const syscallTrap = syscall.SIGTRAP | 0x80

// RefusedError: the memory could not be added. Nothing of the program has run, so
// it can be started again in another way.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }

func (e *RefusedError) Unwrap() error { return e.Err }

// Process is a process in its exec stop. All methods must be called from the
// thread that started it: ptrace knows tracers by thread.
type Process struct {
	pid     int
	group   int      // of a seized thread: its process
	threads int      // which that had; 0: not known yet
	entry   uint64   // of the program, if the auxiliary vector no longer says so
	mem     *os.File // /proc/PID/mem
	// changed: what the program was is not all there any more.
	changed bool
	// poke: /proc/PID/mem does not write to read-only memory here
	// (proc_mem.force_override), ptrace must.
	poke bool
	// inside: it cannot open what is open here, being in a PID namespace, or where no /proc is.
	inside bool
	// halted: at its last stop, its process was stopped by a signal.
	halted bool
	// parked: it stands where it executes its program again if this process is killed.
	parked *parked
}

// waitOwn has wait4(2) wait for what the calling thread traces or has begun, and for nothing that other threads do: when a program is
// executed by a thread that another one of them traces, that gets the id of its process, whose first thread can be traced as well.
const waitOwn = unix.WALL | unix.WNOTHREAD

// StopAtExec waits for a child started with PTRACE_TRACEME to finish execve. It
// returns ended true with its status if the child died instead.
func StopAtExec(pid int) (t *Process, status syscall.WaitStatus, ended bool, err error) {
	for {
		_, err = syscall.Wait4(pid, &status, waitOwn, nil)
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
	t = &Process{pid: pid}
	// From here to the detach a half-made image must not run, whatever happens
	// to this process.
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_EXITKILL); err != nil {
		return t, status, false, &RefusedError{fmt.Errorf("PTRACE_SETOPTIONS: %w", err)}
	}
	t.mem, err = os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return t, status, false, &RefusedError{err}
	}
	return t, status, false, nil
}

// CheckFile compares the file the process runs with the one that was planned.
func (t *Process) CheckFile(want os.FileInfo) error {
	if want == nil {
		return nil
	}
	have, err := os.Stat(fmt.Sprintf("/proc/%d/exe", t.pid))
	if err != nil {
		return &RefusedError{err}
	}
	if !os.SameFile(have, want) {
		return ErrNotPlanned
	}
	return nil
}

// Changed tells whether the program is no longer what it was.
func (t *Process) Changed() bool { return t.changed }

// Detach lets the process go.
func (t *Process) Detach() error {
	if t.mem != nil {
		t.mem.Close()
	}
	if err := unix.PtraceDetach(t.pid); err != nil && err != unix.ESRCH {
		return fmt.Errorf("PTRACE_DETACH: %w", err)
	}
	return nil
}

// Kill ends the process before it has run a single instruction.
func (t *Process) Kill() {
	if t.mem != nil {
		t.mem.Close()
	}
	syscall.Kill(t.pid, syscall.SIGKILL)
	for {
		var ws syscall.WaitStatus
		_, err := syscall.Wait4(t.pid, &ws, waitOwn, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || ws.Exited() || ws.Signaled() {
			return
		}
	}
}

// EndedError: the process ended while it was being changed.
type EndedError struct{ Status syscall.WaitStatus }

func (e *EndedError) Error() string { return "the program ended while it was being started" }
