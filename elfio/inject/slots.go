package inject

import (
	"cmp"
	"debug/elf"
	"slices"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// Room in the program header table.
//
// The table cannot move: kernels before 5.18 compute AT_PHDR from e_phoff and the first segment, and
// BFD's strip and objcopy always write it right behind the ELF header. So each header we add takes the
// place of one that can go without loss, or of bytes behind the table that can live elsewhere. The
// sources are tried in the order of what they cost.

// movedBlock is the range of file bytes behind the program header table, holding .interp and notes
// only, that moves to the start of the new segment.
type movedBlock struct {
	start, end uint64 // file offsets
	addr       uint64 // address of start
}

func (m movedBlock) size() uint64 { return m.end - m.start }

func (m movedBlock) contains(off, n uint64) bool {
	return off >= m.start && n <= m.end-m.start && off-m.start <= m.size()-n
}

// moves reports whether the block takes the file range off, n with it.
func (m movedBlock) moves(off, n uint64) bool { return m.size() > 0 && n > 0 && m.contains(off, n) }

// planSlots finds need slots. It sets p.progs to the table without what gives way, p.slots to the names
// of the sources used and p.moved.
func (f *image) planSlots(p *injectionPlan, need int) error {
	progs := slices.Clone(f.Progs)
	var slots []string
	p.moved = movedBlock{}
	have := 0
	found := func(name string, n int) {
		have += n
		slots = append(slots, name)
	}
	each := func(name string, gives func(elfio.Prog) bool) {
		for i := 0; have < need && i < len(progs); i++ {
			if gives(progs[i]) {
				progs = slices.Delete(progs, i, i+1)
				found(name, 1)
				i--
			}
		}
	}
	merge := func(name string, a, b elf.ProgFlag) {
		for i := 0; have < need && i+1 < len(progs); i++ {
			if m, ok := f.mergeLoads(progs[i], progs[i+1], a, b); ok {
				progs = slices.Replace(progs, i, i+2, m)
				found(name, 1)
			}
		}
	}

	each("null", func(q elfio.Prog) bool { return q.Type == elf.PT_NULL })
	if room := f.roomBehindTable(); have < need && room > 0 {
		found("room", min(room, need-have))
	}
	// GNU ld writes a PT_NOTE over exactly what PT_GNU_PROPERTY covers; loaders use the latter.
	if i := f.ProgIndex(elf.PT_GNU_PROPERTY); i >= 0 {
		prop := f.Progs[i]
		each("property-note", func(q elfio.Prog) bool {
			return q.Type == elf.PT_NOTE && q.Off == prop.Off && q.Filesz == prop.Filesz
		})
	}
	// The read-only headers in front of the code become executable, as before -z separate-code.
	merge("merge", elf.PF_R, elf.PF_R|elf.PF_X)
	inPlace := have - (len(f.Progs) - len(progs)) // entries that lengthen the table
	move := func(name string, hash bool) {
		for n := need - have; n > 0; n-- {
			if m, ok := f.movableBehindTable(inPlace+n, hash); ok {
				p.moved = m
				inPlace += n
				found(name, n)
				return
			}
		}
	}
	move("move-notes", false)
	// PT_PHDR tells the dynamic linker the load address of a position-independent program. Programs at
	// fixed addresses and shared objects do without.
	if f.Header.Type == elf.ET_EXEC || f.sharedObject() {
		each("phdr", func(q elfio.Prog) bool { return q.Type == elf.PT_PHDR })
	}
	id, err := f.BuildIDEdit(f.BuildID()) // where it is
	holdsID := func(q elfio.Prog) bool { return err == nil && id.Off >= q.Off && id.Off-q.Off < q.Filesz }
	each("note", func(q elfio.Prog) bool { return q.Type == elf.PT_NOTE && !holdsID(q) })
	move("move-hash", true)
	merge("merge-data", elf.PF_R|elf.PF_X, elf.PF_R)
	each("build-id-note", func(q elfio.Prog) bool { return q.Type == elf.PT_NOTE })
	if have < need {
		return elfio.FormatErrorf("program header table", f.Header.Phoff,
			"%d of %d new entries find no room: no note, no mergeable segment and nothing movable behind the table",
			need-have, need)
	}
	p.progs, p.slots = progs, slots
	return nil
}

// sharedObject reports whether an ET_DYN image is a library: no interpreter and not marked as a static PIE.
func (f *image) sharedObject() bool {
	if f.Header.Type != elf.ET_DYN || f.ProgIndex(elf.PT_INTERP) >= 0 {
		return false
	}
	dyn, err := f.Dynamic()
	if err != nil {
		return false
	}
	for _, d := range dyn {
		if d.Tag == elf.DT_FLAGS_1 && elf.DynFlag1(d.Val)&elf.DF_1_PIE != 0 {
			return false
		}
	}
	return dyn != nil
}

// mergeLoads joins two neighbouring segments into one mapping with the flags of both, if the file and
// memory between them run in step.
func (f *image) mergeLoads(a, b elfio.Prog, aFlags, bFlags elf.ProgFlag) (elfio.Prog, bool) {
	if a.Type != elf.PT_LOAD || b.Type != elf.PT_LOAD || a.Flags != aFlags || b.Flags != bFlags ||
		a.Vaddr-a.Off != b.Vaddr-b.Off || a.Filesz != a.Memsz || b.Filesz != b.Memsz ||
		b.Off < a.Off || b.Off-a.Off < a.Filesz || a.Paddr-a.Vaddr != b.Paddr-b.Vaddr {
		return elfio.Prog{}, false
	}
	if b.Off-a.Off-a.Filesz >= max(a.Align, b.Align, f.pageSize()) {
		return elfio.Prog{}, false // more than padding between them
	}
	m := a
	m.Flags |= b.Flags
	m.Align = max(a.Align, b.Align)
	m.Filesz = b.Off + b.Filesz - a.Off
	m.Memsz = m.Filesz
	if m.Align > 1 && (m.Vaddr-m.Off)&(m.Align-1) != 0 {
		return elfio.Prog{}, false
	}
	return m, true
}

// tableEnd is the file offset behind the program header table.
func (f *image) tableEnd() uint64 {
	return f.Header.Phoff + uint64(f.Header.Phnum)*f.c.PhdrSize()
}

// roomBehindTable returns how many entries fit between the program header table and what follows it.
// Only section headers tell what follows; without them there is no known room.
func (f *image) roomBehindTable() int {
	end := f.tableEnd()
	if len(f.Sections) == 0 {
		return 0
	}
	next := uint64(len(f.raw))
	near := func(off, n uint64) {
		if n > 0 && off+n > end && off < next {
			next = max(off, end)
		}
	}
	near(0, f.c.EhdrSize())
	covered := false
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOBITS && s.Type != elf.SHT_NULL {
			near(s.Off, s.Size)
		}
	}
	for _, p := range f.Progs {
		switch {
		case p.Type == elf.PT_LOAD && p.Off <= f.Header.Phoff:
			covered = covered || p.Off+p.Filesz > end
			if p.Off+p.Filesz >= end { // the table must stay inside the segment that maps it
				next = min(next, p.Off+p.Filesz)
			}
		case p.Type != elf.PT_NULL && p.Type != elf.PT_PHDR && p.Off > f.Header.Phoff:
			near(p.Off, p.Filesz)
		case p.Type != elf.PT_NULL && p.Type != elf.PT_PHDR && p.Type != elf.PT_LOAD && p.Filesz > 0:
			near(p.Off, p.Filesz) // RELRO or a note over the headers: take no risk
		}
	}
	if !covered {
		return 0
	}
	// The section header table may stand there, as in Go's executables: Inject writes a new one elsewhere.
	shdrs := f.Header.Shoff + uint64(f.Header.Shnum)*uint64(f.Header.Shentsize)
	size := f.c.PhdrSize()
	n := 0
	for at := end; n < maxRoom; n++ {
		entry, ok := raw.Slice(f.raw, at, size)
		if !ok || at+size > next {
			break
		}
		for i, c := range entry {
			if o := at + uint64(i); c != 0 && (o < f.Header.Shoff || o >= shdrs) {
				return n
			}
		}
		at += size
	}
	return n
}

// maxRoom bounds roomBehindTable; an injection needs three entries at most.
const maxRoom = 8

// maxMovedBlock bounds what moves; .interp and notes are a few hundred bytes, a hash table up to some 100 KB.
const maxMovedBlock = 1 << 18

// hashTag returns the dynamic tag through which a symbol hash table section is found, 0 for other sections.
func hashTag(d dynamicTable, s elfio.Section) elf.DynTag {
	tag := elf.DynTag(0)
	switch s.Type {
	case elf.SHT_GNU_HASH:
		tag = elf.DT_GNU_HASH
	case elf.SHT_HASH:
		tag = elf.DT_HASH
	}
	if tag == 0 || d == nil || d[tag].Val != s.Addr {
		return 0
	}
	return tag
}

// movedDynamic returns the edits of the dynamic entries that point into the moved block.
func (f *image) movedDynamic(p *injectionPlan) ([]elfio.RawEdit, error) {
	if p.moved.size() == 0 {
		return nil, nil
	}
	d, err := f.dynamic()
	if err != nil || d == nil {
		return nil, err
	}
	var edits []elfio.RawEdit
	for _, s := range f.Sections {
		if tag := hashTag(d, s); tag != 0 && p.moved.moves(s.Off, s.Size) {
			w := make([]byte, f.c.WordSize())
			f.c.PutWord(w, p.movedAddr()+(s.Off-p.moved.start))
			edits = append(edits, elfio.RawEdit{Off: d[tag].Off + f.c.WordSize(), New: w})
		}
	}
	return edits, nil
}

// movableBehindTable returns the block of .interp and notes, and with hash of symbol hash tables, that must
// move for the program header table to grow by extra entries.
func (f *image) movableBehindTable(extra int, hash bool) (movedBlock, bool) {
	var none movedBlock
	end := f.tableEnd()
	m := movedBlock{start: end, end: end + uint64(extra)*f.c.PhdrSize()}
	host, ok := elfio.Prog{}, false
	for _, p := range f.loads {
		if p.Off <= f.Header.Phoff && m.end <= p.Off+p.Filesz {
			host, ok = p, true
			break
		}
	}
	if !ok || m.end > uint64(len(f.raw)) {
		return none, false
	}
	type extent struct {
		off, end uint64
		movable  bool
	}
	var parts []extent
	part := func(off, n uint64, movable bool) {
		if n > 0 && off+n >= off && off+n > m.start {
			parts = append(parts, extent{off, off + n, movable})
		}
	}
	var tables dynamicTable
	if hash {
		tables, _ = f.dynamic() // malformed: no hash table is movable
	}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOBITS && s.Type != elf.SHT_NULL {
			part(s.Off, s.Size, s.Type == elf.SHT_NOTE || s.Name == ".interp" || hashTag(tables, s) != 0)
		}
	}
	for _, p := range f.Progs {
		switch p.Type {
		case elf.PT_LOAD, elf.PT_NULL, elf.PT_PHDR:
			continue
		}
		part(p.Off, p.Filesz, p.Type == elf.PT_INTERP || p.Type == elf.PT_NOTE || p.Type == elf.PT_GNU_PROPERTY)
	}
	part(f.Header.Shoff, uint64(f.Header.Shnum)*uint64(f.Header.Shentsize), false)
	slices.SortFunc(parts, func(a, b extent) int { return cmp.Compare(a.off, b.off) })
	// Take in whole what the block touches. Between the parts there may be alignment only; without section
	// headers a longer stretch may be anything.
	known := m.start
	gap := func(to uint64) bool {
		b, ok := raw.Slice(f.raw, known, to-known)
		return ok && raw.AllZero(b) && (len(f.Sections) > 0 || to-known < 32)
	}
	for _, e := range parts {
		if e.off >= m.end {
			break
		}
		if !e.movable || e.off < end || e.end > host.Off+host.Filesz || e.off > known && !gap(e.off) {
			return none, false
		}
		known = max(known, e.end)
		m.end = max(m.end, e.end)
		if m.size() > maxMovedBlock {
			return none, false
		}
	}
	if known == m.start || known < m.end && !gap(m.end) {
		return none, false
	}
	m.addr = host.Vaddr + (m.start - host.Off)
	return m, true
}
