package patch

import (
	"debug/elf"
	"fmt"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/elfio/inject"
	"github.com/fentry-dev/fentry/elfio/link"
	"github.com/fentry-dev/fentry/record/golang"
	"github.com/fentry-dev/fentry/stub"
	"github.com/fentry-dev/fentry/symbol"
)

// The runtime is an object that is linked for the addresses it gets, into every image that is to trace
// itself. It starts at the image's entry point, and earlier where that can be had (early).

// runtime is what the rest of the plan has to know of it.
type runtime struct {
	at     uint64 // where it begins
	size   uint64
	start  uint64 // entry point of the original image
	config uint64 // what the process is told
	image  uint64 // what the image is told
	roots  uint64 // bitmap of graph roots, 0 for none
	off    uint64 // bitmap of functions that are off at first, 0 for none
	hidden uint64 // bitmap of functions that are left out with all inside them, 0 for none

	table    uint64 // .fentry.sites
	actions  uint64 // table of actions, 0 for none
	nActions int    // its length

	syms    map[string]uint64
	defined []link.Symbol
	frames  *ehframe.Table // its unwind information
	ehFrame uint64         // and where that is
}

// maxRuntime is more than the runtime and small tables have.
const maxRuntime = 1 << 20

// link lays out the runtime.
func (l *layout) link(rt *elfio.File) error {
	at := l.align(arch.ThunkSize)
	filter := l.filter
	if filter == 0 {
		filter = at // nobody asks it
	}
	x, err := link.Object(rt, link.Options{
		RX: at, RW: l.rw, TLS: l.tls,
		Symbols: map[string]uint64{
			"fentry_orig_entry":     l.orig,
			"fentry_orig_fini":      l.fini,
			"fentry_irel_ret":       at,
			"fentry_syscall_filter": filter,
		},
	})
	if err != nil {
		return fmt.Errorf("embedded runtime: %w", err)
	}
	if x.RWSize > l.rwSize {
		return fmt.Errorf("embedded runtime: %d bytes of writable memory, %d reserved", x.RWSize, l.rwSize)
	}
	r := &l.runtime
	r.at, r.size = at, uint64(len(x.RX))
	r.syms, r.defined, r.frames, r.ehFrame = x.Symbols, x.Defined, x.Frames, x.EhFrame.Addr
	for name, to := range map[string]*uint64{
		"fentry_start": &r.start, "fentry_config": &r.config, "fentry_image": &r.image,
	} {
		if *to, err = l.symbol(name); err != nil {
			return err
		}
	}
	l.add(piece{
		name: "runtime", code: true, size: uint64(len(x.RX)), align: arch.ThunkSize, owner: nobody,
		write: func(dst []byte) ([]byte, error) {
			config, image, err := l.config()
			if err != nil {
				return nil, err
			}
			dst = append(dst, x.RX...)
			copy(dst[r.config-at:], config)
			copy(dst[r.image-at:], image)
			return dst, l.slowSyscalls(dst, at)
		},
	})
	const kept = elf.SHF_ALLOC | elf.SHF_WRITE | elf.SHF_EXECINSTR // merging and groups are over
	for _, s := range x.Sections {
		l.sections = append(l.sections, inject.Section{
			Name: ".fentry" + s.Name, Type: s.Type, Flags: s.Flags & kept, Addr: s.Addr, Size: s.Size, Align: s.Align,
		})
	}
	return nil
}

// slowSyscalls has the system calls at which stacks are wanted come to the runtime's slow path, in its code at an address.
func (l *layout) slowSyscalls(code []byte, at uint64) error {
	stacks := l.p.stacks()
	if l.p.Options.StackEvery > 0 {
		for i := range stacks {
			stacks[i] = 0xff
		}
	}
	if stacks == ([len(stacks)]byte{}) {
		return nil
	}
	table, err := l.symbol(stub.SyscallsTable)
	if err != nil {
		return err
	}
	if table < at || table-at > uint64(len(code)-stub.SyscallNumbers) {
		return fmt.Errorf("embedded runtime: %s is not in its code", stub.SyscallsTable)
	}
	stub.SyscallsSlow(code[table-at:][:stub.SyscallNumbers], stacks[:])
	return nil
}

func (l *layout) symbol(name string) (uint64, error) {
	v, ok := l.runtime.syms[name]
	if !ok {
		return 0, fmt.Errorf("embedded runtime: no symbol %s", name)
	}
	return v, nil
}

// enterExit are the addresses of the runtime's routines that a thunk calls; exit
// is 0 where it has none.
type enterExit struct{ enter, exit uint64 }

// routinesOf finds the routines of thunks of kind k.
func (l *layout) routinesOf(k arch.ThunkKind, as role) (r enterExit, err error) {
	enter, exit := l.p.flavour().routines(k, as)
	if r.enter, err = l.symbol(enter); err == nil && exit != "" {
		r.exit, err = l.symbol(exit)
	}
	return r, err
}

// errnoDistance is where an image_info at an address has the way to errno: a word that the dynamic linker fills, or in
// programs that have their C library in them that function itself, plus 1; 0: the program has neither.
func (p *Plan) errnoDistance(from uint64) int64 {
	const name = "__errno_location" // of glibc and musl
	imports, err := symbol.Imports(p.file)
	if err == nil {
		for _, m := range imports {
			if m.Name == name {
				return int64(m.Slot - from)
			}
		}
	}
	for i := range p.Functions {
		if d := int64(p.Functions[i].Func - from); p.Functions[i].Name == name && d%2 == 0 {
			return d + 1
		}
	}
	return 0
}

// Errno is the distance from what the image says of itself in memory to the way to errno, which [Options].Errno puts there; 0: there
// is none. The file has to be there.
func (p *Plan) Errno() int64 { return p.errnoDistance(p.l.runtime.image) }

// config encodes what the runtime is told of the process and of the image.
func (l *layout) config() (config, image []byte, err error) {
	p, o, r := l.p, &l.p.Options, &l.runtime
	c := stub.Config{
		Mode: uint32(o.Tracer), Depth: o.Depth, Policy: o.Policy, Threshold: uint64(o.Threshold),
		Session: o.Session, Dir: o.Dir, Stacks: p.stacks(), Every: uint64(o.StackEvery),
	}
	if o.NoClock {
		c.Flags |= stub.FlagNoClock
	}
	if p.tellsExecs() {
		c.Flags |= stub.FlagExecs
	}
	if l.traced == 0 && p.bare() {
		c.Flags |= stub.FlagFollow
	}
	if o.Running {
		// It is this session's or nobody's, and standard error is whatever the process has there.
		c.Flags |= stub.FlagNoRecorder | stub.FlagNoFile | stub.FlagQuiet
	}
	m := stub.Image{
		ID: p.ImageID, Sites: uint32(l.traced), Address: r.image, BuildID: p.BuildID, Path: o.Path,
		Thunks: int64(l.base - r.image), ThunkSize: uint32(l.thunkSize), Thunked: uint32(l.thunks), Switches: int64(l.switches - r.image),
		Mode: uint32(o.Tracer), Options: o.selective(), NoClock: o.NoClock, Flat: o.Flat,
		Before: uint32(r.image - r.at), Runtime: uint32(r.size), Stages: l.stages,
		Plain: p.plain(), Library: l.library() || o.Running && o.Copy, Copy: o.Copy,
	}
	if l.backs != 0 {
		m.Backs = int64(l.backs - r.image)
	}
	if l.thunks == 0 {
		m.Thunks = 0
	}
	if p.golang != nil {
		v := &p.golang.Version
		m.GoID, m.Park, m.Created, m.Parent = v.GoID, p.goID(golang.Park), p.goID(golang.Created), v.Parent
		m.Ready, m.Ended, m.CurG, m.Deep = p.goID(golang.Ready), p.goID(golang.Ended), v.CurG, arch.GoDeep
		m.Thread = p.golang.ThreadWord()
		if from, to := p.golang.GoCode(); l.thunks > 0 && to > from {
			m.GoCode, m.GoSize = int64(from-r.image), to-from
		}
		if !v.Module() {
			m.Park = 0 // where its reason is among the arguments is not known
		}
	}
	if len(l.placed) > 0 {
		l.ownCode(&m)
	}
	if o.Errno {
		m.Errno = p.errnoDistance(r.image)
	}
	if l.goLink != 0 {
		m.Module = int64(l.goLink - r.image)
	}
	if l.goOriginal != 0 {
		m.Original = int64(l.goOriginal - r.image)
	}
	if detours := r.syms["fentry_detours"]; detours != 0 {
		m.Detours = int64(detours - r.image)
	}
	if r.roots != 0 {
		m.Roots = int64(r.roots - r.image)
	}
	if r.off != 0 {
		m.Off = int64(r.off - r.image)
	}
	if r.hidden != 0 {
		m.Without = int64(r.hidden - r.image)
	}
	if r.table != 0 {
		m.Table = int64(r.table - r.image)
	}
	if l.ehFrameHdr[0] != 0 {
		m.Unwind = int64(l.ehFrameHdr[0] - r.image)
	}
	if r.actions != 0 {
		m.Actions, m.Counts, m.NActions = int64(r.actions-r.image), int64(l.counts-r.image), r.nActions
	}
	if config, err = c.MarshalBinary(); err != nil {
		return nil, nil, err
	}
	image, err = m.MarshalBinary()
	return config, image, err
}

// early makes the runtime start before constructors. glibc's ld.so runs the
// constructors of shared objects before it jumps to the entry point, and what
// they call in the program, maybe from threads of theirs, is to be traced.
// Relocation comes before all of them: a relocation whose value is computed by a
// function calls the runtime. Other loaders (musl) refuse such relocations and
// run constructors behind the entry point. A process is started with the runtime's
// entry point before its loader runs, and needs none of this.
func (l *layout) early() error {
	switch {
	case l.p.Options.Target != File:
	case l.library():
		return l.startLibrary()
	case glibcLoader(l.p.file):
		irel, err := l.symbol("fentry_irel")
		if err != nil {
			return err
		}
		// If there is no room for it, the runtime starts at the entry point.
		_ = l.extendDynamic(irel, nil)
	}
	return nil
}

// glibcLoader tells whether glibc's dynamic loader starts the image.
func glibcLoader(f *elfio.File) bool {
	for _, pr := range f.Progs {
		if pr.Type == elf.PT_INTERP && pr.Filesz < 4096 {
			b, err := f.Bytes(pr.Vaddr, int(pr.Filesz))
			return err == nil && strings.Contains(string(b), "/ld-linux")
		}
	}
	return false
}

// thunkPrefix is what the names of thunks have before those of their functions:
// debuggers and profilers show them in place of an unknown address.
const thunkPrefix = "fentry:"

// thunkSymbols are the names of thunks, and of what they have apart.
func (p *Plan) thunkSymbols() []inject.SymbolRun {
	l := p.l
	runs := []inject.SymbolRun{p.symbolRun(".fentry.thunks", l.thunkSize, l.thunk, func(f *Func) bool { return !f.inThunk })}
	if at := slices.IndexFunc(p.Functions, func(f Func) bool { return f.inThunk }); at >= 0 {
		// up to where the function's own instructions are, which have a name of their own
		runs = append(runs, p.symbolRun(".fentry.thunks", int(p.Functions[at].displaced), l.thunk, func(f *Func) bool { return f.inThunk }))
	}
	if l.backs != 0 {
		runs = append(runs, p.symbolRun(".fentry.backs", l.backSize, l.back, func(*Func) bool { return true }))
	}
	return runs
}

// symbolRun has a name for each thunk of some functions, at what is of some size, at an address that its id tells.
func (p *Plan) symbolRun(section string, size int, addr func(id uint32) uint64, of func(*Func) bool) inject.SymbolRun {
	n := 0
	for i := range p.Functions {
		if f := &p.Functions[i]; p.Thunk(f) != 0 && of(f) {
			n++
		}
	}
	return inject.SymbolRun{
		Section: section, Size: uint64(size), Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC), Prefix: thunkPrefix,
		N: n, NameBytes: p.l.nameBytes,
		All: func(yield func(string, uint64) bool) {
			for i := range p.Functions {
				f := &p.Functions[i]
				if p.Thunk(f) == 0 || !of(f) {
					continue
				}
				if !yield(f.Display(), addr(f.ID)) {
					return
				}
			}
		},
	}
}

// symbols names the rest of what is added.
func (l *layout) symbols() (out []inject.Symbol) {
	for _, d := range l.runtime.defined {
		if t := elf.ST_TYPE(d.Info); t == elf.STT_FUNC || t == elf.STT_OBJECT {
			name := d.Name
			if !strings.HasPrefix(name, "fentry") {
				name = thunkPrefix + name // not to be taken for the program's own
			}
			out = append(out, inject.Symbol{
				Name: name, Value: d.Value, Size: d.Size, Info: elf.ST_INFO(elf.STB_LOCAL, t),
			})
		}
	}
	return l.movedSymbols(l.syscallSymbols(l.displacedSymbols(out)))
}
