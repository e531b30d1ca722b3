package elfio

import (
	"debug/elf"
	"slices"
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
func (f *File) planSlots(p *injectionPlan, need int) error {
	progs := slices.Clone(f.Progs)
	var slots []string
	p.moved = movedBlock{}
	have := 0
	found := func(name string, n int) {
		have += n
		slots = append(slots, name)
	}
	each := func(name string, gives func(Prog) bool) {
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

	each("null", func(q Prog) bool { return q.Type == elf.PT_NULL })
	if room := f.roomBehindTable(); have < need && room > 0 {
		found("room", min(room, need-have))
	}
	// GNU ld writes a PT_NOTE over exactly what PT_GNU_PROPERTY covers; loaders use the latter.
	if i := f.progOfType(elf.PT_GNU_PROPERTY); i >= 0 {
		prop := f.Progs[i]
		each("property-note", func(q Prog) bool {
			return q.Type == elf.PT_NOTE && q.Off == prop.Off && q.Filesz == prop.Filesz
		})
	}
	// The read-only headers in front of the code become executable, as before -z separate-code.
	merge("merge", elf.PF_R, elf.PF_R|elf.PF_X)
	if have < need {
		grown := have - (len(f.Progs) - len(progs)) // entries in room behind the table
		for n := need - have; n > 0; n-- {
			if m, ok := f.movableBehindTable(grown + n); ok {
				p.moved = m
				found("move-notes", n)
				break
			}
		}
	}
	// PT_PHDR tells the dynamic linker the load address of a position-independent program. Programs at
	// fixed addresses and shared objects do without.
	if f.Header.Type == elf.ET_EXEC || f.sharedObject() {
		each("phdr", func(q Prog) bool { return q.Type == elf.PT_PHDR })
	}
	id := f.buildIDNote()
	holdsID := func(q Prog) bool { return id != nil && id.Off >= q.Off && id.Off-q.Off < q.Filesz }
	each("note", func(q Prog) bool { return q.Type == elf.PT_NOTE && !holdsID(q) })
	merge("merge-data", elf.PF_R|elf.PF_X, elf.PF_R)
	each("build-id-note", func(q Prog) bool { return q.Type == elf.PT_NOTE })
	if have < need {
		return formatErr("program header table", f.Header.Phoff, "%d of %d new entries find no room: no note, no mergeable segment and nothing movable behind the table", need-have, need)
	}
	p.progs, p.slots = progs, slots
	return nil
}

// sharedObject reports whether an ET_DYN image is a library: no interpreter and not marked as a static PIE.
func (f *File) sharedObject() bool {
	if f.Header.Type != elf.ET_DYN || f.progOfType(elf.PT_INTERP) >= 0 {
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
func (f *File) mergeLoads(a, b Prog, aFlags, bFlags elf.ProgFlag) (Prog, bool) {
	if a.Type != elf.PT_LOAD || b.Type != elf.PT_LOAD || a.Flags != aFlags || b.Flags != bFlags ||
		a.Vaddr-a.Off != b.Vaddr-b.Off || a.Filesz != a.Memsz || b.Filesz != b.Memsz ||
		b.Off < a.Off || b.Off-a.Off < a.Filesz || a.Paddr-a.Vaddr != b.Paddr-b.Vaddr {
		return Prog{}, false
	}
	if b.Off-a.Off-a.Filesz >= max(a.Align, b.Align, f.pageSize()) {
		return Prog{}, false // more than padding between them
	}
	m := a
	m.Flags |= b.Flags
	m.Align = max(a.Align, b.Align)
	m.Filesz = b.Off + b.Filesz - a.Off
	m.Memsz = m.Filesz
	if m.Align > 1 && (m.Vaddr-m.Off)&(m.Align-1) != 0 {
		return Prog{}, false
	}
	return m, true
}

// tableEnd is the file offset behind the program header table.
func (f *File) tableEnd() uint64 {
	return f.Header.Phoff + uint64(f.Header.Phnum)*f.c.phdrSize()
}

// roomBehindTable returns how many entries fit between the program header table and what follows it.
// Only section headers tell what follows; without them there is no known room.
func (f *File) roomBehindTable() int {
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
	near(0, f.c.ehdrSize())
	near(f.Header.Shoff, uint64(f.Header.Shnum)*uint64(f.Header.Shentsize))
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
	gap, ok := slice(f.raw, end, next-end)
	if !ok {
		return 0
	}
	size := f.c.phdrSize()
	n := 0
	for uint64(len(gap)) >= size && allZero(gap[:size]) && n < 16 {
		gap = gap[size:]
		n++
	}
	return n
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// maxMovedBlock bounds what "move-notes" moves; .interp and notes are a few hundred bytes.
const maxMovedBlock = 1 << 14

// movableBehindTable returns the block of .interp and notes that must move for the program header
// table to grow by extra entries.
func (f *File) movableBehindTable(extra int) (movedBlock, bool) {
	var none movedBlock
	end := f.tableEnd()
	m := movedBlock{start: end, end: end + uint64(extra)*f.c.phdrSize()}
	host, ok := Prog{}, false
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
		off, n  uint64
		movable bool
	}
	var parts []extent
	known := uint64(0) // bytes of the block whose owner is known, for images without sections
	for _, s := range f.Sections {
		if s.Type == elf.SHT_NOBITS || s.Type == elf.SHT_NULL || s.Size == 0 {
			continue
		}
		parts = append(parts, extent{s.Off, s.Size, s.Type == elf.SHT_NOTE || s.Name == ".interp"})
	}
	for _, p := range f.Progs {
		switch p.Type {
		case elf.PT_LOAD, elf.PT_NULL, elf.PT_PHDR:
			continue
		}
		parts = append(parts, extent{p.Off, p.Filesz, p.Type == elf.PT_INTERP || p.Type == elf.PT_NOTE || p.Type == elf.PT_GNU_PROPERTY})
	}
	parts = append(parts, extent{f.Header.Shoff, uint64(f.Header.Shnum) * uint64(f.Header.Shentsize), false})
	// Take in whole what the block touches until nothing sticks out.
	for grown := true; grown; {
		grown = false
		for _, e := range parts {
			if e.n == 0 || e.off+e.n < e.off || e.off+e.n <= m.start || e.off >= m.end {
				continue
			}
			if !e.movable || e.off < end || e.off+e.n > host.Off+host.Filesz {
				return none, false
			}
			if e.off+e.n > m.end {
				m.end, grown = e.off+e.n, true
			}
		}
		if m.size() > maxMovedBlock {
			return none, false
		}
	}
	for at := m.start; at < m.end; { // every byte is a part's or alignment between parts
		next := m.end
		inside := false
		for _, e := range parts {
			if e.n > 0 && e.off <= at && at-e.off < e.n {
				inside, next = true, e.off+e.n
				break
			}
			if e.n > 0 && e.off > at {
				next = min(next, e.off)
			}
		}
		gap, ok := slice(f.raw, at, next-at)
		if !inside && (!ok || !allZero(gap) || next-at >= 32 && len(f.Sections) == 0) {
			return none, false
		}
		if inside {
			known += next - at
		}
		at = next
	}
	if known == 0 {
		return none, false
	}
	m.addr = host.Vaddr + (m.start - host.Off)
	return m, true
}
