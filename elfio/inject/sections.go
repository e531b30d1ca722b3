package inject

import (
	"debug/elf"
	"fmt"
	"slices"
	"sort"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// New section headers.
//
// Added alloc sections are inserted behind the last one below them, so that headers stay sorted by
// address, and everything that names a section by its index is renumbered. Non-alloc ones go to the end.
// The section name table, and .symtab with its string table when symbols are added, are copied
// to the end of the file with the additions; their old bytes stay where they are, unused.

// newSection is a section header under construction.
type newSection struct {
	elfio.Section
	old  int    // index in File.Sections, -1 for an added one
	link string // Section.Link
}

// tableBuilder collects the new section header table.
type tableBuilder struct {
	j     *injector
	list  []newSection
	remap []uint32       // old index to new
	named map[string]int // sections looked up by name, new index
	// strings are the string tables that grow, by old index.
	strings map[uint32]*grownTable
}

// grownTable is a string table with names added.
type grownTable struct {
	base  []byte
	extra []byte
	at    map[string]uint32
}

// add returns the offset of a name in the table. Equal names are stored once.
func (t *grownTable) add(name string) uint32 {
	if name == "" && len(t.base) > 0 && t.base[0] == 0 {
		return 0
	}
	if off, ok := t.at[name]; ok {
		return off
	}
	off := t.append("", name)
	t.at[name] = off
	return off
}

// append is add for many names that are hardly ever equal, each of two pieces.
func (t *grownTable) append(prefix, name string) uint32 {
	off := uint32(len(t.base) + len(t.extra))
	t.extra = append(append(append(t.extra, prefix...), name...), 0)
	return off
}

// planSections builds the new section headers, appends the grown tables and the contents of non-alloc
// sections to the tail, and adds the edits that renumber sections where they are named.
func (j *injector) planSections() error {
	f := j.f
	if f.Header.Shstrndx == 0 || f.Sections[f.Header.Shstrndx].Type == elf.SHT_NOBITS {
		return elfio.FormatErrorf("section header table", f.Header.Shoff,
			"no section name table: added sections could not be named")
	}
	b := &tableBuilder{j: j, strings: map[uint32]*grownTable{}, named: map[string]int{}}
	for i, s := range f.Sections {
		b.list = append(b.list, newSection{Section: b.relocated(s), old: i})
	}
	for _, m := range j.in.Moved {
		if m.Section <= 0 || m.Section >= len(b.list) {
			return fmt.Errorf("moved section %d of %d", m.Section, len(b.list))
		}
		if !j.inRX(m.Addr, m.Size) {
			return fmt.Errorf("%s moved to %#x+%#x, outside the new segment", f.SectionLabel(m.Section), m.Addr, m.Size)
		}
		s := &b.list[m.Section]
		s.Addr, s.Off, s.Size = m.Addr, j.rxOff(m.Addr), m.Size
	}
	added, err := b.added()
	if err != nil {
		return err
	}
	b.tlsSection()
	b.insert(added)
	if err := b.name(); err != nil {
		return err
	}
	if err := b.renumber(); err != nil {
		return err
	}
	if err := b.symbolTables(); err != nil {
		return err
	}
	if err := b.groups(); err != nil {
		return err
	}
	b.emitStrings()
	j.sections = make([]elfio.Section, len(b.list))
	for i := range b.list {
		j.sections[i] = b.list[i].Section
	}
	j.shnum = uint32(len(b.list))
	j.shstrndx = b.remap[f.Header.Shstrndx]
	null := &j.sections[0]
	if f.hdr.Shnum == 0 || j.shnum >= uint32(elf.SHN_LORESERVE) {
		null.Size = 0
		if j.shnum >= uint32(elf.SHN_LORESERVE) {
			null.Size = uint64(j.shnum)
		}
	}
	if elf.SectionIndex(f.hdr.Shstrndx) == elf.SHN_XINDEX || j.shstrndx >= uint32(elf.SHN_LORESERVE) {
		null.Link = 0
		if j.shstrndx >= uint32(elf.SHN_LORESERVE) {
			null.Link = j.shstrndx
		}
	}
	return nil
}

// relocated adjusts the header of a section that is inside the moved block.
func (b *tableBuilder) relocated(s elfio.Section) elfio.Section {
	p := b.j.plan
	if s.Type != elf.SHT_NOBITS && s.Flags&elf.SHF_ALLOC != 0 && p.moved.moves(s.Off, s.Size) {
		s.Addr = p.movedAddr() + (s.Off - p.moved.start)
		s.Off = b.j.rxOff(s.Addr)
	}
	return s
}

// added returns the sections to add: the caller's, those for what they leave uncovered, and the undo record's.
func (b *tableBuilder) added() ([]newSection, error) {
	j, p := b.j, b.j.plan
	var out []newSection
	var covered []span // of RX, by address
	rwEnd := p.RW      // the end of what sections cover of the zeroed memory
	bssOff := p.SegmentOff
	if p.grow >= 0 {
		g := j.f.Progs[p.grow]
		bssOff = g.Off + g.Filesz
	} else if p.RWSegment != 0 {
		bssOff = p.RWSegmentOff + rwStub
	}
	sections := slices.Clone(j.in.Sections)
	if eh := j.in.EhFrameHdr; eh[1] != 0 {
		// Checkers want the name .eh_frame_hdr for what PT_GNU_EH_FRAME points to.
		sections = slices.DeleteFunc(sections, func(a Section) bool { return a.Flags&elf.SHF_ALLOC != 0 && a.Addr == eh[0] })
		if i := b.ehFrameHdrSection(); i >= 0 {
			s := &b.list[i]
			s.Addr, s.Off, s.Size = eh[0], j.rxOff(eh[0]), eh[1]
			covered = append(covered, span{eh[0], eh[1]})
		} else {
			sections = append(sections, Section{Name: ".eh_frame_hdr", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC,
				Addr: eh[0], Size: eh[1], Align: 4})
		}
	}
	sortSections(sections)
	for _, a := range sections {
		s := newSection{old: -1, link: a.Link, Section: elfio.Section{
			Name: a.Name, Type: a.Type, Flags: a.Flags, Addr: a.Addr, Size: a.Size, Addralign: max(a.Align,
				1), Entsize: a.Entsize,
		}}
		switch {
		case a.Flags&elf.SHF_ALLOC == 0:
			s.Off = j.tail.align(s.Addralign)
			s.Size = uint64(len(a.Data))
			j.tail.put(a.Data)
			if i := j.f.SectionIndex(a.Name); a.Replace && i >= 0 && b.list[i].Flags&elf.SHF_ALLOC == 0 {
				was := &b.list[i]
				was.Flags, was.Off, was.Size, was.Addralign = s.Flags, s.Off, s.Size, s.Addralign
				continue
			}
		case j.inRX(a.Addr, a.Size) && a.Type != elf.SHT_NOBITS:
			s.Off = j.rxOff(a.Addr)
			covered = append(covered, span{a.Addr, a.Size})
		case j.inRW(a.Addr, a.Size) && a.Type == elf.SHT_NOBITS:
			s.Off = bssOff
			rwEnd = max(rwEnd, s.Addr+s.Size)
		default:
			return nil, fmt.Errorf("section %s at %#x+%#x (%v) is neither in the new segment nor in the zeroed memory", a.Name,
				a.Addr, a.Size, a.Type)
		}
		if s.Addralign&(s.Addralign-1) != 0 || s.Addr&(s.Addralign-1) != 0 {
			return nil, fmt.Errorf("section %s at %#x is not aligned to %#x", a.Name, a.Addr, s.Addralign)
		}
		out = append(out, s)
	}
	for _, m := range j.in.Moved {
		covered = append(covered, span{m.Addr, m.Size})
	}
	for _, g := range uncovered(j.in.RX, p.RX, covered) {
		out = append(out, newSection{old: -1, Section: elfio.Section{Name: ".fentry.rx", Type: elf.SHT_PROGBITS,
			Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR,
			Addr:  g.off, Off: j.rxOff(g.off), Size: g.n, Addralign: 1}})
	}
	if p.RWSegment != 0 {
		out = append(out, newSection{old: -1, Section: elfio.Section{Name: ".fentry.data", Type: elf.SHT_PROGBITS,
			Flags: elf.SHF_ALLOC | elf.SHF_WRITE,
			Addr:  p.RWSegment, Off: p.RWSegmentOff, Size: rwStub, Addralign: 8}})
	}
	// Strip and objcopy count a segment's memory anew, to where its last section ends.
	if end := p.RW + j.in.RWSize; rwEnd < end {
		align := p.RWAlign
		if rwEnd > p.RW {
			align = 1
		}
		out = append(out, newSection{old: -1, Section: elfio.Section{Name: ".fentry.bss", Type: elf.SHT_NOBITS,
			Flags: elf.SHF_ALLOC | elf.SHF_WRITE,
			Addr:  rwEnd, Off: bssOff, Size: end - rwEnd, Addralign: align}})
	}
	// Last, where writeSectionHeaders looks for it.
	return append(out, newSection{old: -1, Section: elfio.Section{Name: undoSection, Type: elf.SHT_PROGBITS,
		Addralign: 8}}), nil
}

// ehFrameHdrSection returns the section that PT_GNU_EH_FRAME points to, -1 for none.
func (b *tableBuilder) ehFrameHdrSection() int {
	f := b.j.f
	if i := f.ProgIndex(elf.PT_GNU_EH_FRAME); i >= 0 {
		for k, s := range f.Sections {
			if s.Flags&elf.SHF_ALLOC != 0 && s.Addr == f.Progs[i].Vaddr && s.Size == f.Progs[i].Filesz {
				return k
			}
		}
	}
	return f.SectionIndex(".eh_frame_hdr")
}

// uncovered returns the stretches of rx, at address addr, that no span covers and that are more than alignment.
func uncovered(rx []byte, addr uint64, spans []span) []span {
	sort.Slice(spans, func(i, j int) bool { return spans[i].off < spans[j].off })
	end := addr + uint64(len(rx))
	var out []span
	gap := func(from, to uint64) {
		if from < to && (to-from >= rxAlign || !raw.AllZero(rx[from-addr:to-addr])) {
			out = append(out, span{from, to - from})
		}
	}
	at := addr
	for _, s := range spans {
		gap(at, min(s.off, end))
		at = max(at, s.off+s.n)
	}
	gap(at, end)
	return out
}

// insert puts the added sections in their places and fills in remap.
func (b *tableBuilder) insert(added []newSection) {
	for _, s := range added {
		at := len(b.list)
		if s.Flags&elf.SHF_ALLOC != 0 {
			at = 1
			for i, o := range b.list {
				if o.Flags&elf.SHF_ALLOC != 0 && o.Addr <= s.Addr && i >= at {
					at = i + 1
				}
			}
		}
		b.list = slices.Insert(b.list, at, s)
	}
	b.remap = make([]uint32, len(b.j.f.Sections))
	for i, s := range b.list {
		if s.old >= 0 {
			b.remap[s.old] = uint32(i)
		}
	}
}

// section returns the new index of the first section of a name, -1 when there is none.
func (b *tableBuilder) section(name string) int {
	i, ok := b.named[name]
	if !ok {
		i = slices.IndexFunc(b.list, func(s newSection) bool { return s.Name == name })
		b.named[name] = i
	}
	return i
}

// name adds the names of the added sections to the section name table.
func (b *tableBuilder) name() error {
	t, err := b.grow(b.j.f.Header.Shstrndx)
	if err != nil {
		return err
	}
	for i := range b.list {
		if s := &b.list[i]; s.old < 0 {
			s.NameOff = t.add(s.Name)
		}
	}
	return nil
}

// grow returns the table for the string table section of the given old index.
func (b *tableBuilder) grow(i uint32) (*grownTable, error) {
	if t := b.strings[i]; t != nil {
		return t, nil
	}
	f := b.j.f
	if i >= uint32(len(f.Sections)) || f.Sections[i].Type != elf.SHT_STRTAB {
		return nil, elfio.FormatErrorf(f.SectionLabel(int(i)), f.Header.Shoff, "no string table")
	}
	if f.Sections[i].Flags&elf.SHF_ALLOC != 0 {
		return nil, elfio.FormatErrorf(f.SectionLabel(int(i)), f.Sections[i].Off,
			"is part of the memory image, so nothing can be added to it")
	}
	data, err := f.SectionData(int(i))
	if err != nil {
		return nil, err
	}
	if uint64(len(data)) > 1<<31 {
		return nil, elfio.FormatErrorf(f.SectionLabel(int(i)), f.Sections[i].Off, "too large to be added to")
	}
	t := &grownTable{base: data, at: map[string]uint32{}}
	if n := len(data); n > 0 && data[n-1] != 0 {
		t.extra = append(t.extra, 0) // an unterminated table: keep its last name as it is
	}
	b.strings[i] = t
	return t, nil
}

// renumber maps sh_link and those sh_info that are section indices (gABI, "sh_link and sh_info Interpretation").
func (b *tableBuilder) renumber() error {
	for i := range b.list {
		s := &b.list[i]
		if s.old < 0 {
			if s.link != "" {
				i := b.section(s.link)
				if i < 0 {
					return fmt.Errorf("section %s refers to section %s, which does not exist", s.Name, s.link)
				}
				s.Link = uint32(i)
			}
			continue
		}
		if s.old == 0 {
			continue // holds extended counts
		}
		s.Link = b.newIndex(s.Link)
		if s.Type == elf.SHT_REL || s.Type == elf.SHT_RELA || s.Flags&elf.SHF_INFO_LINK != 0 {
			s.Info = b.newIndex(s.Info)
		}
	}
	return nil
}

// newIndex maps an old section index; what is none stays.
func (b *tableBuilder) newIndex(i uint32) uint32 {
	if i < uint32(len(b.remap)) {
		return b.remap[i]
	}
	return i
}

// groups renumbers the members of section groups in place.
func (b *tableBuilder) groups() error {
	f := b.j.f
	budget := len(f.raw)
	for i, s := range f.Sections {
		if s.Type != elf.SHT_GROUP {
			continue
		}
		data, err := f.SectionData(i)
		if err != nil {
			return err
		}
		if budget -= len(data); budget < 0 {
			return elfio.FormatErrorf(f.SectionLabel(i), s.Off, "section groups overlap")
		}
		// The first word holds flags, the others are members.
		for pos := 4; pos+4 <= len(data); pos += 4 {
			if old := f.c.Order.Uint32(data[pos:]); b.newIndex(old) != old {
				w := make([]byte, 4)
				f.c.Order.PutUint32(w, b.newIndex(old))
				b.overwrite(i, uint64(pos), w)
			}
		}
	}
	return nil
}

// emitStrings appends the grown string tables, in the order of their sections.
func (b *tableBuilder) emitStrings() {
	for i := range b.list {
		s := &b.list[i]
		t := b.strings[uint32(max(s.old, 0))]
		if s.old <= 0 || t == nil {
			continue
		}
		s.Off = b.j.tail.at()
		b.j.tail.put(t.base)
		b.j.tail.put(t.extra)
		s.Size = uint64(len(t.base) + len(t.extra))
	}
}

// writeSectionHeaders appends the section header table. The undo record is at off.
func (j *injector) writeSectionHeaders(off, size uint64) {
	for i := range j.sections {
		if s := &j.sections[i]; s.Name == undoSection {
			s.Off, s.Size = off, size
		}
	}
	j.shoff = j.tail.align(8)
	ent := j.f.c.ShdrSize()
	table := make([]byte, uint64(len(j.sections))*ent)
	for i := range j.sections {
		j.f.PutSection(table[uint64(i)*ent:], &j.sections[i])
	}
	j.tail.put(table)
}
