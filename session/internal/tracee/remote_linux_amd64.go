package tracee

import (
	"errors"
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// Calls that a stopped thread of a running process is made to make, of the kernel and of routines that were put into the
// process.
//
// The recorder can be killed at any moment, and then the thread goes on with the registers that it has. So it always has
// those of code that leads it back: that restores the signal mask, which blocks all signals meanwhile, and all registers,
// and goes on where the thread was. That code stands where nothing is, in the page behind the end of the vdso, or of
// another image's code (lifeline_linux_amd64.go): nothing of the program is written to. Routines return to it, and a system
// call is made by the instruction in front of it. A recorder that lives stops the thread there.
//
// Calls are made from the stop at their beginning to that at their end, not by single steps: these are signals, and a
// SIGTRAP that is blocked or ignored costs the program its handler; and who is stepped when the recorder is killed ends by
// that signal. At the end the thread is in the same kind of stop as at the beginning: only on the way out of that does the
// kernel look whether a system call is to be made again.
type remote struct {
	pid  int
	t    *thread
	back *lifeline
	mask uint64
	line int // by which the thread says that it comes from a routine (connect); -1: there is none

	follow bool // it says nothing, and is followed
}

// remoteLimit bounds for how long a call may wait. A thread that waits for a processor gets remoteTries of it: how long
// that takes is not for the process to say.
var remoteLimit = 5 * time.Second

const remoteTries = 12

// errStuck: a thread does not come back from a call, and is let go there. What the call does is not known, so nothing of
// it may be tried again.
var errStuck = errors.New("a call that a thread of it is made to make does not end")

// errNoAnswer: a routine does not return. It is not interrupted, as nobody knows what it has done: the thread goes on by
// itself when it does return, as if the recorder had been killed.
var errNoAnswer = errors.New("the runtime does not answer in the process, and stays there")

// remote takes a thread for such calls: one that can make them unnoticed. ms are the process's mappings.
func (ts *threads) remote(ms []mapping) (*remote, error) {
	r := &remote{pid: ts.pid, line: -1}
	const restartBlock = ^uint64(516 - 1) // how long it still waits is kept in one place a thread
	for _, t := range ts.all {
		if r.t != nil && r.t.regs.Rax != restartBlock {
			break
		}
		if !t.critical() && (ts.unfit == nil || !ts.unfit(t)) {
			r.t = t
		}
	}
	if r.t == nil {
		return nil, errBusy
	}
	if err := r.t.exempt(); err != nil {
		return nil, err
	}
	if err := r.t.signalMask(ptraceGetSigmask, &r.mask); err != nil {
		return nil, err
	}
	at, err := roomForLifeline(ts.memory(), ms)
	if err != nil {
		return nil, err
	}
	r.back = &lifeline{mem: ts.memory(), at: at, regs: r.t.regs, mask: r.mask}
	if err := r.back.write(); err != nil {
		return nil, err
	}
	// From here on all that the thread can do by itself is to go back.
	if err := r.lead(func(*registers) {}); err != nil {
		return nil, errors.Join(err, r.back.erase())
	}
	blocked := ^uint64(0)
	return r, r.t.signalMask(ptraceSetSigmask, &blocked)
}

// lead has the thread go on, when it is let go, at the beginning of the way back, with registers that a function has changed.
func (r *remote) lead(change func(*registers)) error {
	regs := *r.t.regs
	regs.setPC(r.back.start())
	regs.noRestart()
	change(&regs)
	return r.t.setRegisters(&regs)
}

func (t *thread) signalMask(request uintptr, set *uint64) error {
	return signalMask(t.pid, request, set)
}

// call makes a system call.
func (r *remote) call(nr uint64, args ...uint64) (uint64, error) {
	var a [6]uint64
	copy(a[:], args)
	err := r.through(func(regs *registers) {
		regs.setCall(nr, a)
		regs.setPC(r.back.call())
	})
	late := err == errStuck
	if late {
		err = r.interrupt()
	}
	if err != nil {
		return 0, err
	}
	after, err := r.t.registers()
	if err != nil {
		return 0, err
	}
	if late && !after.returned(r.back.called()) {
		return 0, errStuck
	}
	return after.value()
}

// through has the thread make a system call that it stands at with registers that a function has changed.
func (r *remote) through(change func(*registers)) error {
	err := r.lead(change)
	for range 2 { // its beginning, its end
		if err == nil {
			err = r.next()
		}
	}
	return err
}

// returned tells whether a thread that was interrupted has come back from a system call, and is behind it.
func (r *registers) returned(behind uint64) bool {
	v := -int64(r.Rax)
	return r.pc() == behind && v != int64(unix.ENOSYS) && (v < firstRestart || v > lastRestart)
}

// next goes on to the next stop at a system call.
func (r *remote) next() error { return r.goOn(unix.PTRACE_SYSCALL, rest) }

// goOn has the thread go on to a stop at a system call, or until pause says that there is no more to wait for. A SIGSTOP,
// which nobody can block, stops the others at once, and this thread when it is let go. If one comes after the other, the
// error is errStuck.
func (r *remote) goOn(how uintptr, pause func(looks int) bool) error {
	deadline := time.Now().Add(remoteTries * remoteLimit)
	for signal := syscall.Signal(0); ; {
		if time.Now().After(deadline) {
			return errStuck
		}
		if ptrace(how, r.t.pid, int(signal)) != nil {
			return ErrEnded
		}
		signal = 0
		ws, err := r.await(pause)
		switch s := ws.StopSignal(); {
		case err != nil:
			return err
		case ws == 0 || s == syscallTrap:
			return nil
		case ws>>16 == unix.PTRACE_EVENT_STOP:
		case s == syscall.SIGSTOP:
			signal = s
		default:
			return fmt.Errorf("stopped by %v", s)
		}
	}
}

// await waits for any stop, or until pause ends that: then ws is 0. The error is errStuck if none comes.
func (r *remote) await(pause func(looks int) bool) (ws syscall.WaitStatus, err error) {
	for range remoteTries {
		if ws, err = r.t.awaitOr(time.Now().Add(remoteLimit), pause); err != errBusy {
			return ws, err
		}
		if s, err := procfs.ReadStat(fmt.Sprintf("/proc/%d/stat", r.t.pid)); err != nil || s.State == 'S' {
			break // it waits; else it has stopped just now, or waits for a processor, or for memory
		}
	}
	return ws, errStuck
}

// A stack is memory that was mapped for routines to run on. It begins with the two words of a result, and room for what
// a routine writes.
type remoteStack struct {
	lo, hi uint64
	noted  uint64 // where a journal names it; 0: nowhere
}

const (
	remoteStackSize = 256 << 10
	remoteRoom      = 64 // where the room begins
	remoteRoomSize  = 128 << 10
	mostAux         = 1 << 10
)

// mapStack maps a stack, which children that are forked meanwhile do not get.
func (r *remote) mapStack() (s remoteStack, err error) {
	if s.lo, err = r.mmap(0, remoteStackSize, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return s, err
	}
	s.hi = s.lo + remoteStackSize
	if err = r.advise(unix.MADV_DONTFORK, area{s.lo, remoteStackSize}); err != nil {
		err = errors.Join(err, r.unmapStack(s))
	}
	return s, err
}

func (r *remote) unmapStack(s remoteStack) error {
	if s.noted != 0 {
		if err := r.t.WriteAt(make([]byte, 16), s.noted); err != nil {
			return err
		}
	}
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

// advise tells the kernel of areas: that children get them (MADV_DOFORK) or do not (MADV_DONTFORK). What of them is not
// mapped any more does not count.
func (r *remote) advise(advice uint64, areas ...area) error {
	for _, m := range areas {
		if _, err := r.call(unix.SYS_MADVISE, m.at, m.size, advice); err != nil && err != unix.ENOMEM {
			return fmt.Errorf("what children get of %#x in the process: %w", m.at, err)
		}
	}
	return nil
}

// run calls a routine: entry is where a thread begins that is to (stub/src/amd64/attach.S), sp the stack pointer.
func (r *remote) run(s remoteStack, entry, routine, sp uint64, args ...uint64) (result uint64, err error) {
	if err := r.t.WriteAt(make([]byte, 16), s.lo); err != nil {
		return 0, err
	}
	said := r.line >= 0 && !r.follow
	var a [2]uint64
	copy(a[:], args)
	err = r.lead(func(regs *registers) {
		regs.setPC(entry)
		const directionAndTrap = 1<<10 | 1<<8
		regs.Eflags &^= directionAndTrap
		regs.Rsp, regs.Rbx, regs.Rdi, regs.Rsi = sp, s.lo, a[0], a[1]
		regs.R12, regs.R13 = routine, r.back.start()
		if said {
			regs.R13 = r.back.say()
		}
	})
	if err != nil {
		return 0, err
	}
	if said {
		err = r.hear()
	} else {
		err = r.goBack()
	}
	if err == errStuck {
		err = errNoAnswer
	}
	word := make([]byte, 16)
	if err == nil && (r.t.ReadAt(word, s.lo) != nil || le.Uint32(word) == 0) {
		err = ErrEnded
	}
	return le.Uint64(word[8:]), err
}

// hear has the thread go on until it says that it comes from a routine, and stops it there, where it waits.
func (r *remote) hear() error {
	const look, short = 1, 20 // ms: whether it has stopped, or ended; for how many others need not know that this one waits
	err := r.goOn(unix.PTRACE_CONT, func(looks int) bool {
		fd := []unix.PollFd{{Fd: int32(r.line), Events: unix.POLLIN}}
		if looks < short {
			_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fd[0])), 1,
				uintptr(unsafe.Pointer(&unix.Timespec{Nsec: look * int64(time.Millisecond)})), 0, 0, 0)
		} else {
			_, _ = unix.Poll(fd, look)
		}
		n, _, err := unix.Recvfrom(r.line, make([]byte, 1), unix.MSG_DONTWAIT)
		return n == 1 && err == nil
	})
	if err != nil {
		return err
	}
	return r.interrupt()
}

// goBack has the thread go on until it is about to leave the way back, and keeps it there. The error is errStuck if it makes
// system calls for too long.
func (r *remote) goBack() error {
	deadline := time.Now().Add(remoteTries * remoteLimit)
	for {
		if time.Now().After(deadline) {
			return errStuck
		}
		if err := r.next(); err != nil {
			return err
		}
		now, err := r.t.registers()
		if err != nil {
			return err
		}
		if now.pc() != r.back.end() {
			continue
		}
		// The call that restores the mask is about to be made. It is not made, and then the way back begins again.
		now.noRestart()
		now.setPC(r.back.start())
		if err := r.t.setRegisters(now); err != nil {
			return err
		}
		return r.next()
	}
}

// interrupt stops the thread, which runs: in the stop that is asked for, or at the end of the system call that it is in,
// which takes the place of that.
func (r *remote) interrupt() error {
	if err := r.askToStop(); err != nil {
		return err
	}
	for {
		ws, err := r.await(rest)
		if err != nil || ws>>16 == unix.PTRACE_EVENT_STOP || ws.StopSignal() == syscallTrap {
			return err
		}
		if err := ptrace(unix.PTRACE_CONT, r.t.pid, int(ws.StopSignal())); err != nil {
			return ErrEnded
		}
	}
}

func (r *remote) askToStop() error {
	if ptrace(unix.PTRACE_INTERRUPT, r.t.pid, 0) != nil {
		return ErrEnded
	}
	return nil
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
	if err := r.hangUp(); err != nil {
		return err
	}
	// It stands behind a system call. The kernel does not go on with another one from there.
	if err := r.askToStop(); err != nil {
		return err
	}
	if err := ptrace(unix.PTRACE_CONT, r.t.pid, 0); err != nil {
		return ErrEnded
	}
	err := r.t.awaitStop(time.Now().Add(remoteTries * remoteLimit))
	if err == errBusy {
		err = errStuck
	}
	if err == nil {
		err = r.t.signalMask(ptraceSetSigmask, &r.mask) // first: it is not on its way back any more then
	}
	if err == nil {
		err = r.t.setRegisters(r.t.regs)
	}
	if err == nil {
		err = r.back.erase()
	}
	if ferr := r.t.subject(); err == nil {
		err = ferr
	}
	return err
}
