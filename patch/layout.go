package patch

import (
	"cmp"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"hash"
	"slices"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/elfio/inject"
	"github.com/fentry-dev/fentry/elfio/link"
	"github.com/fentry-dev/fentry/internal/bigslice"
	"github.com/fentry-dev/fentry/internal/parallel"
	"github.com/fentry-dev/fentry/internal/sitetable"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/stub"
)

var le = binary.LittleEndian

// layout is where everything that a plan adds and rewrites is, and then its bytes. See pieces.go.
type layout struct {
	p *Plan

	// Memory.
	seg       inject.Layout // for a file
	base      uint64        // of the read-execute memory
	rx        []byte        // its contents
	rw        uint64        // zeroed read-write memory
	rwSize    uint64
	relWord   uint64     // a word in it, which the runtime's own relocation fills
	switches  uint64     // in it, the byte that the thunk of id 1 tests
	thunkSize int        // of each, in bytes
	backs     uint64     // where what thunks have apart begins; 0: nothing
	backSize  int        // of each, in bytes
	tls       uint64     // how far the runtime's thread-local memory is behind the thread pointer
	ptTLS     elfio.Prog // for a process: PT_TLS with that memory; zero when there is none

	pieces []piece
	routes map[int]route // of sites and thunks that do not go the usual ways, by function
	// orig is where the runtime goes on to after it has started: the image's own entry point or initialisation, or a way
	// there.
	orig uint64
	fini uint64 // the same for the object's finalisation

	stages bool // the image tells the home when it is initialised and finalised

	traced    int // how many functions are traced
	thunks    int // how many of them have thunks: those of the first ids
	edited    int // how many functions have windows
	nameBytes int // of the names of all thunks, at most

	displacer    displacer // nil: the machine is none
	displaces    bool      // sites have displaced instructions
	displaced    uint64    // where the instructions are that sites have displaced
	stubs        uint64    // likewise, of stubs for calls of libraries
	filter       uint64    // a bitmap of the system calls that are recorded, by number; not set if all are
	syscallsSize int
	syscalls     uint64 // where system calls are that have been moved; 0: none have

	lsda map[uint32]uint64 // tables of handlers for displaced calls, by id

	copied    map[int][]copiedCall // calls of libraries among displaced instructions, by function
	firstCall map[uint32]uint64    // where the first call of a library's function is rewritten, by id
	scattered bool                 // there are windows that are not in the order of functions

	placed       []*movedCode          // of functions that are recorded in place, in images that are not Go's
	goCodes      []*goCode             // of Go's functions
	movedWindows map[int][]movedWindow // by function
	goVeneers    map[string]uint64     // what leads to the runtime's routines, by name; 0: they are reached
	goModule     uint64                // where the module is in a program that is relocated
	goOriginal   uint64                // what the code was, in a file
	goLink       uint64                // and what tells the runtime to bring it there; 0: it is where it was made

	movedBack      map[int]bool    // functions that can be the original's again
	movedReturns   []arch.GoReturn // in the middle of their windows, by address
	goPreempt      uint64          // runtime.asyncPreempt
	goPreempted    uint64          // where it leads: goroutines come there that were stopped by a signal
	goPreemptedLen uint64          // of the code there

	runtime  runtime
	runs     []arch.ThunkRun
	fronts   []arch.ThunkRun // of thunks without displaced instructions in them
	routines [roles][arch.ThunkKinds]enterExit
	acting   []acting // functions that have actions, in the order of Plan.Functions
	counts   uint64   // zeroed memory for what actions count
	hidden   []byte   // bitmap, by id, of functions that are left out with all inside them; nil: none

	windows       []window // of all functions
	before, after []byte   // their bytes
	raw           []elfio.RawEdit
	tables        []arch.Edit     // of the image's tables, sorted by address
	dynamic       []elfio.RawEdit // of entries of the dynamic section
	moved         []inject.Moved

	sections   []inject.Section
	ehFrameHdr [2]uint64
	phdrAddr   uint64
	phnum      int
}

// A route is how a site gets to its thunk, and the thunk to the function's body.
type route struct {
	to     uint64 // where the site goes: the thunk, or what leads there
	veneer bool   // it goes there by a veneer, not by a branch
	pad    bool   // its last word is a landing pad, for what comes back
	body   uint64 // where the thunk goes on: behind the site, or to what leads there
}

// route is the way of a traced function, the i-th of all.
func (l *layout) route(i int) route {
	if len(l.routes) > 0 {
		if r, ok := l.routes[i]; ok {
			return r
		}
	}
	fn := &l.p.Functions[i]
	r := route{to: l.thunk(fn.ID), body: l.body(fn)}
	if displaces(fn) && l.displacer.displacedBody(fn.Site) > 0 {
		r.to = l.displacedTo(fn)
	}
	return r
}

// thunk is the address of the thunk of an id.
func (l *layout) thunk(id uint32) uint64 { return l.base + uint64(id-1)*uint64(l.thunkSize) }

// thunkOf is the address of a function's thunk, as of the last numbering; 0: it has none.
func (l *layout) thunkOf(fn *Func) uint64 {
	if fn.ID == 0 || int(fn.ID) > l.thunks {
		return 0
	}
	return l.thunk(fn.ID)
}

// back is the address of what the thunk of an id has apart, 0 if it has nothing.
func (l *layout) back(id uint32) uint64 {
	if l.backs == 0 {
		return 0
	}
	return l.backs + uint64(id-1)*uint64(l.backSize)
}

// build lays out what the plan changes, makes it, and proves that it is what was laid out.
func (l *layout) build() error {
	if err := l.layout(); err != nil {
		return err
	}
	if err := l.write(); err != nil {
		return err
	}
	if err := l.prove(); err != nil {
		return err
	}
	l.p.Entry = l.runtime.start
	if l.library() {
		l.p.Entry = l.p.OrigEntry
	}
	return nil
}

// library reports whether the plan is for the file of a shared object.
func (l *layout) library() bool { return l.p.lib != nil && l.p.Options.Target == File }

// original decides where the runtime goes on to after it has started.
func (l *layout) original() error {
	l.orig, l.fini = l.p.OrigEntry, l.base
	if l.library() {
		l.orig = l.p.lib.init
		if l.p.lib.fini != 0 {
			l.fini = l.p.lib.fini
		}
	}
	if l.orig == 0 && l.p.lib != nil {
		l.orig = l.base // nothing goes there
	}
	if l.orig == 0 {
		return fmt.Errorf("no entry point: neither a program nor a shared object")
	}
	return nil
}

// layout decides. What it adds stands in this order, so every address is known before it is needed.
func (l *layout) layout() error {
	p := l.p
	runtime := stub.Object
	if l.library() {
		runtime = stub.SharedObject
	}
	obj, err := runtime(p.file.Header.Machine)
	if err != nil {
		return err
	}
	rt, err := elfio.Parse(obj)
	if err != nil {
		return fmt.Errorf("embedded runtime: %w", err)
	}
	if p.Options.Running {
		if err := l.leaveUnwritable(); err != nil {
			return err
		}
	}
	l.number()
	l.sizeThunks()
	if l.traced == 0 {
		if err := p.nothingToTrace(); err != nil {
			return err
		}
	}
	if err := l.memory(rt); err != nil {
		return err
	}
	if err := l.original(); err != nil {
		return err
	}
	if err := p.flavour().place(l); err != nil {
		return err
	}
	if l.traced == 0 {
		if err := p.nothingToTrace(); err != nil {
			return err
		}
	}
	if p.golang == nil { // else they are a part of what has been placed
		if err := l.addSyscalls(); err != nil {
			return err
		}
	}
	if err := l.cut(); err != nil {
		return err
	}
	// What the windows had needs nothing of what follows.
	var mismatch error
	wait := parallel.Beside(func() { mismatch = l.keep() })
	defer wait()
	err = l.rest(rt)
	wait()
	if err = cmp.Or(err, mismatch); err != nil {
		return err
	}
	l.sort()
	l.sections = append(l.sections, l.namedSections()...)
	slices.SortFunc(l.tables, func(a, b arch.Edit) int { return cmp.Compare(a.Addr, b.Addr) })
	return nil
}

// rest lays out what follows the thunks.
func (l *layout) rest(rt *elfio.File) error {
	if start, _ := l.extent(); l.base+maxRuntime-start > l.p.m.facts().reach {
		return fmt.Errorf("%w: the program's data takes so much (%d MiB) that what is added behind it is %s", ErrNoSites,
			(l.base-start)>>20, record.ReasonOutOfReach)
	}
	if err := l.link(rt); err != nil {
		return err
	}
	if err := l.callees(); err != nil {
		return err
	}
	l.siteTable()
	if err := l.roots(); err != nil {
		return err
	}
	l.off()
	if l.hidden != nil {
		l.runtime.hidden = l.bitmap(".fentry.without", l.hidden)
	}
	l.actions()
	l.notes()
	if err := l.unwind(); err != nil {
		return err
	}
	edits, err := l.syscallEdits()
	if err != nil {
		return err
	}
	l.tables = append(l.tables, edits...)
	l.info()
	if err := l.early(); err != nil {
		return err
	}
	if l.p.Options.Target == Process {
		l.headers()
	}
	return nil
}

// number gives the traced functions their ids: first those that have thunks.
func (l *layout) number() {
	l.traced, l.thunks, l.edited, l.nameBytes = 0, 0, 0, 0
	fl := l.p.flavour()
	for i := range l.p.Functions {
		fn := &l.p.Functions[i]
		fn.ID = 0
		if fn.Action == Trace && fl.hasThunk(fn.Site) {
			l.thunks++
			fn.ID = uint32(l.thunks)
			l.nameBytes += len(thunkPrefix) + len(fn.Display()) + 1
		}
		if fn.Action != Leave {
			l.edited++
		}
	}
	l.traced = l.thunks
	for i := range l.p.Functions {
		if fn := &l.p.Functions[i]; fn.Action == Trace && fn.ID == 0 {
			l.traced++
			fn.ID = uint32(l.traced)
		}
	}
}

// memory decides the addresses of the added memory.
func (l *layout) memory(rt *elfio.File) error {
	f := l.p.file
	size, align, err := link.WritableSize(rt)
	if err != nil {
		return fmt.Errorf("embedded runtime: %w", err)
	}
	zeroed := []piece{
		{name: "the runtime's memory", size: size, align: align},
		{name: "relocated word", size: 8, align: 8},
		{name: "switches", size: stub.SwitchesSize(l.traced), align: 1}, // fewer may be traced in the end
	}
	n, err := l.findActing()
	if err != nil {
		return err
	}
	if n > 0 {
		zeroed = append(zeroed, piece{name: "counts of actions", size: uint64(n) * stub.ActionCountSize, align: 8})
	}
	if g := l.p.golang; g != nil && g.Relocatable() && g.Version.Module() {
		zeroed = append(zeroed, piece{name: "the module of moved code", size: goModuleSize(g), align: goAlign})
	}
	size = 0
	for i := range zeroed {
		pc := &zeroed[i]
		pc.addr = alignUp(size, max(pc.align, 1)) // behind the beginning of the memory
		size = pc.end()
	}
	l.rwSize = size
	tls, tlsAlign, err := link.TLSSize(rt)
	if err != nil {
		return fmt.Errorf("embedded runtime: %w", err)
	}
	if g := l.p.golang; g != nil && g.ThreadWord() != 0 && !g.Relocatable() && tls > 0 {
		// Nobody sets up thread-local memory, and the runtime has a thread's word elsewhere (own_thread in machine.h). It has
		// to be somewhere behind the thread pointer.
		l.tls, tls = alignUp(tlsReserved, tlsAlign), 0
	}
	if l.p.Options.Target == File {
		wanted := inject.Memory{RW: size, RWAlign: align, TLS: tls, TLSAlign: tlsAlign}
		if l.seg, err = inject.NewLayout(f, wanted); err != nil {
			return err
		}
		l.base, l.rw = l.seg.RX, l.seg.RW
		if tls > 0 {
			l.tls = l.seg.TLS
		}
		l.addZeroed(zeroed)
		return nil
	}
	start, end := l.extent()
	l.rw = alignUp(end+l.p.m.facts().processGap(end-start), 1<<16)
	if l.p.Options.At != 0 {
		l.rw = alignUp(l.p.Options.At, 1<<16)
	}
	l.base = alignUp(l.rw+size, 1<<16)
	l.addZeroed(zeroed)
	if tls > 0 {
		l.ptTLS, l.tls, err = inject.ExtendTLS(f, tls, tlsAlign, l.rw)
	}
	return err
}

// tlsReserved is how many bytes from the thread pointer on are not thread-local memory (AArch64 TLS ABI).
const tlsReserved = 16

// extent returns the addresses between which the image is loaded.
func (l *layout) extent() (start, end uint64) {
	start = ^uint64(0)
	for _, pr := range l.p.file.Progs {
		if pr.Type == elf.PT_LOAD {
			start, end = min(start, pr.Vaddr), max(end, pr.Vaddr+pr.Memsz)
		}
	}
	return start, end
}

// addZeroed adds pieces of the read-write memory, whose addresses count from its beginning.
func (l *layout) addZeroed(pieces []piece) {
	for _, pc := range pieces {
		pc.addr += l.rw
		pc.zero, pc.owner, pc.align, pc.used = true, nobody, max(pc.align, 1), pc.size
		l.pieces = append(l.pieces, pc)
	}
	added := l.pieces[len(l.pieces)-len(pieces):]
	for i := range added {
		switch at := added[i].addr; added[i].name {
		case "relocated word":
			l.relWord = at
		case "switches":
			l.switches = at
		case "counts of actions":
			l.counts = at
		case "the module of moved code":
			l.goModule = at
		}
	}
}

func alignUp(v, a uint64) uint64 { return (v + a - 1) &^ (a - 1) }

// room is n bytes with room behind them for all that comes: the runtime, a row of the site table and of the unwind
// table a function, and the image's own unwind information once more.
func (l *layout) room(n uint64) []byte {
	f := l.p.file
	size := int(n) + l.traced*24 + maxRuntime
	if t, err := ehframe.Read(f); err == nil {
		size += t.CopySize() + t.Len()*8
	}
	for i := range f.Sections {
		if s := &f.Sections[i]; s.Type == elf.SHT_RELA && s.Flags&elf.SHF_ALLOC != 0 {
			size += int(min(s.Size, uint64(len(f.Raw()))))
		}
	}
	return bigslice.Make[byte](int(n), size)
}

// sizeThunks decides how large thunks are: all of them as that which needs most.
func (l *layout) sizeThunks() {
	fl := l.p.flavour()
	for i := range l.p.Functions {
		if fn := &l.p.Functions[i]; fn.ID != 0 && fl.hasThunk(fn.Site) {
			k := fl.thunk(fn.Site)
			l.thunkSize, l.backSize = max(l.thunkSize, l.p.m.thunkSize(k)), max(l.backSize, l.p.m.backSize(k))
		}
	}
	if l.thunkSize == 0 {
		l.thunkSize = arch.ThunkSize // of none
	}
}

// addThunks lays out the thunks of all traced functions. They come first, so that the runtime is linked for their
// addresses, and stand in the order of their ids, so that it finds all of them from one.
func (l *layout) addThunks() {
	l.add(piece{
		name: ".fentry.thunks", code: true, size: uint64(l.thunks) * uint64(l.thunkSize), align: arch.ThunkSize, owner: nobody,
		part: l.writeThunk, parts: l.thunks,
	})
	if l.backSize > 0 {
		l.backs = l.add(piece{
			name: ".fentry.backs", code: true, size: uint64(l.thunks) * uint64(l.backSize), align: arch.ThunkSize, owner: nobody,
			part: l.writeBack, parts: l.thunks,
		})
	}
}

// callees decides which thunk every traced function has, finds what those thunks call, and computes what
// identifies what is traced in which image: two plans have the same id only if their site numbers mean the
// same functions.
func (l *layout) callees() (err error) {
	p := l.p
	fl, hides := p.flavour(), p.Options.hidden()
	if p.Options.Hide != nil && p.Options.Tracer == FunctionGraph {
		l.hidden = make([]byte, l.bitmapSize())
	}
	h := l.identity()
	var sites [64 * 8]byte
	n := 0
	for i := range p.Functions {
		fn := &p.Functions[i]
		if fn.ID == 0 {
			continue
		}
		le.PutUint64(sites[n:], fn.Addr)
		if n += 8; n == len(sites) {
			h.Write(sites[:])
			n = 0
		}
		if !fl.hasThunk(fn.Site) {
			continue
		}
		k := fl.thunk(fn.Site)
		if hides(fn.Site) {
			l.hidden[fn.ID/8] |= 1 << (fn.ID % 8)
		}
		fn.role = l.role(i)
		if r := &l.routines[fn.role][k]; r.enter == 0 {
			if *r, err = l.routinesOf(k, fn.role); err != nil {
				return err
			}
		}
		l.runs = arch.AppendThunkRun(l.runs, l.thunk(fn.ID), l.thunkSize, k)
		if !fn.inThunk && !fn.likeThunk {
			l.fronts = arch.AppendThunkRun(l.fronts, l.thunk(fn.ID), l.thunkSize, k)
		}
	}
	h.Write(sites[:n])
	if p.ImageID = le.Uint64(h.Sum(nil)); p.ImageID == 0 {
		p.ImageID = 1 // 0 means "no image" in a trace
	}
	return nil
}

// role is that of the traced function at a place in Plan.Functions.
func (l *layout) role(i int) role {
	id := l.p.Functions[i].ID
	switch a := l.actingAt(i); {
	case l.p.flavour().swaps(l.p.Functions[i].Site):
		return swapping
	case a != nil && a.exit && l.p.flavour().hides():
		return actingExit
	case a != nil:
		return actingOnly
	case l.hidden != nil && l.hidden[id/8]>>(id%8)&1 != 0:
		return hiding
	}
	return usual
}

// identity is a hash that has what identifies the image: its build-id, or without one its code.
func (l *layout) identity() hash.Hash {
	h := sha256.New()
	if len(l.p.BuildID) > 0 {
		h.Write(l.p.BuildID)
		return h
	}
	for _, pr := range l.p.file.Progs {
		if pr.Type == elf.PT_LOAD && pr.Flags&elf.PF_X != 0 {
			if b, err := l.p.file.Bytes(pr.Vaddr, int(pr.Filesz)); err == nil {
				h.Write(b)
			}
		}
	}
	return h
}

// siteTable lays out the table of sites, by which readers find the functions of ids.
func (l *layout) siteTable() {
	base, _ := l.extent()
	width := 0
	for i := range l.p.Functions {
		if fn := &l.p.Functions[i]; fn.ID != 0 {
			width = max(width, l.siteRow(fn).Width())
		}
	}
	l.runtime.table = l.add(piece{
		name: sitetable.SitesSection, size: sitetable.SitesHeader, align: 8, owner: nobody,
		write: func(dst []byte) ([]byte, error) {
			b := dst[:sitetable.SitesHeader]
			sitetable.PutHeader(b, l.traced, base, width)
			return b, nil
		},
	})
	l.add(piece{
		name: sitetable.SitesSection, size: sitetable.SiteSize * uint64(l.traced), align: 4, owner: nobody, parts: l.traced,
		part: func(fn *Func, _ route, dst []byte) (int, error) {
			return sitetable.SiteSize, l.siteRow(fn).PutSite(dst, base)
		},
	})
	if width > 0 {
		l.add(piece{
			name: sitetable.SitesSection, size: uint64(width) * uint64(l.traced), align: 1, owner: nobody, parts: l.traced,
			part: func(fn *Func, _ route, dst []byte) (int, error) {
				l.siteRow(fn).PutDistance(dst[:width])
				return width, nil
			},
		})
	}
}

// siteRow is the row of a traced function.
func (l *layout) siteRow(fn *Func) sitetable.Row {
	row := sitetable.Row{Func: fn.Func, Site: fn.Addr}
	if isLibCall(fn) {
		row.Func = fn.Slot // by which readers find its name
	}
	if isLibCall(fn) && fn.Len == 0 {
		row.Site = l.firstCall[fn.ID]
	}
	return row
}

// roots lays out the bitmap of graph roots, indexed by site id.
func (l *layout) roots() error {
	o := &l.p.Options
	if o.Roots == nil {
		return nil
	}
	var ids []uint32
	roots := o.Roots.In(o.Path)
	for i := range l.p.Functions {
		if fn := &l.p.Functions[i]; fn.ID != 0 && roots.MatchSite(fn.Site) {
			ids = append(ids, fn.ID)
		}
	}
	if elsewhere := o.RootsElsewhere || o.Copy || o.Bare || o.Addition != nil; len(ids) == 0 && !elsewhere {
		return fmt.Errorf("%w: no traced function is a graph root", ErrNoSites)
	}
	bits := make([]byte, l.bitmapSize())
	for _, id := range ids {
		bits[id/8] |= 1 << (id % 8)
	}
	l.runtime.roots = l.bitmap(".fentry.roots", bits)
	return nil
}

// off lays out the bitmap of functions that are off at first.
func (l *layout) off() {
	bits, any := make([]byte, l.bitmapSize()), false
	for i := range l.p.Functions {
		if fn := &l.p.Functions[i]; fn.ID != 0 && fn.off {
			bits[fn.ID/8] |= 1 << (fn.ID % 8)
			any = true
		}
	}
	if any {
		l.runtime.off = l.bitmap(".fentry.off", bits)
	}
}

// bitmapSize is the size of a bitmap indexed by site id.
func (l *layout) bitmapSize() int { return (l.traced + 1 + 63) / 64 * 8 }

// bitmap lays out one.
func (l *layout) bitmap(name string, bits []byte) (addr uint64) {
	return l.add(piece{name: name, size: uint64(len(bits)), align: 8, owner: nobody, ready: bits})
}

// info lays out what the image was before.
func (l *layout) info() {
	p := l.p
	in := sitetable.Info{Image: p.ImageID, Tracer: uint32(p.Options.Tracer), Sites: uint32(l.traced), BuildID: p.BuildID}
	b := in.Append(nil)
	l.add(piece{name: sitetable.InfoSection, size: uint64(len(b)), align: 8, owner: nobody, ready: b})
}
