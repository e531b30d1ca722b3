package tracee

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// The way back of a program that is given the tracer at its beginning, if the recorder is killed.
//
// Until all of it is there, the thread stands in code of its own, which executes the program once more, with the arguments and
// the environment that are on its stack: so whatever was changed is gone with the memory. Nothing of the program has run.
//
//	start:                     ;
//	rt_sigprocmask(SIG_SETMASK, mask, 0, 8)
//	execve(path, argv, envp)   ;
//	exit_group(127)            ;
//	calls:                     ; system calls that the recorder has it make, until one fails: there are r13 from r12 on
//	rax, rdi, rsi, rdx, r10, r8, r9 = *r12
//	syscall                    ;
//	*r12 = rax                 ;
//	if rax >= -4095 goto done  ;
//	r12 += 56                  ;
//	if --r13 goto calls        ;
//	done:                      ; the runtime comes here when it has started
//	tgkill(getpid(), gettid(), SIGURG)
//	jmp start
//
// The signal stops the thread for the recorder; without one nobody notices it. It stands where that of a running process does
// (lifeline_linux_amd64.go). In the end the registers are set, which is one call: before it there is nothing, behind it all.

// parked is a thread that stands there.
type parked struct {
	at, start, calls, done, end uint64
	regs                        *registers // with which the program begins
	mask                        uint64
	path, argv, envp            uint64
	maps                        []mapping // when nothing was added
}

const (
	atExecFn  = 31
	parkedExe = "/proc/self/exe"
	// parkedSignal is ignored if nobody asks for it.
	parkedSignal = syscall.SIGURG
)

// code is the machine code.
func (p *parked) code() []byte {
	const maskAt, exeAt = lifelineSize - 8, lifelineSize - 8 - 16
	var b []byte
	add := func(code ...byte) { b = append(b, code...) }
	number := func(op byte, v uint32) { b = le.AppendUint32(append(b, op), v) } // mov $v, %register
	constant := func(op byte, v uint64) { b = le.AppendUint64(append(b, 0x48, op), v) }
	const eax, edx, edi = 0xb8, 0xba, 0xbf
	if p.path == 0 {
		p.path = p.at + exeAt
	}
	p.start = p.at
	number(eax, unix.SYS_RT_SIGPROCMASK)
	number(edi, unix.SIG_SETMASK)
	constant(0xbe, p.at+maskAt) // mov $mask, %rsi
	number(edx, 0)
	add(0x41, 0xba, 8, 0, 0, 0) // mov $8, %r10d
	add(syscallInsn...)
	number(eax, unix.SYS_EXECVE)
	constant(0xbf, p.path) // mov $path, %rdi
	constant(0xbe, p.argv) // mov $argv, %rsi
	constant(0xba, p.envp) // mov $envp, %rdx
	add(syscallInsn...)
	number(eax, unix.SYS_EXIT_GROUP)
	number(edi, 127)
	add(syscallInsn...)
	p.calls = p.at + uint64(len(b))
	add(0x49, 0x8b, 0x04, 0x24)       // mov (%r12), %rax
	add(0x49, 0x8b, 0x7c, 0x24, 0x08) // mov 8(%r12), %rdi
	add(0x49, 0x8b, 0x74, 0x24, 0x10) // mov 16(%r12), %rsi
	add(0x49, 0x8b, 0x54, 0x24, 0x18) // mov 24(%r12), %rdx
	add(0x4d, 0x8b, 0x54, 0x24, 0x20) // mov 32(%r12), %r10
	add(0x4d, 0x8b, 0x44, 0x24, 0x28) // mov 40(%r12), %r8
	add(0x4d, 0x8b, 0x4c, 0x24, 0x30) // mov 48(%r12), %r9
	add(syscallInsn...)
	add(0x49, 0x89, 0x04, 0x24)                 // mov %rax, (%r12)
	add(0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff)     // cmp $-4095, %rax
	add(0x73, 9)                                // jae done
	add(0x49, 0x83, 0xc4, callSize)             // add $56, %r12
	add(0x41, 0xff, 0xcd)                       // dec %r13d
	add(0x75, byte(int(p.calls-p.at)-len(b)-2)) // jnz calls
	p.done = p.at + uint64(len(b))
	number(eax, unix.SYS_GETPID)
	add(syscallInsn...)
	add(0x89, 0xc7) // mov %eax, %edi
	number(eax, unix.SYS_GETTID)
	add(syscallInsn...)
	add(0x89, 0xc6) // mov %eax, %esi
	number(edx, uint32(parkedSignal))
	number(eax, unix.SYS_TGKILL)
	add(syscallInsn...)
	p.end = p.at + uint64(len(b))
	add(0xe9) // jmp start
	b = le.AppendUint32(b, uint32(p.start-(p.at+uint64(len(b))+4)))
	b = append(b, make([]byte, exeAt-len(b))...)
	b = append(b, parkedExe...)
	b = append(b, make([]byte, maskAt-len(b))...)
	return le.AppendUint64(b, p.mask)
}

// park has a process that has just executed a program stand there, with its signals blocked. If there is no place for that, it
// stays where it is.
func (t *Process) park() error {
	if seccomp(fmt.Sprintf("/proc/%d", t.pid)) {
		return errNoLifeline // its filter may not let the thread say that it is done
	}
	regs, aux, err := t.start()
	if err != nil {
		return err
	}
	ms, err := readMaps(fmt.Sprintf("/proc/%d", t.pid))
	if err != nil {
		return err
	}
	p := &parked{regs: regs, argv: regs.sp() + 8, maps: ms}
	if p.at, err = roomForLifeline(t, ms); err != nil {
		return err
	}
	var argc [8]byte
	if err := t.ReadAt(argc[:], regs.sp()); err != nil {
		return err
	}
	p.envp = p.argv + 8*(le.Uint64(argc[:])+1)
	call := ExecCall{Path: t.text(aux[atExecFn].val), Dir: atCwd}
	// A script's interpreter is executed by a path that is not there.
	if by, err := os.Stat(call.File(t.pid)); err == nil {
		if exe, err := os.Stat(fmt.Sprintf("/proc/%d/exe", t.pid)); err == nil && os.SameFile(by, exe) {
			p.path = aux[atExecFn].val
		}
	}
	if err := t.signalMask(ptraceGetSigmask, &p.mask); err != nil {
		return err
	}
	if err := t.WriteAt(p.code(), p.at); err != nil {
		return err
	}
	stand := *regs
	stand.setPC(p.start)
	stand.noRestart()
	if err := t.setRegisters(&stand); err != nil {
		return &RefusedError{err}
	}
	t.parked = p
	blocked := ^(uint64(1) << (parkedSignal - 1))
	if err := t.signalMask(ptraceSetSigmask, &blocked); err != nil {
		_ = t.unpark()
		return err
	}
	return nil
}

// unpark has it begin the program.
func (t *Process) unpark() error {
	p := t.parked
	t.parked = nil
	if err := t.signalMask(ptraceSetSigmask, &p.mask); err != nil {
		return err
	}
	if err := t.setRegisters(p.regs); err != nil {
		return &RefusedError{err}
	}
	return t.WriteAt(make([]byte, lifelineSize), p.at)
}

// callSize is what a call takes on the stack: its number, in whose place comes what it returns, and its arguments.
const callSize = 7 * 8

// makes is [Process.makes] for a thread that stands there: it makes them all before it stops again.
func (p *parked) makes(t *Process, calls []call) (done int, err error) {
	const below = 8 << 10 // of the stack, more than a path takes
	table := make([]byte, 0, len(calls)*callSize)
	for i := range calls {
		table = le.AppendUint64(table, calls[i].nr)
		for _, a := range calls[i].args {
			table = le.AppendUint64(table, a)
		}
	}
	at := (p.regs.sp() - below - uint64(len(table))) &^ 7
	saved := make([]byte, len(table))
	if err := t.ReadAt(saved, at); err != nil {
		return 0, err
	}
	if err := t.WriteAt(table, at); err != nil {
		return 0, err
	}
	r := *p.regs
	r.noRestart()
	r.setPC(p.calls)
	r.R12, r.R13 = at, uint64(len(calls))
	if err := t.setRegisters(&r); err != nil {
		return 0, err
	}
	after, err := p.awaitEnd(t)
	if err == nil {
		err = t.ReadAt(table, at)
	}
	if err != nil {
		return 0, err
	}
	for ; done < len(calls)-int(after.R13); done++ {
		calls[done].value = le.Uint64(table[done*callSize:])
	}
	if done < len(calls) {
		err = syscall.Errno(-le.Uint64(table[done*callSize:]))
	}
	if werr := t.WriteAt(saved, at); err == nil {
		err = werr
	}
	return done, err
}

// runStart is [Process.runStart] for a thread that stands there, and stays there. What it comes to is a jump and no breakpoint.
func (p *parked) runStart(t *Process, regs *registers, from, to uint64) error {
	jump := le.AppendUint64([]byte{0xff, 0x25, 0, 0, 0, 0}, p.done) // jmp *0(%rip)
	err := t.runTo(regs, from, to, jump, func() (*registers, error) { return p.awaitEnd(t) })
	if err == nil {
		p.regs = regs
	}
	return err
}

// awaitEnd waits until the thread has come to the end of its code. Signals that are not for that are put off.
func (p *parked) awaitEnd(t *Process) (*registers, error) {
	again := make(map[syscall.Signal]bool)
	defer func() {
		for s := range again {
			syscall.Kill(t.pid, s)
		}
	}()
	for {
		if err := unix.PtraceCont(t.pid, 0); err != nil {
			return nil, &RefusedError{fmt.Errorf("ptrace: %w", err)}
		}
		ws, err := t.wait()
		switch sig := ws.StopSignal(); {
		case err != nil:
			return nil, err
		case !ws.Stopped():
			return nil, &EndedError{ws}
		case sig == parkedSignal:
			regs, err := t.registers()
			if err != nil {
				return nil, &RefusedError{err}
			}
			if regs.pc() == p.end {
				return regs, nil
			}
			again[sig] = true
		case sig == syscall.SIGSTOP:
			again[sig] = true
		case sig == syscall.SIGTRAP && ws.TrapCause() == unix.PTRACE_EVENT_STOP: // it is continued
		default:
			return nil, &RefusedError{fmt.Errorf("stopped by %v", sig)}
		}
	}
}
