package patch

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/record"
)

// Processes that run already.
//
// At its exec stop nobody knows anything of an image. In a process that runs, unwinders know where its search table is,
// and can be in the middle of an entry; they remember neither what the table nor what an entry says. So nothing is
// changed in .eh_frame: all entries are copied, and the table's are led to the copies in their place, four bytes each. Where
// the entries themselves are what unwinders go through, each is led to the CIE of its copy instead, which is four bytes as well.
// Nothing new can be in the table, as it does not become longer, so unwinders know neither thunks nor displaced
// instructions. They never look for a thunk, because the rule that finds a caller behind one is in the function's own
// entry; but they would look for a call that has been displaced, and for a thunk where its function has jumped to another
// image, whose entries have no such rule. Functions with such a call at the beginning are left alone. So are those that may
// end by such a jump, where there are exceptions. A thread is cancelled at any instruction between what glibc calls before a
// system call that waits and what behind it, so these two are left alone. Where unwinders ask glibc which table they are
// to look in, and the runtime answers (Running.Find), they find all of that.

// A caller is a machine that finds calls among instructions.
type caller interface {
	// calls reports whether one of a run of instructions is a call.
	calls(code []byte) bool
	// jumpLen is how long the jump is from a site to its thunk at most.
	jumpLen() int
	// shadow returns what [Running] says of return addresses.
	shadow() (back, flipped uint64)
}

// Unwinders says what those who unwind the stacks of a process that runs know of what is added to it.
type Unwinders int

const (
	UnwindersNone  Unwinders = iota // there are none as yet
	UnwindersBlind                  // there are, and they find nothing that is added
	UnwindersKnow                   // they find what is added, by [Running].Find
)

// ErrRunning is wrapped by errors about images that can be traced from their start, but not once they run.
var ErrRunning = errors.New("cannot be traced while it runs")

var errGoStacks = errors.New("a Go program, whose stacks move")

// Code is changed while threads are stopped that go on at once if the recorder is killed, and the kernel writes page by
// page. So a jump must not begin in one page and end in another; what is behind it need not be written.
const pageSize = 4096

// inTwoPages reports whether a jump at an address has parts in two pages. There is room for n bytes.
func (p *Plan) inTwoPages(addr uint64, n int) bool {
	m, ok := p.m.(caller)
	return ok && addr/pageSize != (addr+uint64(min(n, m.jumpLen()))-1)/pageSize
}

// cutAtPages has edits of code end where their page does.
func (l *layout) cutAtPages(edits []arch.Edit) []arch.Edit {
	for i := range edits {
		e := &edits[i]
		if n := int(pageSize - e.Addr%pageSize); e.Reason != ReasonUnwind && n < len(e.New) && !l.p.inTwoPages(e.Addr, len(e.New)) {
			e.Old, e.New = e.Old[:n:n], e.New[:n:n]
		}
	}
	return edits
}

// leaveUnwritable leaves functions alone that would displace a call, whose jump would lie in two pages, or whose thunk unwinders
// would look for.
func (l *layout) leaveUnwritable() error {
	m, ok := l.p.m.(caller)
	if !ok {
		return fmt.Errorf("%w: not on this machine", ErrRunning)
	}
	if l.p.golang != nil {
		return fmt.Errorf("%w: %w", ErrRunning, errGoStacks)
	}
	for i := range l.p.Functions {
		switch fn := &l.p.Functions[i]; {
		case fn.Action != Trace:
		case fn.Moved > 0 && m.calls(fn.Bytes[:fn.Moved]):
			fn.leave(record.ReasonCallMoves)
		case fn.Len > 0 && l.p.inTwoPages(fn.Addr, fn.Len):
			fn.leave(record.ReasonTwoPages)
		case fn.BesideSyscall && l.p.Options.Unwinders != UnwindersKnow:
			fn.leave(record.ReasonBesideSyscall)
		case l.p.Options.Unwinders == UnwindersBlind && !(cCode{o: &l.p.Options}).looks() && (fn.JumpsAway || fn.Kind == record.KindLibCall):
			fn.leave(record.ReasonJumpsAway)
		}
	}
	return nil
}

// unwindsByGCC reports whether a static image certainly has libgcc's unwinder, and no other: LLVM's wants CIEs in front of their
// entries.
func (p *Plan) unwindsByGCC() bool {
	syms, err := p.file.Symbols()
	if err != nil {
		return false
	}
	gcc := false
	for i := range syms {
		switch syms[i].Name {
		case "uw_frame_state_for": // a function of unwind-dw2.c
			gcc = true
		case "unw_init_local", "__unw_init_local":
			return false
		}
	}
	return gcc
}

// lead leads the image's own entries to the CIEs that their copies have.
func (l *layout) lead(copies *ehframe.Moved, base uint64) error {
	table, err := ehframe.Read(l.p.file)
	if err != nil {
		return err
	}
	of := make(map[uint64]uint64, len(copies.Entries))
	for _, e := range copies.Entries {
		of[e.PC] = e.FDE
	}
	for d := range table.All() {
		entry, ok := of[d.PC]
		if !ok {
			continue
		}
		e, err := copies.LeadToCIE(l.p.file, d, entry, base)
		if err == nil && (d.Addr%4 != 0 || !l.editEntry(d, e)) {
			err = fmt.Errorf("the entry at %#x is not where the segments say", d.Addr)
		}
		if err != nil {
			return fmt.Errorf("%w: its start-up code registers its unwind information: %w", ErrRunning, err)
		}
	}
	return nil
}

// LeftRunning is how many functions are left alone only because the program runs already, and why: "12 call-moves, 3 two-pages".
func (p *Plan) LeftRunning() (n int, reasons string) {
	by := make(map[record.Reason]uint64)
	for i := range p.Functions {
		switch why := p.Functions[i].Reason; why {
		case record.ReasonCallMoves, record.ReasonTwoPages, record.ReasonJumpsAway, record.ReasonBesideSyscall:
			by[why]++
			n++
		}
	}
	return n, tally(by)
}

// redirect leads the entries of the image's own search table to copies: hdr is the one over all, at an address. Where unwinders
// read entry by entry what start-up code has registered, in order, or sorted by where the entries are, these are led to copies of
// their CIEs, which begin at base.
func (l *layout) redirect(hdr []byte, at uint64, copies *ehframe.Moved, base uint64) error {
	addr, before, after, err := ehframe.Redirect(l.p.file, hdr, at)
	if err == nil && l.p.registers() {
		err = ehframe.ErrNoHeader // or one that nobody looks at
	}
	switch {
	case errors.Is(err, ehframe.ErrNoHeader) && l.p.unwinds():
		if !l.p.unwindsByGCC() {
			return fmt.Errorf("%w: its start-up code registers its unwind information, and who unwinds is not known; "+
				"-T function changes none", ErrRunning)
		}
		return l.lead(copies, base)
	case errors.Is(err, ehframe.ErrNoHeader):
		return nil // nobody unwinds
	case err != nil:
		return err
	}
	l.tables = append(l.tables, arch.Edit{Addr: addr, Old: before, New: after, Reason: ReasonUnwind})
	return nil
}

// Running is what it takes to put a plan into a process that runs, and out again. Addresses are as those of [Memory].
type Running struct {
	Image    uint64 // Plan.ImageID
	Remote   uint64 // where a thread begins that is to call a routine
	Attach   uint64 // the routine that starts the runtime
	Areas    uint64 // ... that tells where stacks are
	Shed     uint64 // ... that unmaps some of that
	Leave    uint64 // ... that unmaps what the runtime has mapped
	Loaded   uint64 // where the dynamic loader is to come that has mapped libraries, with the way back in r11
	Exec     uint64 // where a thread is to come before it executes a program: number in eax, the way back in r11
	Find     uint64 // what takes the place of the routine that glibc's _dl_find_object calls
	Finder   uint64 // a word for the address of that
	Known    bool   // the plan is for UnwindersKnow
	Armed    uint64 // a word of 4 bytes, not 0 while the process is traced
	Switches uint64 // the functions' switches
	Unwind   uint64 // where in RX the unwind information begins
	Traced   int    // how many functions are traced
	Return   uint64 // where in a thunk, of which there is one for each at the beginning of RX, the function returns to
	Thunk    uint64 // size of each, in bytes
	Shadow   uint64 // the bits that differ in the addresses of a return address and of its shadow

	Waits []Wait // by At
	Parts []Part // how the image is mapped
}

// A Part is a segment of an image that has contents in its file, of which pages are mapped.
type Part struct {
	Addr, Off uint64 // of its first byte, in the image and in the file
}

// A Wait is where a thread is in a copy of a system call that is in the kernel, or about to be, and where it goes on when the
// image is as it was.
type Wait struct{ At, Back uint64 }

// FromCopy returns where a thread goes on, when the image is as it was, that waits in a system call which was moved. It
// returns false for every other address.
func (r *Running) FromCopy(addr uint64) (uint64, bool) {
	i, ok := slices.BinarySearchFunc(r.Waits, addr, func(w Wait, addr uint64) int { return cmp.Compare(w.At, addr) })
	if !ok {
		return 0, false
	}
	return r.Waits[i].Back, true
}

// running finds that.
func (l *layout) running() (*Running, error) {
	m, ok := l.p.m.(caller)
	if !ok {
		return nil, fmt.Errorf("%w: not on this machine", ErrRunning)
	}
	if l.p.golang != nil {
		return nil, errGoStacks
	}
	r := &Running{Image: l.p.ImageID, Switches: l.switches, Traced: l.traced, Waits: l.waits(),
		Known: l.p.Options.Unwinders == UnwindersKnow}
	for _, p := range l.p.file.Progs {
		if p.Type == elf.PT_LOAD && p.Filesz > 0 {
			r.Parts = append(r.Parts, Part{p.Vaddr, p.Off})
		}
	}
	for i := range l.pieces {
		if pc := &l.pieces[i]; pc.name == thunkFrames {
			r.Unwind = pc.addr
		}
	}
	r.Return, r.Shadow = m.shadow()
	r.Thunk = uint64(l.thunkSize)
	for name, to := range map[string]*uint64{
		"fentry_remote": &r.Remote, "fentry_attach": &r.Attach, "fentry_areas": &r.Areas, "fentry_shed": &r.Shed, "fentry_leave": &r.Leave,
		"fentry_armed": &r.Armed, "fentry_loaded": &r.Loaded, "fentry_exec": &r.Exec,
		"fentry_find_object": &r.Find, "fentry_finder": &r.Finder,
	} {
		var err error
		if *to, err = l.symbol(name); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// inCopy: the same instruction of the copy, or, of a site that is nops, what comes behind them.
func (l *layout) inCopy(addr uint64) (uint64, bool) {
	if to, ok := l.movedCopy(addr); ok {
		return to, true
	}
	all := l.p.Functions
	i := sort.Search(len(all), func(i int) bool { return all[i].Addr >= addr }) - 1
	if i < 0 || all[i].ID == 0 || addr >= all[i].End() {
		return l.inSyscall(addr)
	}
	fn := &all[i]
	if displaces(fn) {
		to, ok := l.displacer.displacedAt(fn.Site, int(addr-fn.Addr))
		return l.displacedTo(fn) + uint64(to), ok
	}
	return fn.End(), !isCall(fn.Kind)
}
