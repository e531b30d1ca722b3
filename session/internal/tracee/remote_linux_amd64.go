package tracee

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Calls that a stopped thread of a running process is made to make, of the kernel and of routines that were put into the
// process.
//
// System calls are made by an instruction of the vdso, so nothing of the program is written to, and from its stop at the
// call to that at the end, not by single steps: these are signals, and a SIGTRAP that is blocked or ignored costs the
// program its handler. All signals are blocked meanwhile. At the end the thread is in the same kind of stop as at the
// beginning: only on the way out of that does the kernel look whether a system call is to be made again.
type remote struct {
	t       *thread
	mask    uint64
	vdso    uint64 // address of an instruction that calls the kernel
	stopped bool   // by SIGSTOP, which nobody can block: it is put off
}

// remoteLimit bounds what a call may take.
const remoteLimit = 5 * time.Second

// remote takes a thread for such calls: one that can make them unnoticed. ms are the process's mappings.
func (ts *threads) remote(ms []mapping) (*remote, error) {
	r := &remote{}
	code := []byte(nil)
	for _, m := range ms {
		if m.path == "[vdso]" && m.hi-m.lo <= 1<<20 {
			code = make([]byte, m.hi-m.lo)
			if err := ts.memory().ReadAt(code, m.lo); err != nil {
				return nil, err
			}
			r.vdso = m.lo
		}
	}
	at := bytes.Index(code, syscallInsn)
	if at < 0 {
		return nil, errors.New("its vdso has no instruction that calls the kernel")
	}
	r.vdso += uint64(at)
	const restartBlock = ^uint64(516 - 1) // how long it still waits is kept in one place a thread
	for _, t := range ts.all {
		if r.t != nil && r.t.regs.Rax != restartBlock {
			break
		}
		if !t.critical() {
			r.t = t
		}
	}
	if r.t == nil {
		return nil, errBusy
	}
	all := ^uint64(0)
	if err := r.t.signalMask(ptraceGetSigmask, &r.mask); err != nil {
		return nil, err
	}
	return r, r.t.signalMask(ptraceSetSigmask, &all)
}

func (t *thread) signalMask(request uintptr, set *uint64) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, request, uintptr(t.pid), 8, uintptr(unsafe.Pointer(set)), 0, 0)
	if errno != 0 {
		return fmt.Errorf("the process's signal mask: %w", errno)
	}
	return nil
}

// call makes a system call.
func (r *remote) call(nr uint64, args ...uint64) (uint64, error) {
	regs := *r.t.regs
	var a [6]uint64
	copy(a[:], args)
	regs.setCall(nr, a)
	regs.setPC(r.vdso)
	regs.noRestart()
	if err := r.t.setRegisters(&regs); err != nil {
		return 0, err
	}
	for range 2 { // its beginning, its end
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	after, err := r.t.registers()
	if err != nil {
		return 0, err
	}
	const maxErrno = 4095
	if v := after.result(); v > ^uint64(maxErrno) {
		return 0, syscall.Errno(-v)
	}
	return after.result(), nil
}

// next goes on to the next stop at a system call.
func (r *remote) next() error {
	for {
		if err := unix.PtraceSyscall(r.t.pid, 0); err != nil {
			return fmt.Errorf("ptrace: %w", err)
		}
		ws, err := r.t.wait()
		switch {
		case err != nil:
			return err
		case !ws.Stopped():
			return ErrEnded
		case ws.StopSignal() == syscallTrap:
			return nil
		case ws.StopSignal() == syscall.SIGSTOP && ws>>16 == 0:
			r.stopped = true
		case ws>>16 == unix.PTRACE_EVENT_STOP:
		default:
			return fmt.Errorf("stopped by %v", ws.StopSignal())
		}
	}
}

// A stack is memory that was mapped for routines to run on. It begins with the two words of a result, and room for what
// a routine writes.
type remoteStack struct{ lo, hi uint64 }

const (
	remoteStackSize = 256 << 10
	remoteRoom      = 64 // where the room begins
	remoteRoomSize  = 128 << 10
	mostAux         = 1 << 10
)

func (r *remote) mapStack() (s remoteStack, err error) {
	s.lo, err = r.mmap(0, remoteStackSize, unix.PROT_READ|unix.PROT_WRITE)
	s.hi = s.lo + remoteStackSize
	return s, err
}

func (r *remote) unmapStack(s remoteStack) error {
	_, err := r.call(unix.SYS_MUNMAP, s.lo, s.hi-s.lo)
	return err
}

// mmap maps private memory, at an address unless that is 0.
func (r *remote) mmap(addr, n uint64, prot int) (uint64, error) {
	flags := uint64(unix.MAP_PRIVATE | unix.MAP_ANONYMOUS)
	if addr != 0 {
		flags |= unix.MAP_FIXED_NOREPLACE
	}
	got, err := r.call(unix.SYS_MMAP, addr, n, uint64(prot), flags, ^uint64(0), 0)
	if err == nil && addr != 0 && got != addr {
		_, _ = r.call(unix.SYS_MUNMAP, got, n)
		err = unix.EEXIST
	}
	if err != nil {
		return 0, fmt.Errorf("map %d bytes at %#x in the process: %w", n, addr, err)
	}
	return got, nil
}

// run calls a routine: entry is where a thread begins that is to (stub/src/amd64/attach.S), sp the stack pointer.
func (r *remote) run(s remoteStack, entry, routine, sp uint64, args ...uint64) (result uint64, err error) {
	if err := r.t.WriteAt(make([]byte, 16), s.lo); err != nil {
		return 0, err
	}
	regs := *r.t.regs
	var a [2]uint64
	copy(a[:], args)
	regs.setPC(entry)
	regs.noRestart()
	const directionAndTrap = 1<<10 | 1<<8
	regs.Eflags &^= directionAndTrap
	regs.Rsp, regs.Rbx, regs.R12, regs.Rdi, regs.Rsi = sp, s.lo, routine, a[0], a[1]
	if err := r.t.setRegisters(&regs); err != nil {
		return 0, err
	}
	if err := unix.PtraceCont(r.t.pid, 0); err != nil {
		return 0, fmt.Errorf("ptrace: %w", err)
	}
	deadline := time.Now().Add(remoteLimit)
	word := make([]byte, 16)
	for looks := 0; ; looks++ {
		if err := r.t.ReadAt(word, s.lo); err != nil {
			return 0, err
		}
		if le.Uint32(word) != 0 {
			break
		}
		if time.Now().After(deadline) {
			err = errors.New("the runtime does not answer in the process")
			break
		}
		var ws syscall.WaitStatus
		if got, werr := syscall.Wait4(r.t.pid, &ws, syscall.WALL|syscall.WNOHANG, nil); got != 0 && werr == nil {
			if !ws.Stopped() {
				return 0, ErrEnded
			}
			if ws.StopSignal() == syscall.SIGSTOP && ws>>16 == 0 {
				r.stopped = true
			} else if ws>>16 != unix.PTRACE_EVENT_STOP {
				return 0, fmt.Errorf("the runtime was stopped by %v in the process", ws.StopSignal())
			}
			if err := unix.PtraceCont(r.t.pid, 0); err != nil {
				return 0, fmt.Errorf("ptrace: %w", err)
			}
		}
		rest(looks)
	}
	if serr := r.interrupt(); serr != nil {
		return 0, serr
	}
	return le.Uint64(word[8:]), err
}

// interrupt stops the thread, which runs.
func (r *remote) interrupt() error {
	if _, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_INTERRUPT, uintptr(r.t.pid), 0, 0, 0, 0); errno != 0 {
		return ErrEnded
	}
	return r.t.awaitStop(time.Now().Add(remoteLimit))
}

// keepThread takes over what a routine has set that belongs to the thread: the base of gs.
func (r *remote) keepThread() error {
	now, err := r.t.registers()
	if err == nil {
		r.t.regs.keepThread(now)
	}
	return err
}

// end puts the thread back to where it was.
func (r *remote) end() error {
	// It stands behind a system call. The kernel does not go on with another one from there.
	if _, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_INTERRUPT, uintptr(r.t.pid), 0, 0, 0, 0); errno != 0 {
		return ErrEnded
	}
	if err := unix.PtraceCont(r.t.pid, 0); err != nil {
		return ErrEnded
	}
	err := r.t.awaitStop(time.Now().Add(remoteLimit))
	if err == nil {
		err = r.t.setRegisters(r.t.regs)
	}
	if err == nil {
		err = r.t.signalMask(ptraceSetSigmask, &r.mask)
	}
	if r.stopped {
		_ = syscall.Kill(r.t.pid, syscall.SIGSTOP)
	}
	return err
}
