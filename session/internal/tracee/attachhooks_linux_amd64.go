package tracee

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/arch"
)

// Where a process that was attached to comes to the runtime by itself: when its dynamic loader has mapped libraries, and
// before it executes a program.
//
// The loader calls a function that does nothing, for debuggers, whose address is in a structure that they find
// (r_debug.r_brk, <link.h>): when it is about to map libraries or to unmap some, and when that is done, before relocations
// and constructors. That function is a return and padding, in glibc and in musl, so a jump fits in. It leads to a page
// near by, as do those in the place of the instructions by which programs are executed (exechook_linux_amd64.go). Both are
// changed while all threads are stopped, like sites, and changed back like these. Unwinders come there, too
// (findhook_linux_amd64.go), as soon as anything leads there.

// hooks are what was changed for that.
type hooks struct {
	mapped []area
	edits  []arch.Edit
	debug  uint64 // the loader's struct r_debug; 0: there is none
	finder findHook
}

// pages are those that are mapped.
func (h *hooks) pages() []area {
	return slices.DeleteFunc(slices.Clone(h.mapped), func(m area) bool { return m.size == 0 })
}

// A hookPage is a page that is to be mapped.
type hookPage struct {
	near    uint64                                // where something is to lead there
	what    string                                // that is
	fill    func(at uint64) ([]byte, []arch.Edit) // what is to be there, and the jumps to it
	refused *error                                // why there is no such page
	at      uint64
	mapped  bool
}

// hook has the process come to the runtime, as far as that is possible: what stands against it is in NoLoader and NoExec.
func (a *Attachment) hook(ts *threads, t *Target) error {
	ms, err := ts.maps()
	if err != nil {
		return err
	}
	home := a.images[0]
	var wanted []*hookPage
	want := func(refused *error, find func() (*hookPage, error)) {
		p, err := find()
		if *refused = err; err == nil {
			p.refused = refused
			wanted = append(wanted, p)
		}
	}
	if t.Libraries != nil {
		want(&a.NoLoader, func() (*hookPage, error) { return ts.loaderHook(a, home.bias+home.m.Running.Loaded) })
	}
	if t.Execs != nil {
		want(&a.NoExec, func() (*hookPage, error) { return ts.execHook(ms, a.added(), t.Execs, home.bias+home.m.Running.Exec) })
	}
	pages, err := a.mapHooks(ts, wanted)
	if err != nil || len(pages) == 0 {
		return err
	}
	var edits []arch.Edit
	code := make(map[uint64][]byte)
	for _, p := range pages {
		b, jumps := p.fill(p.at)
		code[p.at], edits = b, append(edits, jumps...)
	}
	slices.SortFunc(edits, byAddress)
	// What changes in the code that was added goes with it.
	if err := home.noteHooks(ts.memory(), a.hooks.mapped, a.own(edits)); err != nil {
		return err
	}
	for at, b := range code {
		if err := ts.memory().WriteAt(b, at); err != nil {
			return err
		}
	}
	if err := ownPages(ts.memory(), edits, func(uint64) bool { return false }); err != nil {
		return err
	}
	b := &Attachment{images: a.images}
	err = b.writeSites(ts, edits)
	a.hooks.edits = append(a.hooks.edits, a.own(b.edits)...)
	slices.SortFunc(a.hooks.edits, byAddress)
	for i := range b.Busy {
		if e := &b.Busy[i]; e.Reason == loaderReason {
			a.NoLoader = errHookBusy
		} else {
			a.NoExec = errHookBusy
		}
	}
	return err
}

// own are those of edits that are in the process's own code.
func (a *Attachment) own(edits []arch.Edit) (own []arch.Edit) {
	for _, e := range edits {
		if !slices.ContainsFunc(a.images, func(im *image) bool { lo, hi := im.code(); return lo <= e.Addr && e.Addr < hi }) {
			own = append(own, e)
		}
	}
	return own
}

// added is the code that was added to the C library: where that executes programs can have moved there.
func (a *Attachment) added() (code []mapping) {
	for _, im := range a.images {
		if lo, hi := im.code(); im.library != nil && isLibc(im.library.Path) {
			code = append(code, mapping{lo: lo, hi: hi})
		}
	}
	return code
}

// mapHooks maps pages, and returns those for which there is room. Other threads, which map memory themselves, are stopped only
// if one of them has taken such room meanwhile.
func (a *Attachment) mapHooks(ts *threads, wanted []*hookPage) (pages []*hookPage, err error) {
	for one := true; len(wanted) > 0; one = false {
		err = ts.within(one, func() error {
			ms, err := ts.maps()
			if err != nil {
				return err
			}
			pages = ts.placed(ms, wanted)
			return ts.calling(ms, func(r *remote) error {
				for _, p := range pages {
					if p.mapped {
						continue
					}
					if _, err := r.mmap(p.at, PageSize, unix.PROT_READ|unix.PROT_EXEC); err != nil {
						return err
					}
					p.mapped, a.hooks.mapped = true, append(a.hooks.mapped, area{p.at, PageSize})
				}
				return nil
			})
		})
		if !one || !errors.Is(err, unix.EEXIST) {
			break
		}
	}
	return pages, err
}

// placed are the pages for which there is room.
func (ts *threads) placed(ms []mapping, wanted []*hookPage) (pages []*hookPage) {
	for _, p := range wanted {
		if *p.refused = nil; !p.mapped {
			p.at = ts.place(ms, pages, p.near)
		}
		if p.at == 0 {
			*p.refused = fmt.Errorf("no memory close to %s", p.what)
			continue
		}
		pages = append(pages, p)
	}
	return pages
}

// loaderReason is that of the edit in the dynamic loader.
const loaderReason = "loader"

var errHookBusy = errors.New("a thread is at the instructions to be changed all the time, or they are in two pages of memory")

// loaderHook is the page for the dynamic loader, which leads to a routine.
func (ts *threads) loaderHook(a *Attachment, routine uint64) (*hookPage, error) {
	var err error
	if a.hooks.debug, err = ts.debug(a.images[0].bias); err != nil {
		return nil, err
	}
	word := make([]byte, 8)
	if err := ts.memory().ReadAt(word, a.hooks.debug+debugBreak); err != nil {
		return nil, err
	}
	at := le.Uint64(word)
	code := make([]byte, hookWindow)
	if err := ts.memory().ReadAt(code, at); err != nil {
		return nil, err
	}
	skip := 0
	if bytes.HasPrefix(code, endbr64) {
		skip = len(endbr64)
	}
	if !returnsAndPads(code[skip:]) || at%hookWindow != 0 {
		return nil, errors.New("its dynamic loader tells debuggers of libraries in an unknown way")
	}
	return &hookPage{near: at, what: "its dynamic loader", fill: func(page uint64) ([]byte, []arch.Edit) {
		b := []byte{0x4c, 0x8d, 0x1d, 6, 0, 0, 0} // lea 6(%rip), %r11
		b = append(b, 0xff, 0x25, 11, 0, 0, 0)    // jmp *24(page)
		b = append(b, 0xc3)                       // ret
		b = append(b, make([]byte, 24-len(b))...) // up to 24
		b = le.AppendUint64(b, routine)           // where to
		site := at + uint64(skip)
		jmp := le.AppendUint32([]byte{jumpOp}, uint32(page-(site+jumpLen))) // jmp page
		return b, []arch.Edit{{Addr: site, Old: code[skip : skip+jumpLen], New: jmp, Reason: loaderReason}}
	}}, nil
}

// hookWindow is how functions are aligned: so much room there is at least.
const hookWindow = 16

var endbr64 = []byte{0xf3, 0x0f, 0x1e, 0xfa}

// returnsAndPads tells whether code is a return, and behind it padding that a jump has room in.
func returnsAndPads(code []byte) bool {
	if len(code) < jumpLen || code[0] != 0xc3 {
		return false
	}
	for _, nop := range [][]byte{
		{0x90, 0x90, 0x90, 0x90}, {0xcc, 0xcc, 0xcc, 0xcc}, {0x0f, 0x1f}, {0x66, 0x0f, 0x1f}, {0x66, 0x2e, 0x0f, 0x1f}, {0x66, 0x66, 0x2e, 0x0f},
		{0x2e, 0x0f, 0x1f}, {0x66, 0x66, 0x66, 0x2e}, {0x66, 0x90},
	} {
		if bytes.HasPrefix(code[1:], nop) {
			return true
		}
	}
	return false
}

// Of an ELF image, and of what a dynamic loader tells debuggers (<link.h>).
const (
	ptDynamic  = 2
	ptPhdr     = 6
	dtDebug    = 21
	debugBreak = 16 // of struct r_debug: r_brk
	debugState = 24 // r_state, 0: RT_CONSISTENT
)

// errNoDebug: a dynamic loader has yet to say where it tells debuggers what.
var errNoDebug = fmt.Errorf("%w: it has not begun", ErrNoLoader)

// debug returns the address of what the dynamic loader tells debuggers, of a program that is so far from its link-time addresses.
func (ts *threads) debug(bias uint64) (uint64, error) {
	dynamic, size, err := ts.header(ptDynamic)
	if err != nil {
		return 0, err
	}
	if dynamic == 0 || size > 1<<20 {
		return 0, ErrNoLoader
	}
	b := make([]byte, size&^15)
	if err := ts.memory().ReadAt(b, bias+dynamic); err != nil {
		return 0, err
	}
	for ; len(b) > 0 && le.Uint64(b) != 0; b = b[16:] {
		if le.Uint64(b) != dtDebug {
			continue
		}
		if at := le.Uint64(b[8:]); at != 0 {
			return at, nil
		}
		return 0, errNoDebug
	}
	return 0, ErrNoLoader
}

// header returns the link-time address and the size that the last program header of a type has; 0: there is none.
func (ts *threads) header(typ uint32) (addr, size uint64, err error) {
	phdr, n := auxValue(ts.aux, atPhdr), auxValue(ts.aux, atPhnum)
	const mostHeaders = 1 << 10
	if phdr == 0 || n > mostHeaders {
		return 0, 0, ErrNoLoader
	}
	b := make([]byte, n*Phentsize)
	if err := ts.memory().ReadAt(b, phdr); err != nil {
		return 0, 0, err
	}
	for ; len(b) > 0; b = b[Phentsize:] {
		if le.Uint32(b) == typ {
			addr, size = le.Uint64(b[16:]), le.Uint64(b[40:])
		}
	}
	return addr, size, nil
}

// bias returns how far a program is from its link-time addresses, if its program headers say where they were to be.
func (ts *threads) bias() (uint64, bool) {
	addr, _, err := ts.header(ptPhdr)
	return auxValue(ts.aux, atPhdr) - addr, err == nil && addr != 0
}

// execHook is the page for programs that the process executes. There is other code than what is mapped as that by which it does so.
func (ts *threads) execHook(ms, others []mapping, h *ExecHooks, routine uint64) (*hookPage, error) {
	q := &process{Process: *ts.memory(), maps: ms, code: append(codeOf(ms, auxValue(ts.aux, atEntry)), others...)}
	sites, err := h.sites(q)
	if err != nil {
		return nil, err
	}
	return &hookPage{near: sites[0].at, what: "where it executes programs", fill: func(page uint64) ([]byte, []arch.Edit) {
		return execStubs(page, routine, sites)
	}}, nil
}

// place returns where a page can be that is close to an address, beside others; 0: nowhere. In the program itself that is
// below it, as the heap grows above. Else it is above, as threads get their stacks below, if there is room.
func (ts *threads) place(ms []mapping, others []*hookPage, addr uint64) uint64 {
	var taken []mapping
	for _, o := range others {
		taken = append(taken, mapping{lo: o.at, hi: o.at + PageSize})
	}
	if entry := auxValue(ts.aux, atEntry); max(addr, entry)-min(addr, entry) >= roomReach {
		if at := (&Library{lo: addr &^ (PageSize - 1), hi: addr + PageSize}).room(ms, taken); at != 0 {
			return at
		}
	}
	at, _ := gap(merged(ms, taken), addr)
	return at
}

// Steps are what a process does itself that comes to the runtime.
type Steps interface {
	Map(at, size uint64, prot int) error
	Call(routine uint64) (uint64, error)
	// Wait returns when the process has said once more that it waits.
	Wait() error
}

// Loaded looks at the libraries of a process that has said that they have changed, and waits. Those that are new are
// changed before anything of them is executed.
func (a *Attachment) Loaded(pid int, plan func([]*Library), do Steps) error {
	ts, err := openThreads(pid)
	if err != nil {
		return err
	}
	defer ts.close()
	a.mu.Lock()
	defer a.mu.Unlock()
	word := make([]byte, 4)
	if err := ts.memory().ReadAt(word, a.hooks.debug+debugState); err != nil || le.Uint32(word) != 0 {
		return err // it has only begun
	}
	ms, err := ts.maps()
	if err != nil {
		return err
	}
	v := a.view(pid, ms)
	if v == nil {
		return ErrOther
	}
	all := a.newcomers(ts, ms)
	if fresh := slices.DeleteFunc(slices.Clone(all), func(l *Library) bool { return v.known(l) != nil }); len(fresh) > 0 {
		// That can take seconds, and others load libraries, too.
		a.mu.Unlock()
		planIn(ms, fresh, plan)
		a.mu.Lock()
		if v = a.view(pid, ms); v == nil { // more functions can have been added meanwhile
			return ErrOther
		}
	}
	var come []*image
	for _, l := range all {
		if known := v.known(l); known != nil {
			// It was there before, and so is what was added to it; or it was here when the process was forked.
			if !known[0].failed && !known[0].changed(ts.memory()) {
				come = append(come, known...)
			}
		} else if l.Memory != nil {
			im := l.image()
			if err := a.join(ts, ms, im, do); err != nil {
				im.failed = true // it stays on the list, so that what was mapped goes at the end
				return fmt.Errorf("%s: %w", l.Path, err)
			}
			come = append(come, im)
		}
	}
	for _, im := range come {
		err := do.Wait()
		if err == nil {
			err = im.write(ts)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", im.library.Path, err)
		}
	}
	return nil
}

// known returns the images of a library that was at the same place, in the order in which they came.
func (a *Attachment) known(l *Library) (all []*image) {
	for _, im := range a.images {
		if o := im.library; o != nil && o.lo == l.lo && o.hi == l.hi && o.key == l.key {
			all = append(all, im)
		}
	}
	return all
}

// join puts what is added to a library into a process, which does what only it can.
func (a *Attachment) join(ts *threads, ms []mapping, im *image, do Steps) error {
	if im.m.Running == nil {
		return errors.New("a plan for a process at its start")
	}
	if err := Check(im.m); err != nil {
		return err
	}
	if err := im.note(a.images); err != nil {
		return err
	}
	if err := ts.free(ms, im); err != nil {
		return err
	}
	a.images = append(a.images, im)
	if err := im.mapAt(do.Map); err != nil {
		return err
	}
	if err := im.begin(ts.memory(), nil); err != nil {
		return err
	}
	if err := ts.memory().WriteAt(im.m.RX, im.bias+im.m.RXAddr); err != nil {
		return err
	}
	if err := im.complete(ts.memory()); err != nil {
		return err
	}
	traced, err := do.Call(im.bias + im.m.Running.Attach)
	if err == nil && traced == 0 {
		err = errors.New("the runtime does not accept the library")
	}
	return err
}

// changed tells whether an image has been changed since it was loaded: whether that is there to which sites lead.
func (im *image) changed(mem arch.Memory) bool {
	late := chosen(im.edits, false, isLate)
	if len(late) == 0 {
		late = im.edits[:min(1, len(im.edits))]
	}
	left, err := pending(mem, late)
	return err == nil && len(left) == 0 && len(im.edits) > 0
}

// write changes a library that nobody executes yet.
func (im *image) write(ts *threads) error {
	edits := slices.DeleteFunc(im.planned(), inTwoPages)
	left, err := pending(ts.memory(), edits)
	if err == nil {
		im.edits = edits // also if only some can be written
		err = arch.Write(ts.memory(), PageSize, left)
	}
	return err
}
