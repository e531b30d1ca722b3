//go:build linux

package tracee

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/patch"
)

// Libraries that are loaded with a program.
//
// The dynamic loader opens a library once and does everything by the descriptor: it reads the headers, asks which file
// it is, to find one that is loaded already by another path, and maps it. So a patched copy takes a library's place if
// that descriptor is made one of the copy when the call that has opened it returns. The name that the loader keeps,
// $ORIGIN, versions and dependencies are the library's; relocations, unwinders and debuggers know nothing else than the
// copy, and no code is changed in memory. The same copy has to take the place of the same file each time, or the
// loader would load it twice.
//
// From its exec stop on the process runs to a breakpoint at the program's own entry point: there the loader has done its
// work, and the tracer leaves. On the way it stops where the loader has opened a file, at breakpoints if its code is
// known (loaderhook.go), else at all system calls, of which there are thirty for each library. Only calls
// from the loader's code count, so that what constructors of libraries read stays what it is. Constructors can do
// anything: they get their signals, may fork, execute another program, end the process or take their time. Threads of
// theirs are not traced, and would die of a breakpoint, so from the first one on there is only that at the entry point.
//
// Tried instead: changing libraries when they are mapped, where the loader tells debuggers (_dl_debug_state). Unwinders
// have seen their tables by then, and code would have to be writable for a moment, which SELinux forbids.

// Keys of the auxiliary vector (elf.h).
const (
	atBase   = 7
	atSecure = 23
)

// ErrNoLoader: the process has no dynamic loader that could be watched.
var ErrNoLoader = errors.New("it has no dynamic loader")

// ErrPrivileged: the process has privileges that its user has not.
var ErrPrivileged = errors.New("it has the privileges of its file")

// ErrStopped: a signal has stopped the process while libraries were loaded.
var ErrStopped = errors.New("it was stopped by a signal")

// Opened is a file that the dynamic loader of a process has just opened.
type Opened struct {
	Path string // as the loader has named it
	FD   string // a path that leads to the open file
}

// Load lets the process run from its exec stop to its entry point, or until it executes another program. give says
// what takes the place of each file that the dynamic loader opens, by a path that leads to it from the process; "":
// the file stays. When Load returns, the process is stopped and as it would be without. From then on the loader comes to
// the runtime with what it opens, if the program was given one by m; unknown is told why it does not, and unknownCalls why its own system calls are not
// recorded.
func (t *Process) Load(m *patch.Memory, give func(Opened) string, unknown, unknownCalls func(error)) (err error) {
	l, err := t.loader()
	if err != nil {
		return err
	}
	if err := l.prepareCalls(m); err != nil {
		unknownCalls(err)
	}
	routine, err := l.later(m)
	if herr := l.hook(); herr != nil {
		routine, err = 0, herr
	}
	if err != nil {
		unknown(err)
	}
	if err := l.moveCalls(m); err != nil {
		unknownCalls(err)
	}
	// Else nothing tells a stop at a system call, or behind execve, from a signal.
	const options = unix.PTRACE_O_EXITKILL | unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACEEXEC |
		unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACECLONE
	if err := unix.PtraceSetOptions(t.pid, options); err != nil {
		return &RefusedError{fmt.Errorf("PTRACE_SETOPTIONS: %w", err)}
	}
	l.saved = make([]byte, len(breakpoint))
	if err := t.ReadAt(l.saved, l.entry); err != nil {
		return err
	}
	if err := t.WriteAt(breakpoint, l.entry); err != nil {
		return err
	}
	end, err := l.run(give)
	if end == executed || end == ended {
		return err // the memory is another's, or gone
	}
	if err != nil {
		routine = 0
	}
	if werr := l.aim(t, routine); err == nil {
		err = werr
	}
	if werr := t.WriteAt(l.saved, l.entry); err == nil {
		err = werr
	}
	return err
}

// loader is the dynamic loader of a process.
type loader struct {
	t        *Process
	from, to uint64 // its image
	code     []span // what of it is executed
	dynamic  span
	calls    span   // where its own system calls are made if they are recorded
	ways     ways   // to the runtime, from there
	hooked   []span // what of its code hook has changed
	stubs    span   // where system calls of it are made that were moved, or open is called
	stub     stubLayout
	armed    bool   // there are breakpoints in these
	exchange uint64 // where exchangeCode is; 0: nowhere
	entry    uint64 // of the program
	saved    []byte // what is at the breakpoint there

	pool os.FileInfo // what the runtime opens when libraries are loaded; nil: it is not looked for

	opening bool   // it is in a system call that opens a file
	path    uint64 // the address of the path
}

// span is a part of the loader.
type span struct{ addr, size uint64 }

// maxCode is more than any loader has.
const maxCode = 16 << 20

// later returns the runtime's routine for libraries that the running program loads.
func (l *loader) later(m *patch.Memory) (routine uint64, err error) {
	switch {
	case m == nil:
		return 0, errors.New("the program itself is not traced")
	case m.Loader == 0:
		return 0, errors.New("the runtime has no routine for it on this machine")
	}
	return m.Loader + l.entry - m.OrigEntry, nil
}

// loader finds the dynamic loader of a process that has not run yet.
func (t *Process) loader() (*loader, error) {
	regs, aux, err := t.start()
	if err != nil {
		return nil, err
	}
	base, entry := aux[atBase].val, aux[atEntry].val
	if t.entry != 0 {
		entry = t.entry
	}
	switch {
	case aux[atSecure].val != 0:
		return nil, ErrPrivileged
	case base == 0 || entry == 0 || regs.pc() == entry:
		return nil, ErrNoLoader
	}
	head := make([]byte, 64) // Elf64_Ehdr
	if err := t.ReadAt(head, base); err != nil {
		return nil, err
	}
	phoff, phentsize, phnum := le.Uint64(head[32:]), le.Uint16(head[54:]), le.Uint16(head[56:])
	if !bytes.HasPrefix(head, []byte(elf.ELFMAG)) || phentsize != Phentsize {
		return nil, &RefusedError{fmt.Errorf("at %#x, the interpreter's base, is no ELF header", base)}
	}
	progs := make([]byte, int(phnum)*Phentsize)
	if err := t.ReadAt(progs, base+phoff); err != nil {
		return nil, err
	}
	l := &loader{t: t, from: base, entry: entry}
	for ; len(progs) > 0; progs = progs[Phentsize:] {
		addr, size := base+le.Uint64(progs[16:]), le.Uint64(progs[40:]) // p_vaddr, p_memsz
		switch elf.ProgType(le.Uint32(progs)) {
		case elf.PT_DYNAMIC:
			l.dynamic = span{addr, size}
			continue
		case elf.PT_LOAD:
		default:
			continue
		}
		l.to = max(l.to, addr+size)
		if elf.ProgFlag(le.Uint32(progs[4:]))&elf.PF_X != 0 && size <= maxCode {
			l.code = append(l.code, span{addr, size})
		}
	}
	return l, nil
}

// symbol returns the address of a dynamic symbol of the loader, which has not run yet; 0: it has none of that name.
func (l *loader) symbol(name string) (uint64, error) {
	const entry, symbol = 16, 24 // sizes of Elf64_Dyn and Elf64_Sym
	dyn := make([]byte, min(l.dynamic.size, maxDynamic))
	if err := l.t.ReadAt(dyn, l.dynamic.addr); err != nil {
		return 0, err
	}
	tags := map[elf.DynTag]uint64{}
	for ; len(dyn) >= entry; dyn = dyn[entry:] {
		tags[elf.DynTag(le.Uint64(dyn))] = le.Uint64(dyn[8:])
	}
	syms, text, size := tags[elf.DT_SYMTAB], tags[elf.DT_STRTAB], tags[elf.DT_STRSZ]
	if syms == 0 || text <= syms || text-syms > maxCode || size > maxCode {
		return 0, nil // linkers put the names behind the symbols, which says how many there are
	}
	table, names := make([]byte, text-syms), make([]byte, size)
	if err := l.t.ReadAt(table, l.from+syms); err != nil {
		return 0, err
	}
	if err := l.t.ReadAt(names, l.from+text); err != nil {
		return 0, err
	}
	for ; len(table) >= symbol; table = table[symbol:] {
		at := le.Uint32(table)
		defined := elf.SectionIndex(le.Uint16(table[6:])) != elf.SHN_UNDEF
		if defined && at < uint32(len(names)) && bytes.HasPrefix(names[at:], append([]byte(name), 0)) {
			return l.from + le.Uint64(table[8:]), nil
		}
	}
	return 0, nil
}

// maxDynamic is more than any loader's dynamic section has.
const maxDynamic = 1 << 16

// How the loader's part of a process's life ends.
type loaderEnd int

const (
	loads    loaderEnd = iota // not yet
	entered                   // the program begins
	executed                  // it is another program
	ended                     // the process is gone
	given                     // it goes on without being watched: the error says why
)

// run lets the process go from stop to stop.
func (l *loader) run(give func(Opened) string) (loaderEnd, error) {
	var signal syscall.Signal // to be delivered
	for {
		resume := unix.PtraceSyscall
		if l.armed {
			resume = unix.PtraceCont
		}
		if err := resume(l.t.pid, int(signal)); err != nil {
			return given, &RefusedError{fmt.Errorf("ptrace: %w", err)}
		}
		ws, err := l.t.wait()
		if err != nil {
			return given, err
		}
		signal = 0
		switch sig := ws.StopSignal(); {
		case !ws.Stopped():
			return ended, &EndedError{ws}
		case sig == syscallTrap:
			var end loaderEnd
			if end, err = l.atCall(give); end == entered {
				return entered, err
			}
		case groupStopped(ws):
			return given, ErrStopped // a seized process stays stopped
		case ws>>16 == unix.PTRACE_EVENT_STOP: // and is told when it is continued
		case sig == syscall.SIGTRAP && ws.TrapCause() == unix.PTRACE_EVENT_EXEC:
			return executed, nil
		case sig == syscall.SIGTRAP && ws.TrapCause() == unix.PTRACE_EVENT_FORK:
			err = l.forked()
		case sig == syscall.SIGTRAP && ws.TrapCause() == unix.PTRACE_EVENT_CLONE:
			err = l.cloned()
		case sig == syscall.SIGTRAP:
			var end loaderEnd
			if end, err = l.atBreakpoint(give); end == entered {
				return entered, err
			} else if end == given {
				signal = sig // not ours
			}
		case l.groupStop():
			// Let go while stopped, it stays so until somebody continues it.
			syscall.Kill(l.t.pid, syscall.SIGSTOP)
			return given, ErrStopped
		default:
			signal = sig
		}
		if err != nil {
			return given, err
		}
	}
}

// wait waits for the process's next stop.
func (t *Process) wait() (ws syscall.WaitStatus, err error) {
	for {
		_, err := syscall.Wait4(t.pid, &ws, waitOwn, nil)
		if err == nil {
			return ws, nil
		}
		if err != syscall.EINTR {
			return ws, &RefusedError{fmt.Errorf("wait: %w", err)}
		}
	}
}

// forked lets a child go that a constructor has made. It has its own copy of the breakpoint, and may come to it.
func (l *loader) forked() error {
	pid, err := unix.PtraceGetEventMsg(l.t.pid)
	if err != nil {
		return &RefusedError{fmt.Errorf("PTRACE_GETEVENTMSG: %w", err)}
	}
	child := &Process{pid: int(pid)}
	if ws, err := child.wait(); err != nil || !ws.Stopped() {
		return err // it has been killed
	}
	if child.mem, err = os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0); err != nil {
		return &RefusedError{err}
	}
	if err := child.WriteAt(l.saved, l.entry); err != nil {
		return err
	}
	if err := l.aim(child, 0); err != nil {
		return err
	}
	return child.Detach()
}

// cloned lets a thread go that a constructor has made, when there are no breakpoints any more that it may come to.
func (l *loader) cloned() error {
	tid, err := unix.PtraceGetEventMsg(l.t.pid)
	if err != nil {
		return &RefusedError{fmt.Errorf("PTRACE_GETEVENTMSG: %w", err)}
	}
	if err := l.aim(l.t, 0); err != nil {
		return err
	}
	l.armed = false
	thread := &Process{pid: int(tid)}
	if ws, err := thread.wait(); err != nil || !ws.Stopped() {
		return err
	}
	return thread.Detach()
}

// atBreakpoint does what is to be done at a breakpoint. At the entry point it puts the process back in front of it.
// What it returns is given for a stop at another place.
func (l *loader) atBreakpoint(give func(Opened) string) (loaderEnd, error) {
	regs, err := l.t.registers()
	if err != nil {
		return given, &RefusedError{err}
	}
	if fd, path, ok := l.opened(regs); ok {
		if err := l.t.pass(regs); err != nil {
			return loads, err
		}
		return loads, l.replace(fd, path, give)
	}
	if !regs.stoppedAt(l.entry) {
		return given, nil
	}
	regs.setPC(l.entry)
	if err := l.t.setRegisters(regs); err != nil {
		return entered, &RefusedError{err}
	}
	return entered, nil
}

// replace asks what takes the place of a file that has been opened by the name at path. The process is outside of any
// system call.
func (l *loader) replace(fd, path uint64, give func(Opened) string) error {
	with := give(Opened{Path: l.t.text(path), FD: fmt.Sprintf("/proc/%d/fd/%d", l.t.pid, fd)})
	if with == "" {
		return nil
	}
	return l.t.withoutSignals(func() error {
		if l.exchange != 0 && len(with) < exchangePath && !l.t.inside && l.t.parked == nil {
			return l.exchangeFD(fd, with)
		}
		return l.t.replaceFD(fd, with)
	})
}

// groupStop tells whether the process has been stopped by a signal, not for one that is to be delivered: then there is
// none to be asked for.
func (l *loader) groupStop() bool {
	var info [128]byte // siginfo_t
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_GETSIGINFO, uintptr(l.t.pid), 0,
		uintptr(unsafe.Pointer(&info)), 0, 0)
	return errno == unix.EINVAL
}

// atCall looks at a system call that begins or ends.
func (l *loader) atCall(give func(Opened) string) (loaderEnd, error) {
	s, err := l.t.syscallStop()
	if err != nil {
		return loads, err
	}
	if s.op == unix.PTRACE_SYSCALL_INFO_ENTRY {
		arg, opens := openCalls[s.word]
		l.opening = opens && (s.pc-l.from < l.to-l.from || s.pc-l.stubs.addr < l.stubs.size || s.pc-l.calls.addr < l.calls.size)
		l.path = s.args[arg]
		return loads, nil
	}
	if !l.opening || s.op != unix.PTRACE_SYSCALL_INFO_EXIT || int64(s.word) < 0 {
		return loads, nil
	}
	if l.pool != nil {
		have, err := os.Stat(fmt.Sprintf("/proc/%d/fd/%d", l.t.pid, s.word))
		if err == nil && os.SameFile(have, l.pool) {
			return entered, nil
		}
	}
	// Registers are the process's own only outside of a system call: on arm64 the stop itself uses one.
	if err := l.t.withoutSignals(l.t.step); err != nil {
		return loads, err
	}
	return loads, l.replace(s.word, l.path, give)
}

// text reads a string of the process, the first bytes of a longer one; "" if there is none.
func (t *Process) text(addr uint64) string {
	b := make([]byte, unix.PathMax)
	n, _ := t.mem.ReadAt(b, int64(addr)) // short where the memory behind it ends
	s, _, _ := bytes.Cut(b[:n], []byte{0})
	return string(s)
}

// withoutSignals does something with the process while all its signals are blocked that can be.
func (t *Process) withoutSignals(do func() error) error {
	var old uint64
	all := ^uint64(0)
	if err := t.signalMask(ptraceGetSigmask, &old); err != nil {
		return err
	}
	if err := t.signalMask(ptraceSetSigmask, &all); err != nil {
		return err
	}
	err := do()
	if merr := t.signalMask(ptraceSetSigmask, &old); err == nil {
		err = merr
	}
	return err
}

// signalMask sets the thread's signal mask, or reads it.
func (t *Process) signalMask(request uintptr, set *uint64) error {
	if err := signalMask(t.pid, request, set); err != nil {
		return &RefusedError{err}
	}
	return nil
}

func signalMask(tid int, request uintptr, set *uint64) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, request, uintptr(tid), 8, uintptr(unsafe.Pointer(set)), 0, 0)
	if errno != 0 {
		return fmt.Errorf("the process's signal mask: %w", errno)
	}
	return nil
}
