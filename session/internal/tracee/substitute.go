//go:build linux

package tracee

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Substitute lets the process run until it has opened the file want, and makes
// the descriptor it got one of the file at path; "": it stays what it is.
func (t *Process) Substitute(want os.FileInfo, path string) error {
	limit := time.AfterFunc(startLimit, func() { syscall.Kill(t.pid, syscall.SIGKILL) })
	fd, err := t.untilOpen(want)
	if !limit.Stop() {
		return errors.New("the emulator does not open the program")
	}
	if err != nil {
		return err
	}
	// An emulator that is a script has executed something since: that has another memory.
	t.mem.Close()
	if t.mem, err = os.OpenFile(fmt.Sprintf("/proc/%d/mem", t.pid), os.O_RDWR, 0); err != nil {
		return &RefusedError{err}
	}
	// Registers are the process's own only outside of a system call: on arm64 the
	// stop itself uses one.
	if err := t.step(); err != nil {
		return err
	}
	if path == "" {
		return nil
	}
	return t.replaceFD(fd, path)
}

// replaceFD makes a descriptor of the process, which is outside of any system call
// and has signals blocked, one of the file at path. Whether it is closed at execve
// stays as it is.
func (t *Process) replaceFD(fd uint64, path string) error {
	regs, err := t.registers()
	if err != nil {
		return &RefusedError{err}
	}
	const below = 1024 // of the stack, more than any machine's red zone
	name := append([]byte(path), 0)
	addr := regs.sp() - below
	saved := make([]byte, len(name))
	if err := t.ReadAt(saved, addr); err != nil {
		return err
	}
	if err := t.WriteAt(name, addr); err != nil {
		return err
	}
	call := func(what string, nr uint64, args ...uint64) uint64 {
		if err != nil {
			return 0
		}
		var r uint64
		if r, err = t.syscall(nr, args...); err != nil {
			err = &RefusedError{fmt.Errorf("%s in the process: %w", what, err)}
		}
		return r
	}
	flags := call("fcntl", unix.SYS_FCNTL, fd, unix.F_GETFD)
	if flags != 0 {
		flags = unix.O_CLOEXEC
	}
	const cwd = ^uint64(99) // AT_FDCWD
	var got uint64
	if t.inside {
		got, err = t.giveFile(path)
	} else {
		got = call("open "+path, unix.SYS_OPENAT, cwd, addr, unix.O_RDONLY)
	}
	call("dup3", unix.SYS_DUP3, got, fd, flags)
	call("close", unix.SYS_CLOSE, got)
	if err != nil {
		return err
	}
	return t.WriteAt(saved, addr)
}

// untilOpen lets the process run until it has opened the file want, and returns
// the descriptor.
func (t *Process) untilOpen(want os.FileInfo) (fd uint64, err error) {
	// Else nothing tells a stop at a system call from another one.
	if err := unix.PtraceSetOptions(t.pid, unix.PTRACE_O_EXITKILL|unix.PTRACE_O_TRACESYSGOOD); err != nil {
		return 0, &RefusedError{fmt.Errorf("PTRACE_SETOPTIONS: %w", err)}
	}
	opening := false
	for {
		if err := t.resume(unix.PtraceSyscall); err != nil {
			return 0, err
		}
		s, err := t.syscallStop()
		if err != nil {
			return 0, err
		}
		switch s.op {
		case unix.PTRACE_SYSCALL_INFO_ENTRY:
			_, opening = openCalls[s.word]
		case unix.PTRACE_SYSCALL_INFO_EXIT:
			if !opening || int64(s.word) < 0 {
				continue
			}
			have, err := os.Stat(fmt.Sprintf("/proc/%d/fd/%d", t.pid, s.word))
			if err == nil && os.SameFile(have, want) {
				return s.word, nil
			}
		}
	}
}

// syscallStop is where a process that is stopped is with a system call.
type syscallStop struct {
	op   uint8     // PTRACE_SYSCALL_INFO_...
	pc   uint64    // behind the instruction that has made the call
	word uint64    // at the entry the call's number, at the exit its result
	args [6]uint64 // at the entry
}

func (t *Process) syscallStop() (syscallStop, error) {
	var info struct { // struct ptrace_syscall_info, of Linux 5.3
		op    uint8
		_     [3]uint8
		_     uint32 // arch
		pc    uint64
		_     uint64 // stack pointer
		word  uint64
		args  [6]uint64
		extra uint64
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(t.pid),
		unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 {
		return syscallStop{}, &RefusedError{fmt.Errorf("PTRACE_GET_SYSCALL_INFO: %w", errno)}
	}
	return syscallStop{info.op, info.pc, info.word, info.args}, nil
}
