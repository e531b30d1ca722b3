package elfio

import (
	"debug/elf"
	"fmt"
	"slices"
)

// symbolTables renumbers the sections named in every symbol table and adds the new symbols to .symtab.
func (b *tableBuilder) symbolTables() error {
	f := b.j.f
	main := -1
	if len(b.j.in.Symbols) > 0 {
		main = f.sectionOfType(elf.SHT_SYMTAB)
	}
	seen := map[elf.SectionType]bool{}
	for i, s := range f.Sections {
		if s.Type != elf.SHT_SYMTAB && s.Type != elf.SHT_DYNSYM || s.Size == 0 {
			continue
		}
		if seen[s.Type] { // gABI: at most one of each
			return formatErr(f.sectionLabel(i), s.Off, "second symbol table of type %v", s.Type)
		}
		seen[s.Type] = true
		if s.Entsize != 0 && s.Entsize != f.c.symSize() {
			return formatErr(f.sectionLabel(i), s.Off, "entries of %d bytes, want %d", s.Entsize, f.c.symSize())
		}
		data, err := f.SectionData(i)
		if err != nil {
			return err
		}
		if data == nil {
			continue
		}
		x := -1
		for k := range f.Sections {
			if f.Sections[k].Type == elf.SHT_SYMTAB_SHNDX && f.Sections[k].Link == uint32(i) {
				x = k
				break
			}
		}
		t := symtabChange{b: b, i: i, data: data, xi: x}
		if x >= 0 {
			if t.shndx, err = f.SectionData(x); err != nil {
				return err
			}
		}
		if err := t.scan(); err != nil {
			return err
		}
		if i == main {
			if err := t.extend(); err != nil {
				return err
			}
			continue
		}
		t.inPlace()
	}
	return nil
}

// symtabChange is a symbol table being changed.
type symtabChange struct {
	b     *tableBuilder
	i     int // old section index
	data  []byte
	xi    int    // old index of its SHT_SYMTAB_SHNDX section, -1 for none
	shndx []byte // contents of that

	changed  []symbolUpdate
	xchanged []indexUpdate
}

type symbolUpdate struct {
	index uint64
	sym   rawSym
}

type indexUpdate struct {
	index uint64
	value uint32
}

// scan finds the entries that have to change: a section got another index, or moved.
func (t *symtabChange) scan() error {
	f := t.b.j.f
	same := true
	for i, n := range t.b.remap {
		same = same && n == uint32(i) && t.b.list[n].Addr == f.Sections[i].Addr
	}
	if same {
		return nil
	}
	size := f.c.symSize()
	for i := uint64(1); (i+1)*size <= uint64(len(t.data)); i++ {
		r := f.c.readSym(t.data[i*size:])
		old := uint32(r.shndx)
		extended := elf.SectionIndex(r.shndx) == elf.SHN_XINDEX
		if extended {
			x, ok := slice(t.shndx, i*4, 4)
			if !ok {
				return formatErr(fmt.Sprintf("symbol %d of %s", i, f.sectionLabel(t.i)), f.Sections[t.i].Off+i*size, "section index is in an extended table that has no entry for it")
			}
			old = f.c.order.Uint32(x)
		} else if elf.SectionIndex(r.shndx) >= elf.SHN_LORESERVE {
			continue
		}
		if old == 0 || old >= uint32(len(t.b.remap)) {
			continue
		}
		n := t.b.remap[old]
		s, was := t.b.list[n].Section, f.Sections[old]
		update := false
		if s.Addr != was.Addr && r.value >= was.Addr && r.value-was.Addr <= was.Size {
			r.value += s.Addr - was.Addr
			update = true
		}
		if n != old {
			switch {
			case extended:
				t.xchanged = append(t.xchanged, indexUpdate{i, n})
			case n >= uint32(elf.SHN_LORESERVE):
				if _, ok := slice(t.shndx, i*4, 4); !ok {
					return formatErr(f.sectionLabel(t.i), f.Sections[t.i].Off, "section index %#x of symbol %d needs an extended index table, which the image lacks", n, i)
				}
				r.shndx = uint16(elf.SHN_XINDEX)
				t.xchanged = append(t.xchanged, indexUpdate{i, n})
				update = true
			default:
				r.shndx = uint16(n)
				update = true
			}
		}
		if update {
			t.changed = append(t.changed, symbolUpdate{i, r})
		}
	}
	return nil
}

// inPlace overwrites the entries where they are, which for a section that moved is in RX.
func (t *symtabChange) inPlace() {
	f := t.b.j.f
	size := f.c.symSize()
	for _, u := range t.changed {
		e := make([]byte, size)
		f.c.writeSym(e, u.sym)
		t.b.overwrite(t.i, u.index*size, e)
	}
	for _, u := range t.xchanged {
		e := make([]byte, 4)
		f.c.order.PutUint32(e, u.value)
		t.b.overwrite(t.xi, u.index*4, e)
	}
}

// overwrite changes contents of a section of the image.
func (b *tableBuilder) overwrite(section int, off uint64, e []byte) {
	j := b.j
	for _, m := range j.in.Moved {
		if m.Section == section {
			copy(j.tail[j.rxOff(m.Addr)+off-uint64(len(j.f.raw)):], e)
			return
		}
	}
	j.edits = append(j.edits, RawEdit{j.f.Sections[section].Off + off, e})
}

// extend writes a copy of the table with the new symbols to the tail.
func (t *symtabChange) extend() error {
	b, j, f := t.b, t.b.j, t.b.j.f
	size := f.c.symSize()
	old := f.Sections[t.i]
	if old.Flags&elf.SHF_ALLOC != 0 {
		return formatErr(f.sectionLabel(t.i), old.Off, "is part of the memory image, so no symbol can be added")
	}
	names, err := b.grow(old.Link)
	if err != nil {
		return err
	}
	n := uint64(len(t.data)) / size
	if uint64(old.Info) > n {
		return formatErr(f.sectionLabel(t.i), old.Off, "%d of %d symbols are local", old.Info, n)
	}
	// New local symbols belong before the first global one and would shift it; where relocations or groups
	// refer to symbols by number they become hidden global ones instead.
	fixed := false
	for _, s := range f.Sections {
		switch s.Type {
		case elf.SHT_REL, elf.SHT_RELA, elf.SHT_GROUP:
			fixed = fixed || s.Link == uint32(t.i)
		}
	}
	data := slices.Clone(t.data[:n*size])
	for _, u := range t.changed {
		f.c.writeSym(data[u.index*size:], u.sym)
	}
	var xdata []byte
	if t.xi >= 0 {
		xdata = make([]byte, n*4)
		copy(xdata, t.shndx)
		for _, u := range t.xchanged {
			f.c.order.PutUint32(xdata[u.index*4:], u.value)
		}
	}
	var local, global, xlocal, xglobal []byte
	room := 0
	for i := range j.in.Symbols {
		room += len(j.in.Symbols[i].Name) + 1
	}
	names.extra = slices.Grow(names.extra, room)
	local = make([]byte, 0, uint64(len(j.in.Symbols))*size)
	e, x := make([]byte, size), make([]byte, 4)
	for i := range j.in.Symbols {
		a := &j.in.Symbols[i]
		sec, err := b.symbolSection(*a)
		if err != nil {
			return err
		}
		if !f.c.fits(a.Value) || !f.c.fits(a.Size) {
			return fmt.Errorf("symbol %s: value %#x or size %#x does not fit the file's class", a.Name, a.Value, a.Size)
		}
		r := rawSym{name: names.append(a.Name), info: a.Info, other: a.Other, value: a.Value, size: a.Size}
		clear(x)
		switch {
		case sec < 0:
			r.shndx = uint16(elf.SHN_ABS)
		case sec >= int(elf.SHN_LORESERVE):
			if t.xi < 0 {
				return fmt.Errorf("symbol %s: section index %#x needs an extended index table, which the image lacks", a.Name, sec)
			}
			r.shndx = uint16(elf.SHN_XINDEX)
			f.c.order.PutUint32(x, uint32(sec))
		default:
			r.shndx = uint16(sec)
		}
		isLocal := elf.ST_BIND(a.Info) == elf.STB_LOCAL
		if isLocal && fixed {
			isLocal = false
			r.info = elf.ST_INFO(elf.STB_GLOBAL, elf.ST_TYPE(a.Info))
			r.other = byte(elf.STV_HIDDEN)
		}
		f.c.writeSym(e, r)
		if isLocal {
			local, xlocal = append(local, e...), append(xlocal, x...)
		} else {
			global, xglobal = append(global, e...), append(xglobal, x...)
		}
	}
	split := uint64(old.Info) * size
	s := &b.list[b.remap[t.i]]
	s.Off = j.alignTail(8)
	for _, part := range [][]byte{data[:split], local, data[split:], global} {
		j.tail = append(j.tail, part...)
	}
	s.Size = j.at() - s.Off
	s.Info += uint32(uint64(len(local)) / size)
	if t.xi >= 0 {
		xsplit := uint64(old.Info) * 4
		x := &b.list[b.remap[t.xi]]
		x.Off = j.alignTail(4)
		for _, part := range [][]byte{xdata[:xsplit], xlocal, xdata[xsplit:], xglobal} {
			j.tail = append(j.tail, part...)
		}
		x.Size = j.at() - x.Off
	}
	return nil
}

// symbolSection returns the new index of the section a symbol is defined in, -1 for SHN_ABS.
func (b *tableBuilder) symbolSection(a AddedSymbol) (int, error) {
	if a.Section != "" {
		if i := b.section(a.Section); i >= 0 {
			return i, nil
		}
		return 0, fmt.Errorf("symbol %s: no section %s", a.Name, a.Section)
	}
	for i, s := range b.list {
		if s.old < 0 && s.Flags&elf.SHF_ALLOC != 0 && a.Value >= s.Addr && a.Value-s.Addr < s.Size {
			return i, nil
		}
	}
	return -1, nil
}
