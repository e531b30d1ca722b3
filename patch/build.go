package patch

import (
	"cmp"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/bigslice"
	"github.com/fentry-dev/fentry/internal/sitetable"
	"github.com/fentry-dev/fentry/stub"
)

var le = binary.LittleEndian

// imageID identifies what is traced in which image. Two plans have the same id
// only if their site numbers mean the same functions: rows are those of the table
// of sites.
func (p *Plan) imageID(rows []byte) uint64 {
	h := sha256.New()
	if len(p.BuildID) > 0 {
		h.Write(p.BuildID)
	} else {
		// Without a build-id the code itself says what the image is.
		for _, pr := range p.file.Progs {
			if pr.Type == elf.PT_LOAD && pr.Flags&elf.PF_X != 0 {
				if b, err := p.file.Bytes(pr.Vaddr, int(pr.Filesz)); err == nil {
					h.Write(b)
				}
			}
		}
	}
	var w [512]byte
	for len(rows) > 0 {
		n := 0
		for ; len(rows) > 0 && n < len(w); n += 8 {
			copy(w[n:], rows[8:16])
			rows = rows[16:]
		}
		h.Write(w[:n])
	}
	id := le.Uint64(h.Sum(nil))
	if id == 0 {
		id = 1 // 0 means "no image" in a trace
	}
	return id
}

// area hands out addresses in the read-execute memory; what is put there is
// written in the same order, so nothing can overlap.
type area struct {
	base uint64
	buf  []byte
}

func (a *area) align(n uint64) uint64 {
	for uint64(len(a.buf))%n != 0 {
		a.buf = append(a.buf, 0)
	}
	return a.base + uint64(len(a.buf))
}

func (a *area) put(b []byte, align uint64) uint64 {
	at := a.align(align)
	a.buf = append(a.buf, b...)
	return at
}

func (a *area) grow(n int, align uint64) (at uint64, b []byte) {
	at = a.align(align)
	o := len(a.buf)
	a.buf = append(a.buf, make([]byte, n)...)
	return at, a.buf[o:]
}

// build lays out and fills what is added to the image, then plans the edits of
// its code.
func (p *Plan) build() error {
	obj, err := stub.Object(p.file.Header.Machine)
	if err != nil {
		return err
	}
	of, err := elfio.Parse(obj)
	if err != nil {
		return fmt.Errorf("embedded runtime: %w", err)
	}
	if err := p.place(of); err != nil {
		return err
	}
	p.m.reach(p)
	if p.Traced() == 0 {
		return p.nothingToTrace()
	}
	// The thunks come first, so that the runtime is linked for their addresses.
	thunks := uint64(p.Traced()) * arch.ThunkSize
	veneers := uint64(p.m.veneers())
	runtime := alignUp(p.RXAddr+thunks+veneers, arch.ThunkSize)
	l, err := elfio.LinkObject(of, elfio.LinkOptions{
		RX: runtime, RW: p.RW, TLS: p.tls,
		Symbols: map[string]uint64{
			"fentry_orig_entry":  p.m.entry(p.OrigEntry),
			"fentry_irel_ret":    runtime,
			"fentry_first_thunk": p.RXAddr,
		},
	})
	if err != nil {
		return fmt.Errorf("embedded runtime: %w", err)
	}
	if l.RWSize > p.RWSize {
		return fmt.Errorf("embedded runtime: %d bytes of writable memory, %d reserved", l.RWSize, p.RWSize)
	}
	p.syms, p.defined = l.Symbols, l.Defined
	// One allocation for all that comes: a thunk, a row of the site table and of the
	// unwind table a function, and the image's own unwind information once more.
	room := int(runtime-p.RXAddr) + len(l.RX) + p.Traced()*24 + 1<<16
	if t, err := p.file.Frames(); err == nil {
		room += t.CopySize() + t.Len()*8
	}
	for i := range p.file.Sections {
		if s := &p.file.Sections[i]; s.Type == elf.SHT_RELA && s.Flags&elf.SHF_ALLOC != 0 {
			room += int(min(s.Size, uint64(len(p.file.Raw()))))
		}
	}
	a := &area{base: p.RXAddr, buf: append(bigslice.Make[byte](int(runtime-p.RXAddr), room), l.RX...)}
	const kept = elf.SHF_ALLOC | elf.SHF_WRITE | elf.SHF_EXECINSTR // merging and groups are over
	for _, s := range l.Sections {
		p.Sections = append(p.Sections, elfio.AddedSection{
			Name: ".fentry" + s.Name, Type: s.Type, Flags: s.Flags & kept, Addr: s.Addr, Size: s.Size, Align: s.Align,
		})
	}
	start, ok := l.Symbols["fentry_start"]
	if !ok {
		return fmt.Errorf("embedded runtime: no symbol fentry_start")
	}
	p.Entry = start

	rows := p.siteTable(a)
	if err := p.placeThunks(); err != nil {
		return err
	}
	// What fill writes is there already, and what comes behind it needs none of it.
	filled := a.buf
	var badThunk, badEdit error
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { badThunk, badEdit = p.fill(filled[:thunks], rows) })
	roots, err := p.roots(a)
	if err == nil {
		err = p.unwind(a, l)
	}
	wg.Wait()
	if err = cmp.Or(badThunk, err); err != nil {
		return err
	}
	if &a.buf[0] != &filled[0] { // there was no room for the rest
		copy(a.buf, filled)
		rows = a.buf[len(filled)-len(rows) : len(filled)]
	}
	p.ImageID = p.imageID(rows)
	if err := p.veneers(a.buf[thunks:][:veneers]); err != nil {
		return err
	}
	p.info(a)
	p.early(a)
	if p.Options.Target == Process {
		p.headers(a)
	}
	p.RX = a.buf
	if err := p.configure(roots); err != nil {
		return err
	}
	p.symbols()
	slices.SortFunc(p.hidden, func(a, b Edit) int { return cmp.Compare(a.Addr, b.Addr) })
	return badEdit
}

// veneers fills the room for what leads from and to sites out of reach.
func (p *Plan) veneers(room []byte) error {
	if len(room) == 0 {
		return nil
	}
	if err := p.m.encodeVeneers(p, room); err != nil {
		return err
	}
	islands, err := p.m.islands(p)
	if err != nil {
		return err
	}
	p.hidden = append(p.hidden, islands...)
	p.Sections = append(p.Sections, elfio.AddedSection{
		Name: ".fentry.veneers", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR,
		Addr: p.RXAddr + uint64(p.Traced())*arch.ThunkSize, Size: uint64(len(room)), Align: 4,
	})
	return nil
}

// place decides the addresses of the added memory.
func (p *Plan) place(obj *elfio.File) error {
	size, align, err := elfio.WritableSize(obj)
	if err != nil {
		return fmt.Errorf("embedded runtime: %w", err)
	}
	p.relWord = alignUp(size, 8)
	size = p.relWord + 8
	p.RWSize = size
	tls, tlsAlign, err := elfio.TLSSize(obj)
	if err != nil {
		return fmt.Errorf("embedded runtime: %w", err)
	}
	if p.Options.Target == File {
		if p.layout, err = p.file.LayoutTLS(size, align, tls, tlsAlign); err != nil {
			return err
		}
		p.RXAddr, p.RW, p.tls = p.layout.RX, p.layout.RW, p.layout.TLS
		return nil
	}
	start, end := ^uint64(0), uint64(0)
	for _, pr := range p.file.Progs {
		if pr.Type == elf.PT_LOAD {
			start, end = min(start, pr.Vaddr), max(end, pr.Vaddr+pr.Memsz)
		}
	}
	p.RW = alignUp(end+p.m.processGap(end-start), 1<<16)
	p.RXAddr = alignUp(p.RW+size, 1<<16)
	if tls > 0 {
		p.ptTLS, p.tls, err = p.file.ExtendTLS(tls, tlsAlign, p.RW)
	}
	return err
}

func alignUp(v, a uint64) uint64 { return (v + a - 1) &^ (a - 1) }

// enterExit are the addresses of the runtime's routines that a thunk calls; exit
// is 0 where it has none.
type enterExit struct{ enter, exit uint64 }

// routinesOf finds the routines of thunks of kind k.
func (p *Plan) routinesOf(k arch.ThunkKind) (r enterExit, err error) {
	o := &p.Options
	tracer := "graph"
	switch {
	case o.Tracer == Profile:
		tracer = "profile"
	case o.Tracer == Function:
		tracer = "func"
	case o.Depth != 0 || o.Threshold != 0 || o.Roots != nil:
		tracer = "opt"
	}
	prefix := "fentry_"
	if k == arch.ThunkMcount || k == arch.ThunkMcountFunc {
		prefix = "fentry_mcount_"
	}
	if r.enter, err = p.symbol(prefix + tracer + "_enter"); err != nil {
		return r, err
	}
	if k != arch.ThunkFunc && k != arch.ThunkMcountFunc {
		r.exit, err = p.symbol("fentry_" + tracer + "_exit")
	}
	return r, err
}

func (p *Plan) symbol(name string) (uint64, error) {
	v, ok := p.syms[name]
	if !ok {
		return 0, fmt.Errorf("embedded runtime: no symbol %s", name)
	}
	return v, nil
}

// siteTable makes room for the thunks' and the sites' sections and returns the
// rows of the table.
func (p *Plan) siteTable(a *area) []byte {
	n := p.Traced()
	p.Sections = append(p.Sections, elfio.AddedSection{
		Name: ".fentry.thunks", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR,
		Addr: p.RXAddr, Size: uint64(n * arch.ThunkSize), Align: arch.ThunkSize,
	})
	size := sitetable.SitesHeader + sitetable.RowSize*n
	at, b := a.grow(size, 8)
	sitetable.PutHeader(b, n)
	p.section(sitetable.SitesSection, at, size, 8)
	return b[sitetable.SitesHeader:]
}

// roots writes the bitmap of graph roots, indexed by site id, and returns its
// address (0: none).
func (p *Plan) roots(a *area) (uint64, error) {
	if p.Options.Roots == nil {
		return 0, nil
	}
	size := (p.Traced() + 1 + 63) / 64 * 8
	at, b := a.grow(size, 8)
	found := false
	for i := range p.Functions {
		if fn := &p.Functions[i]; fn.ID != 0 && p.Options.Roots.MatchSite(fn.Site) {
			b[fn.ID/8] |= 1 << (fn.ID % 8)
			found = true
		}
	}
	if !found {
		return 0, fmt.Errorf("%w: no traced function is a graph root", ErrNoSites)
	}
	p.section(".fentry.roots", at, size, 8)
	return at, nil
}

// unwind adds the unwind information of thunks and runtime, and copies that of
// the image with a rule that finds a traced function's real caller: backtraces
// and exceptions see the same functions as in the original. The sorted table is
// what makes unwinders use all this.
func (p *Plan) unwind(a *area, l *elfio.Linked) error {
	if p.Options.Target == File && !p.layout.EhFrame {
		if p.unwinds() {
			return fmt.Errorf("no room in the program header table for unwind information: exceptions could not pass traced functions")
		}
		return nil
	}
	at := a.align(8)
	frames := p.m.frames(at, p.runs)
	a.put(frames.EhFrame, 8)
	p.section(".fentry.thunk_frames", at, len(frames.EhFrame), 8)
	debug := frames.DebugFrame
	extra := make([]elfio.EhEntry, 0, len(frames.FDEs)+len(l.EhEntries))
	for _, d := range frames.FDEs {
		extra = append(extra, elfio.EhEntry{PC: d.PC, FDE: d.Addr})
	}
	extra = append(extra, l.EhEntries...)
	own, err := p.file.FramesIn(l.EhFrame.Data, l.EhFrame.Addr)
	if err != nil {
		return fmt.Errorf("embedded runtime: %w", err)
	}
	forDebuggers, err := p.file.MoveFrames(l.EhFrame.Addr, uint64(len(debug)), own, elfio.FrameRules{})
	if err != nil {
		return fmt.Errorf("embedded runtime: %w", err)
	}
	debug = append(debug, forDebuggers.DebugFrame...)

	var hdr []byte
	at = a.align(8)
	moved := elfio.MovedFrames{EhFrame: a.buf, DebugFrame: debug}
	if p.callers(&moved, at) {
		a.buf, debug = moved.EhFrame, moved.DebugFrame
		p.section(".fentry.frames", at, int(a.base+uint64(len(a.buf))-at), 8)
		hdr, err = p.file.EhFrameHdr(a.align(4), at, moved.Entries, extra)
	} else {
		hdr, err = elfio.MergeEhFrameHdr(p.file, a.align(4), extra)
	}
	if err != nil {
		return err
	}
	at = a.put(hdr, 4)
	p.ehFrameHdr = [2]uint64{at, uint64(len(hdr))}
	p.section(".fentry.eh_frame_hdr", at, len(hdr), 4)
	p.Sections = append(p.Sections,
		elfio.AddedSection{Name: ".debug_frame", Type: elf.SHT_PROGBITS, Data: debug, Size: uint64(len(debug)), Align: 8})
	return nil
}

// unwinds tells whether code that unwinds the stack may be in a static image. A
// stripped one is believed to have it.
func (p *Plan) unwinds() bool {
	if t, err := p.file.Frames(); err == nil && t.Len() == 0 {
		return false
	}
	syms, err := p.file.Symbols()
	if err != nil || len(syms) == 0 {
		return true
	}
	return slices.ContainsFunc(syms, func(s elfio.Symbol) bool { return strings.HasPrefix(s.Name, "_Unwind_") })
}

// section notes what a part of the read-execute memory is.
func (p *Plan) section(name string, at uint64, size int, align uint64) {
	p.Sections = append(p.Sections, elfio.AddedSection{
		Name: name, Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC, Addr: at, Size: uint64(size), Align: align,
	})
}

// callers copies the image's unwind information, to the end of the read-execute
// memory, at address at, and for debuggers to the end of .debug_frame, with the
// rule that looks behind thunks. false: the image has none, or one that cannot be
// copied; thunks then show in backtraces.
func (p *Plan) callers(to *elfio.MovedFrames, at uint64) bool {
	if p.Options.Tracer == Function {
		return false // return addresses stay what they are
	}
	table, err := p.file.Frames()
	if err != nil || table.Len() == 0 {
		return false
	}
	fdes := table.All()
	registered := true
	for _, pr := range p.file.Progs {
		if pr.Type == elf.PT_GNU_EH_FRAME && pr.Filesz > 0 {
			registered = false
		}
	}
	if registered {
		// No sorted table: the start-up code registers .eh_frame itself, without the
		// entry point's FDE, which comes before the part it knows.
		fdes = func(yield func(*elfio.FDE) bool) {
			for d := range table.All() {
				if p.OrigEntry-d.PC >= d.Size && !yield(d) {
					return
				}
			}
		}
	}
	to.DebugFrame = bigslice.Grow(to.DebugFrame, table.CopySize())
	to.Entries = bigslice.Make[elfio.EhEntry](0, table.Len())
	if err := p.file.AppendFrames(to, at, uint64(len(to.DebugFrame)), fdes, p.m.callers()); err != nil {
		return false
	}
	if !registered {
		return true
	}
	for d := range fdes { // what is registered is looked at first
		e, err := p.file.HideFDE(d)
		addr := d.Addr + (e.Off - d.Off)
		// The start-up code looks where the segments are, the section header may say something else.
		if off, ok := p.file.Offset(addr); err != nil || !ok || off != e.Off {
			p.hidden = nil
			return false
		}
		p.hidden = append(p.hidden, Edit{
			Addr: addr, Old: p.file.Raw()[e.Off : e.Off+uint64(len(e.New))], New: e.New, Reason: "unwind",
		})
	}
	return true
}

// early makes the runtime start before constructors. glibc's ld.so runs the
// constructors of shared objects before it jumps to the entry point, and what
// they call in the program, maybe from threads of theirs, is to be traced.
// Relocation comes before all of them: a relocation whose value is computed by a
// function calls the runtime. Other loaders (musl) refuse such relocations and
// run constructors behind the entry point. A process is started with the runtime's
// entry point before its loader runs, and needs none of this.
func (p *Plan) early(a *area) {
	if p.Options.Target != File || !glibcLoader(p.file) {
		return
	}
	irel, ok := p.syms["fentry_irel"]
	if !ok {
		return
	}
	at := a.align(8)
	x, err := p.file.ExtendDynamic(at, []elfio.DynReloc{{
		Off: p.RW + p.relWord, Type: p.m.irelative(), Addend: int64(irel),
	}})
	if err != nil {
		// No room for it: the runtime starts at the entry point.
		return
	}
	a.put(x.Data, 8)
	p.raw = append(p.raw, x.Edits...)
	p.moved = append(p.moved, x.Moved...)
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

// info says what the image was before.
func (p *Plan) info(a *area) {
	in := sitetable.Info{Image: p.ImageID, Tracer: uint32(p.Options.Tracer), Sites: uint32(p.Traced()), BuildID: p.BuildID}
	b := in.Append(nil)
	at := a.put(b, 8)
	p.section(sitetable.InfoSection, at, len(b), 8)
}

// configure fills the runtime's configuration.
func (p *Plan) configure(roots uint64) error {
	at, err := p.symbol("fentry_config")
	if err != nil {
		return err
	}
	o := &p.Options
	c := stub.Config{
		Mode: uint32(o.Tracer), ImageID: p.ImageID, Sites: uint32(p.Traced()),
		Depth: o.Depth, Policy: o.Policy, Threshold: uint64(o.Threshold), Address: at,
		BuildID: p.BuildID, Session: o.Session, Dir: o.Dir, Path: o.Path,
	}
	if roots != 0 {
		c.Roots = int64(roots - at)
	}
	b, err := c.MarshalBinary()
	if err != nil {
		return err
	}
	copy(p.RX[at-p.RXAddr:], b)
	return nil
}

// thunkPrefix is what the names of thunks have before those of their functions:
// debuggers and profilers show them in place of an unknown address.
const thunkPrefix = "fentry:"

// thunkSymbols are the names of thunks.
func (p *Plan) thunkSymbols() elfio.SymbolRun {
	return elfio.SymbolRun{
		Section: ".fentry.thunks", Size: arch.ThunkSize, Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC), Prefix: thunkPrefix,
		N: p.traced, NameBytes: p.nameBytes,
		All: func(yield func(string, uint64) bool) {
			for i := range p.Functions {
				f := &p.Functions[i]
				if f.ID == 0 {
					continue
				}
				name := f.Name
				if name == "" {
					name = fmt.Sprintf("%x", f.Func)
				}
				if !yield(name, f.Thunk) {
					return
				}
			}
		},
	}
}

// symbols names the rest of what is added.
func (p *Plan) symbols() {
	for _, d := range p.defined {
		if t := elf.ST_TYPE(d.Info); t == elf.STT_FUNC || t == elf.STT_OBJECT {
			name := d.Name
			if !strings.HasPrefix(name, "fentry") {
				name = thunkPrefix + name // not to be taken for the program's own
			}
			p.Symbols = append(p.Symbols, elfio.AddedSymbol{
				Name: name, Value: d.Value, Size: d.Size, Info: elf.ST_INFO(elf.STB_LOCAL, t),
			})
		}
	}
}
