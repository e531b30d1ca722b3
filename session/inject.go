//go:build linux

package session

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Keys of the auxiliary vector (elf.h).
const (
	atNull  = 0
	atPhdr  = 3
	atPhnum = 5
	atEntry = 9
)

// Requests that x/sys has no function for (linux/ptrace.h).
const (
	ptraceSetSigmask = 0x420b
)

// errNotPlanned: the process does not run the file that was planned.
var errNotPlanned = errors.New("not the file that was planned")

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

// inject writes the plan's memory into the process.
func (t *tracee) inject(m *Memory) error {
	regs, err := t.registers()
	if err != nil {
		return &errInject{err}
	}
	aux, err := t.auxv(regs.sp())
	if err != nil {
		return &errInject{err}
	}
	entry, ok := aux[atEntry]
	if !ok {
		return &errInject{errors.New("auxiliary vector: no AT_ENTRY")}
	}
	bias := entry.val - m.OrigEntry
	if bias%pageSize != 0 {
		return errNotPlanned
	}
	// All old bytes are compared before anything is changed.
	spans := m.spans()
	for _, run := range spans {
		if err := t.compare(run, bias); err != nil {
			return err
		}
	}
	if err := t.mapMemory(m, bias); err != nil {
		return err
	}
	for _, run := range spans {
		if err := t.edit(run, bias); err != nil {
			return err
		}
	}
	set := func(key, val uint64) error {
		e, ok := aux[key]
		if !ok {
			return &errInject{fmt.Errorf("auxiliary vector: no entry %d", key)}
		}
		return t.write(le.AppendUint64(nil, val), e.addr)
	}
	if m.PhdrAddr != 0 {
		if err := set(atPhdr, bias+m.PhdrAddr); err != nil {
			return err
		}
		if err := set(atPhnum, uint64(m.Phnum)); err != nil {
			return err
		}
	}
	if m.NullCB != 0 {
		regs.setThreadBlock(bias + m.NullCB)
	}
	if regs.pc() == entry.val {
		// No interpreter comes first: the process simply begins elsewhere.
		if err := set(atEntry, bias+m.Entry); err != nil {
			return err
		}
		regs.setPC(bias + m.Entry)
		if err := t.setRegisters(regs); err != nil {
			return &errInject{err}
		}
		return nil
	}
	// Constructors of libraries run, and call back, before the interpreter goes
	// to AT_ENTRY. So the runtime is started now, and the interpreter after it.
	return t.runStart(regs, bias+m.Entry, entry.val)
}

// startLimit bounds the time the runtime may take to start.
const startLimit = 30 * time.Second

// runStart lets the process run from the added entry point to the image's own,
// where a breakpoint stops it, and puts it back to where it was.
func (t *tracee) runStart(regs *registers, from, to uint64) error {
	saved := make([]byte, len(breakpoint))
	if err := t.read(saved, to); err != nil {
		return err
	}
	if err := t.write(breakpoint, to); err != nil {
		return err
	}
	run := *regs
	run.setPC(from)
	run.noRestart()
	if err := t.setRegisters(&run); err != nil {
		return &errInject{err}
	}
	limit := time.AfterFunc(startLimit, func() { syscall.Kill(t.pid, syscall.SIGKILL) })
	err := t.resume(unix.PtraceCont)
	if !limit.Stop() {
		return errors.New("the runtime does not start in the program")
	}
	if err != nil {
		return err
	}
	after, err := t.registers()
	if err != nil {
		return &errInject{err}
	}
	if !after.stoppedAt(to) {
		return &errInject{fmt.Errorf("the runtime stopped at %#x", after.pc())}
	}
	if err := t.write(saved, to); err != nil {
		return err
	}
	regs.keepThread(after)
	if err := t.setRegisters(regs); err != nil {
		return &errInject{err}
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
		case ws.StopSignal() == syscall.SIGTRAP:
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

// mapMemory maps the added memory and fills it in. It is never writable and
// executable at once: the kernel writes to it on behalf of the tracer.
func (t *tracee) mapMemory(m *Memory, bias uint64) error {
	if m.RWSize > 0 {
		// What does not begin at a page shares the last page of the image's bss.
		start, end := pageUp(m.RWAddr), pageUp(m.RWAddr+m.RWSize)
		if head := start - m.RWAddr; head > 0 {
			b := make([]byte, min(head, m.RWSize))
			if err := t.read(b, bias+m.RWAddr); err != nil {
				return err
			}
			if len(bytes.Trim(b, "\x00")) > 0 {
				return &errInject{fmt.Errorf("memory at %#x is in use", m.RWAddr)}
			}
		}
		if end > start {
			if err := t.mmap(bias+start, end-start, unix.PROT_READ|unix.PROT_WRITE); err != nil {
				return err
			}
		}
	}
	if err := t.mmap(bias+m.RXAddr, pageUp(uint64(len(m.RX))), unix.PROT_READ|unix.PROT_EXEC); err != nil {
		return err
	}
	return t.write(m.code(), bias+m.RXAddr)
}

func pageUp(v uint64) uint64 { return (v + pageSize - 1) &^ (pageSize - 1) }

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

// compare checks a run of edits against the process.
func (t *tracee) compare(run []Edit, bias uint64) error {
	addr, n := extent(run)
	b := make([]byte, n)
	if err := t.read(b, bias+addr); err != nil {
		return err
	}
	for i := range run {
		e := &run[i]
		if have := b[e.Addr-addr:][:len(e.Old)]; !bytes.Equal(have, e.Old) {
			return &MismatchError{Addr: e.Addr, Actual: have, Expected: e.Old}
		}
	}
	return nil
}

// edit makes a run of edits that has been compared.
func (t *tracee) edit(run []Edit, bias uint64) error {
	addr, n := extent(run)
	b := make([]byte, n)
	if err := t.read(b, bias+addr); err != nil {
		return err
	}
	for i := range run {
		e := &run[i]
		copy(b[e.Addr-addr:], e.New)
	}
	return t.write(b, bias+addr)
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

// auxEntry is a value of the auxiliary vector and where it is.
type auxEntry struct{ val, addr uint64 }

// auxv reads the auxiliary vector from the stack of a process that has not run
// yet: argc, argv, NULL, envp, NULL, auxv.
func (t *tracee) auxv(sp uint64) (map[uint64]auxEntry, error) {
	const (
		window = 4096
		limit  = 16 << 20 // arguments take at most 6 MiB (fs/exec.c), their pointers can take more
	)
	var buf []byte
	word := func(i int) (uint64, error) {
		for len(buf) < 8*(i+1) {
			if len(buf) > limit {
				return 0, errors.New("auxiliary vector: no end")
			}
			b := make([]byte, window)
			n, err := t.mem.ReadAt(b, int64(sp)+int64(len(buf)))
			n &^= 7
			if n == 0 {
				return 0, fmt.Errorf("auxiliary vector: %w", err)
			}
			buf = append(buf, b[:n]...)
		}
		return le.Uint64(buf[8*i:]), nil
	}
	argc, err := word(0)
	if err != nil {
		return nil, err
	}
	if argc > limit/8 {
		return nil, fmt.Errorf("auxiliary vector: %d arguments", argc)
	}
	i := 1 + int(argc) + 1
	for {
		v, err := word(i)
		if err != nil {
			return nil, err
		}
		i++
		if v == 0 {
			break
		}
	}
	aux := make(map[uint64]auxEntry)
	for ; ; i += 2 {
		key, err := word(i)
		if err != nil {
			return nil, err
		}
		if key == atNull {
			return aux, nil
		}
		val, err := word(i + 1)
		if err != nil {
			return nil, err
		}
		aux[key] = auxEntry{val, sp + uint64(8*(i+1))}
	}
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
		if _, err := t.syscall(unix.SYS_RT_SIGACTION, s, addr, 0, 8, 0, 0); err != nil {
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
