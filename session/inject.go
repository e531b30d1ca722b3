//go:build linux

package session

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Keys of the auxiliary vector (elf.h).
const (
	atNull  = 0
	atPhdr  = 3
	atPhnum = 5
	atEntry = 9
)

// errNotPlanned: the process does not run the file that was planned.
var errNotPlanned = errors.New("not the file that was planned")

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
	if err := t.readable(aux); err != nil {
		return err
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

// readable refuses images with code that can be executed but not read, as the added
// unwind rules read code. A patched copy's can be read.
func (t *tracee) readable(aux map[uint64]auxEntry) error {
	n := aux[atPhnum].val
	if n > 1<<16 {
		return &errInject{fmt.Errorf("auxiliary vector: %d program headers", n)}
	}
	b := make([]byte, n*phentsize)
	if err := t.read(b, aux[atPhdr].val); err != nil {
		return err
	}
	for ; len(b) > 0; b = b[phentsize:] {
		typ, flags := elf.ProgType(le.Uint32(b)), elf.ProgFlag(le.Uint32(b[4:]))
		if typ == elf.PT_LOAD && flags&(elf.PF_X|elf.PF_R) == elf.PF_X {
			return &errInject{errors.New("its code cannot be read")}
		}
	}
	return nil
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
