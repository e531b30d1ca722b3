//go:build linux

package tracee

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/internal/parallel"
	"github.com/fentry-dev/fentry/patch"
)

// Keys of the auxiliary vector (elf.h).
const (
	atNull  = 0
	atPhdr  = 3
	atPhnum = 5
	atEntry = 9
)

// ErrNotPlanned: the process does not run the file that was planned.
var ErrNotPlanned = errors.New("not the file that was planned")

// Inject writes the plan's memory into the process. again: the runtime is to be started once more when the program
// begins, with its libraries loaded.
func (t *Process) Inject(m *patch.Memory, again bool) error {
	regs, aux, err := t.start()
	if err != nil {
		return err
	}
	entry, ok := aux[atEntry]
	if !ok {
		return &RefusedError{errors.New("auxiliary vector: no AT_ENTRY")}
	}
	bias := entry.val - m.OrigEntry
	if bias%PageSize != 0 {
		return ErrNotPlanned
	}
	if err := t.readable(aux); err != nil {
		return err
	}
	edits, err := t.mapMemory(m, bias, regs)
	if err != nil {
		return err
	}
	if err := t.replace(edits, bias); err != nil {
		return err
	}
	t.changed = true
	set := func(key, val uint64) error {
		e, ok := aux[key]
		if !ok {
			return &RefusedError{fmt.Errorf("auxiliary vector: no entry %d", key)}
		}
		return t.WriteAt(le.AppendUint64(nil, val), e.addr)
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
		if t.parked != nil {
			t.parked.regs = regs
			return nil
		}
		if err := t.setRegisters(regs); err != nil {
			return &RefusedError{err}
		}
		return nil
	}
	// Constructors of libraries run, and call back, before the interpreter goes
	// to AT_ENTRY. So the runtime is started now, and the interpreter after it.
	if err := t.runStart(regs, bias+m.Entry, entry.val); err != nil || !again {
		return err
	}
	// The kernel keeps a copy of the vector, which is what debuggers read, and the runtime puts back what it was.
	t.entry = entry.val
	return set(atEntry, bias+m.Entry)
}

// fewCode is of how many bytes code is changed before threads have been woken to help.
const fewCode = 1 << 20

// replace changes all of a program's code, or nothing. It is most of that, and read once, on all processors: the kernel copies each
// page of the file for the process.
func (t *Process) replace(edits []arch.Edit, bias uint64) error {
	if !t.poke {
		each := parallel.Do
		if n := len(edits); n == 0 || edits[n-1].Addr-edits[0].Addr < fewCode {
			each = nil
		}
		err := arch.Replace(arch.Moved{Memory: direct{stopped{t}}, Bias: bias}, PageSize, edits, each)
		if bug := (*arch.Bug)(nil); !errors.As(err, &bug) || bug.Class != arch.WriteFault {
			return err
		}
	}
	return arch.Replace(arch.Moved{Memory: stopped{t}, Bias: bias}, PageSize, edits, nil)
}

// readable refuses images with code that can be executed but not read, as the added
// unwind rules read code. A patched copy's can be read.
func (t *Process) readable(aux map[uint64]auxEntry) error {
	n := aux[atPhnum].val
	if n > 1<<16 {
		return &RefusedError{fmt.Errorf("auxiliary vector: %d program headers", n)}
	}
	b := make([]byte, n*Phentsize)
	if err := t.ReadAt(b, aux[atPhdr].val); err != nil {
		return err
	}
	for ; len(b) > 0; b = b[Phentsize:] {
		typ, flags := elf.ProgType(le.Uint32(b)), elf.ProgFlag(le.Uint32(b[4:]))
		if typ == elf.PT_LOAD && flags&(elf.PF_X|elf.PF_R) == elf.PF_X {
			return &RefusedError{errors.New("its code cannot be read")}
		}
	}
	return nil
}

var errNotStarted = errors.New("the runtime does not start in the program")

// startLimit bounds the time the runtime may take to start.
const startLimit = 30 * time.Second

// runStart lets the process run from the added entry point to the image's own,
// where a breakpoint stops it, and puts it back to where it was.
func (t *Process) runStart(regs *registers, from, to uint64) error {
	if t.parked != nil {
		return t.parked.runStart(t, regs, from, to)
	}
	err := t.runTo(regs, from, to, breakpoint, func() (*registers, error) {
		if err := t.resume(unix.PtraceCont); err != nil {
			return nil, err
		}
		after, err := t.registers()
		if err != nil {
			return nil, &RefusedError{err}
		}
		if !after.stoppedAt(to) {
			return nil, &RefusedError{fmt.Errorf("the runtime stopped at %#x", after.pc())}
		}
		return after, nil
	})
	if err != nil {
		return err
	}
	if err := t.setRegisters(regs); err != nil {
		return &RefusedError{err}
	}
	return nil
}

// runTo lets the process run from an address to another one, where code stands meanwhile by which wait sees it come. wait returns
// its registers then, of which regs take over what makes the thread's identity.
func (t *Process) runTo(regs *registers, from, to uint64, code []byte, wait func() (*registers, error)) error {
	saved := make([]byte, len(code))
	if err := t.ReadAt(saved, to); err != nil {
		return err
	}
	if err := t.WriteAt(code, to); err != nil {
		return err
	}
	run := *regs
	run.setPC(from)
	run.noRestart()
	if err := t.setRegisters(&run); err != nil {
		return &RefusedError{err}
	}
	limit := time.AfterFunc(startLimit, func() { syscall.Kill(t.pid, syscall.SIGKILL) })
	after, err := wait()
	if !limit.Stop() {
		return errNotStarted
	}
	if err != nil {
		return err
	}
	if err := t.WriteAt(saved, to); err != nil {
		return err
	}
	regs.keepThread(after)
	return nil
}

// mapMemory maps the added memory and fills it in, and code that has been changed before. It returns the edits that are still to
// be made. No memory is writable and executable at once: the kernel writes to it on behalf of the tracer.
func (t *Process) mapMemory(m *patch.Memory, bias uint64, regs *registers) ([]arch.Edit, error) {
	var calls []call
	if m.RWSize > 0 {
		// What does not begin at a page shares the last page of the image's bss.
		start, end := pageUp(m.RWAddr), pageUp(m.RWAddr+m.RWSize)
		if head := start - m.RWAddr; head > 0 {
			b := make([]byte, min(head, m.RWSize))
			if err := t.ReadAt(b, bias+m.RWAddr); err != nil {
				return nil, err
			}
			if len(bytes.Trim(b, "\x00")) > 0 {
				return nil, &RefusedError{fmt.Errorf("memory at %#x is in use", m.RWAddr)}
			}
		}
		if end > start {
			calls = append(calls, anonymous(bias+start, end-start, unix.PROT_READ|unix.PROT_WRITE))
		}
	}
	rx := anonymous(bias+m.RXAddr, pageUp(m.Size()), unix.PROT_READ|unix.PROT_EXEC)
	if c := t.codeFile(m, bias, regs); c != nil {
		if err := t.maps(calls...); err != nil {
			return nil, err
		}
		all, added, err := t.mapCode(m, c, rx)
		if err != nil {
			return nil, err
		}
		if added {
			left := c.left
			if all {
				w, err := whole(m)
				if err != nil {
					return nil, err
				}
				left = w.Edits
			}
			return left, t.WriteAt(m.SessionPath(), bias+m.Session)
		}
		calls = nil
	}
	w, err := whole(m)
	if err != nil {
		return nil, err
	}
	if err := t.maps(append(calls, rx)...); err != nil {
		return nil, err
	}
	return w.Edits, errors.Join(t.WriteAt(w.RX, bias+w.RXAddr), t.WriteAt(w.SessionPath(), bias+w.Session))
}

// whole is all of a plan's memory, which is on disk until it is needed.
func whole(m *patch.Memory) (*patch.Memory, error) {
	w, err := m.Whole()
	if err != nil {
		return nil, &RefusedError{fmt.Errorf("its plan cannot be read any more: %w", err)}
	}
	return w, nil
}

func pageUp(v uint64) uint64 { return (v + PageSize - 1) &^ (PageSize - 1) }
