package patch

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/record"
)

const phentsize = 56 // sizeof(Elf64_Phdr)

// Processes.
//
// A plan for a process is the same contents at other addresses: out of the way of the heap, which begins behind the
// image. Nobody has read the image's program headers yet when it is applied, so the process gets a table of its own,
// in the added memory, and is told of it by its auxiliary vector. Static programs of glibc 2.36 do not look there: they read
// the ELF header that is mapped with them, so theirs leads to the table, too.

// Memory says what to write into a process stopped at exec. Addresses are link-time addresses, to which the caller
// adds the load bias, AT_ENTRY minus OrigEntry.
type Memory struct {
	RX        []byte // contents of read-execute memory to map at RXAddr, Size bytes; see Whole
	RXAddr    uint64
	RWAddr    uint64 // zeroed read-write memory to map
	RWSize    uint64
	Entry     uint64 // new AT_ENTRY
	OrigEntry uint64
	PhdrAddr  uint64      // new AT_PHDR, inside RX
	Phnum     int         // new AT_PHNUM
	NullCB    uint64      // initial gs base of the first thread
	Session   uint64      // where in RX the path of the recorder's buffer is, format.ConfigNSession bytes
	Switches  uint64      // the functions' switches in the memory at RWAddr, a byte each; 0: not known
	Loader    uint64      // where the dynamic loader is to come when it has opened a file; 0: nowhere
	Edits     []arch.Edit // by address; see Whole

	// Code is a file as [Memory.WriteCode] makes it, set by who applies the plan; nil: there is none. At CodeRX it has RX.
	Code   *os.File
	CodeRX int64

	places  places
	rest    *keptRest // RX and Edits; nil: these are set
	session string    // in place of the path in RX; "": that holds

	// Goroutines: it is a Go program, most of whose stacks are no thread's.
	Goroutines bool

	// LoadsSwaps is 1 if return addresses are replaced while functions are traced, and what the program loads may swap pieces
	// of its stack (record.LoadsSwaps): then libraries have to be looked at as they come.
	LoadsSwaps uint64

	// Running is how the plan gets into a process that runs; nil: it is for one at its exec stop.
	Running *Running

	// LoaderCalls are the dynamic loader's system calls, set by who applies the plan; nil: they are not recorded.
	LoaderCalls *LoaderCalls
	// The runtime's routines for system calls, before those that are recorded, those that may be, and behind them; 0: it
	// has none on this machine.
	SyscallEnter, SyscallSome, SyscallExit uint64
}

// places knows where things are in an image that is planned.
type places interface {
	inCopy(addr uint64) (uint64, bool)
	sites() (ids []uint32, at []uint64)
	preempts(addr uint64) bool
	goes(addr uint64) bool
	running() (*Running, error)
}

// HasPlaces reports whether it is known where things are in the image: [Memory.Sites], [Memory.InCopy] and the like. It is not of
// memory that was read ([ReadMemory]).
func (m *Memory) HasPlaces() bool { return m.places != nil }

// InCopy returns where a thread goes on that is in the middle of a site, at an address of the image. It returns false if
// that is not known.
func (m *Memory) InCopy(addr uint64) (uint64, bool) {
	if m.places == nil {
		return 0, false
	}
	return m.places.inCopy(addr)
}

// Removable returns the plan of a program that was started with it, with what it takes to take it out again.
func (m *Memory) Removable() (*Memory, error) {
	if m.Running != nil {
		return m, nil
	}
	if m.places == nil {
		return nil, errors.New("it is not known where things are in it")
	}
	running, err := m.places.running()
	if err != nil {
		return nil, err
	}
	with := *m
	with.Running = running
	return &with, nil
}

// Preempts reports whether a thread that is at an address of the image has a goroutine go on, where it was stopped, that has not
// been led to the copy.
func (m *Memory) Preempts(addr uint64) bool { return m.places != nil && m.places.preempts(addr) }

// HasGo reports whether an address of the image is one of Go's code.
func (m *Memory) HasGo(addr uint64) bool { return m.places != nil && m.places.goes(addr) }

// Sites are the sites of functions that are traced, by address, and which function each is of, by local id.
func (m *Memory) Sites() (ids []uint32, at []uint64) {
	if m.places == nil {
		return nil, nil
	}
	return m.places.sites()
}

func (l *layout) sites() (ids []uint32, at []uint64) {
	for i := range l.p.Functions {
		switch fn := &l.p.Functions[i]; {
		case fn.ID == 0 || fn.role == swapping: // which is never off
		case l.movedBack[i]:
			for _, w := range l.movedWindows[i] {
				ids, at = append(ids, fn.ID), append(at, w.addr)
			}
		case fn.Moves == nil && l.p.golang == nil:
			ids, at = append(ids, fn.ID), append(at, fn.Addr)
		}
	}
	return ids, at
}

// Memory returns the plan as memory contents. Options.Target must be [Process].
func (p *Plan) Memory() (*Memory, error) {
	if p.Options.Target != Process {
		return nil, fmt.Errorf("plan is for a file, not for a process")
	}
	if err := p.Build(); err != nil {
		return nil, err
	}
	l := p.l
	null, err := l.symbol("fentry_null_cb")
	if err != nil {
		return nil, err
	}
	enter, some, exit := l.syscallRoutines(false)
	if only := p.onlySyscalls(); only.All() {
		some = enter
	}
	edits := l.allEdits()
	var running *Running
	if p.Options.Running {
		if running, err = l.running(); err != nil {
			return nil, err
		}
		if a := p.Options.Addition; a != nil {
			a.behind(edits)
		}
		edits = l.cutAtPages(edits)
	}
	swaps := uint64(0)
	if p.flavour().hides() && record.LoadsSwaps(p.file) {
		swaps = 1
	}
	return &Memory{
		places: l, LoadsSwaps: swaps, Running: running, Goroutines: p.golang != nil, RX: l.rx, RXAddr: l.base, RWAddr: l.rw, RWSize: l.rwSize,
		Entry: p.Entry, OrigEntry: p.OrigEntry, Switches: l.switches, PhdrAddr: l.phdrAddr, Phnum: l.phnum,
		NullCB: null, Session: l.runtime.config + format.ConfigOSession, Loader: l.runtime.syms["fentry_loader_open"], Edits: edits,
		SyscallEnter: l.runtime.syms[enter], SyscallSome: l.runtime.syms[some], SyscallExit: l.runtime.syms[exit],
	}, nil
}

// headers lays out a program header table for the changed process: the image's own, the added segments, and
// the merged unwind table. PT_PHDR tells ld.so the load bias, so it moves along.
func (l *layout) headers() {
	progs := slices.Clone(l.p.file.Progs)
	has := func(t elf.ProgType) bool {
		return slices.ContainsFunc(progs, func(pr elfio.Prog) bool { return pr.Type == t })
	}
	last := 0
	for i := range progs {
		if progs[i].Type == elf.PT_LOAD {
			last = i
		}
	}
	hasHdr, hasTLS := has(elf.PT_GNU_EH_FRAME), has(elf.PT_TLS)
	// What they are of is known at the end.
	progs = slices.Insert(progs, last+1, elfio.Prog{Type: elf.PT_LOAD}, elfio.Prog{Type: elf.PT_LOAD})
	if !hasHdr && l.ehFrameHdr[1] > 0 {
		progs = append(progs, elfio.Prog{Type: elf.PT_GNU_EH_FRAME, Flags: elf.PF_R, Align: 4})
	}
	if !hasTLS && l.ptTLS.Type == elf.PT_TLS {
		progs = append(progs, l.ptTLS)
	}
	size := uint64(len(progs) * phentsize)
	l.phnum = len(progs)
	l.phdrAddr = l.add(piece{
		name: "program headers", size: size, align: 8, owner: nobody,
		write: func(dst []byte) ([]byte, error) {
			for _, pr := range progs {
				dst = appendProg(dst, pr)
			}
			return dst, nil
		},
	})
	used := l.end() - l.base
	progs[last+1] = elfio.Prog{
		Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_W, Vaddr: l.rw, Paddr: l.rw, Memsz: l.rwSize, Align: 4096,
	}
	progs[last+2] = elfio.Prog{
		Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, Vaddr: l.base, Paddr: l.base, Filesz: used, Memsz: used, Align: 4096,
	}
	for i := range progs {
		switch pr := &progs[i]; pr.Type {
		case elf.PT_PHDR:
			pr.Vaddr, pr.Paddr, pr.Filesz, pr.Memsz = l.phdrAddr, l.phdrAddr, size, size
		case elf.PT_TLS:
			if l.ptTLS.Type == elf.PT_TLS {
				pr.Memsz = l.ptTLS.Memsz
			}
		case elf.PT_GNU_EH_FRAME:
			pr.Vaddr, pr.Paddr = l.ehFrameHdr[0], l.ehFrameHdr[0]
			pr.Filesz, pr.Memsz = l.ehFrameHdr[1], l.ehFrameHdr[1]
		}
	}
	if !l.p.Options.Running && readsHeader(l.p.file) {
		l.mappedHeader()
	}
}

// readsHeader tells static programs of glibc 2.36 as it was released, by messages of its start-up code: the first one is new
// in it, the second one in 2.37, by which AT_PHDR counts again. It is not done to others, as elfutils takes no image in a
// core dump for one if its headers are far from it.
func readsHeader(f *elfio.File) bool {
	return f.ProgIndex(elf.PT_INTERP) < 0 && bytes.Contains(f.Raw(), []byte("Fatal glibc error: Cannot allocate TLS block\n")) &&
		!bytes.Contains(f.Raw(), []byte("Fatal glibc error: %s:%s (%s): assertion failed: %s\n"))
}

// mappedHeader has the ELF header in memory lead to the program headers. What reads it there counts from it
// (__ehdr_start), which takes 64 bits.
func (l *layout) mappedHeader() {
	const size, phoff, phnum = 64, 32, 56 // Elf64_Ehdr
	raw := l.p.file.Raw()
	for i := range l.p.file.Progs {
		pr := &l.p.file.Progs[i]
		if pr.Type != elf.PT_LOAD || pr.Off != 0 || pr.Filesz < size || pr.Vaddr > l.phdrAddr || l.phnum >= 1<<16 {
			continue
		}
		set := func(at uint64, field []byte) {
			l.tables = append(l.tables, arch.Edit{
				Addr: pr.Vaddr + at, Old: bytes.Clone(raw[at:][:len(field)]), New: field, Reason: ReasonHeaders,
			})
		}
		set(phoff, le.AppendUint64(nil, l.phdrAddr-pr.Vaddr))
		set(phnum, le.AppendUint16(nil, uint16(l.phnum)))
		return
	}
}

// appendProg appends an Elf64_Phdr.
func appendProg(b []byte, pr elfio.Prog) []byte {
	b = le.AppendUint32(b, uint32(pr.Type))
	b = le.AppendUint32(b, uint32(pr.Flags))
	for _, v := range [...]uint64{pr.Off, pr.Vaddr, pr.Paddr, pr.Filesz, pr.Memsz, pr.Align} {
		b = le.AppendUint64(b, v)
	}
	return b
}
