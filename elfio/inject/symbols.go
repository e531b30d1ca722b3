package inject

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
	"github.com/fentry-dev/fentry/internal/bigslice"
)

// Symbol tables of an injected image.
//
// A symbol names its section by index, and sections that are inserted shift the indices behind them. Tables with
// hundreds of thousands of symbols are scanned for entries that change, which are few, and otherwise stay where they
// are. Only .symtab takes new symbols, in a copy behind the file; the dynamic symbol table is part of the memory image.

// symbolTables renumbers the sections named in every symbol table and adds the new symbols to .symtab.
func (b *tableBuilder) symbolTables() error {
	f := b.j.f
	main := -1
	if len(b.j.in.Symbols)+len(b.j.in.SymbolRuns) > 0 {
		main = f.sectionOfType(elf.SHT_SYMTAB)
	}
	seen := map[elf.SectionType]bool{}
	for i, s := range f.Sections {
		if s.Type != elf.SHT_SYMTAB && s.Type != elf.SHT_DYNSYM || s.Size == 0 {
			continue
		}
		if seen[s.Type] { // gABI: at most one of each
			return elfio.FormatErrorf(f.SectionLabel(i), s.Off, "second symbol table of type %v", s.Type)
		}
		seen[s.Type] = true
		if s.Entsize != 0 && s.Entsize != f.c.SymSize() {
			return elfio.FormatErrorf(f.SectionLabel(i), s.Off, "entries of %d bytes, want %d", s.Entsize, f.c.SymSize())
		}
		data, err := f.SectionData(i)
		if err != nil {
			return err
		}
		if data == nil {
			continue
		}
		x := slices.IndexFunc(f.Sections, func(s elfio.Section) bool {
			return s.Type == elf.SHT_SYMTAB_SHNDX && s.Link == uint32(i)
		})
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

	changed  []entryUpdate // of the table, sorted by index
	xchanged []entryUpdate // of the extended indices
}

// entryUpdate is a changed entry of a table.
type entryUpdate struct {
	index uint64
	entry []byte
}

func (t *symtabChange) change(i uint64, r raw.Sym) {
	e := make([]byte, t.b.j.f.c.SymSize())
	t.b.j.f.c.WriteSym(e, r)
	t.changed = append(t.changed, entryUpdate{i, e})
}

func (t *symtabChange) changeIndex(i uint64, v uint32) {
	t.xchanged = append(t.xchanged, entryUpdate{i, t.b.j.f.c.Order.AppendUint32(nil, v)})
}

// scan finds the entries that have to change: a section got another index, or moved.
func (t *symtabChange) scan() error {
	f := t.b.j.f
	same := make([]bool, min(len(t.b.remap), int(elf.SHN_LORESERVE)))
	all := true
	for i, n := range t.b.remap {
		is := n == uint32(i) && t.b.list[n].Addr == f.Sections[i].Addr
		if i < len(same) {
			same[i] = is
		}
		all = all && is
	}
	if all {
		return nil
	}
	size, at := f.c.SymSize(), uint64(14) // of st_shndx
	if f.c.Is64 {
		at = 6
	}
	little := f.c.Order == raw.ByteOrder(binary.LittleEndian)
	for i := uint64(1); (i+1)*size <= uint64(len(t.data)); i++ {
		if b := t.data[i*size+at:]; little && len(b) >= 2 {
			if x := int(b[0]) | int(b[1])<<8; x < len(same) && same[x] {
				continue // most symbols
			}
		}
		r := f.c.ReadSym(t.data[i*size:])
		old := uint32(r.Shndx)
		extended := elf.SectionIndex(r.Shndx) == elf.SHN_XINDEX
		if extended {
			x, ok := raw.Slice(t.shndx, i*4, 4)
			if !ok {
				return elfio.FormatErrorf(fmt.Sprintf("symbol %d of %s", i, f.SectionLabel(t.i)), f.Sections[t.i].Off+i*size,
					"section index is in an extended table that has no entry for it")
			}
			old = f.c.Order.Uint32(x)
		} else if elf.SectionIndex(r.Shndx) >= elf.SHN_LORESERVE {
			continue
		}
		if old == 0 || old >= uint32(len(t.b.remap)) {
			continue
		}
		n := t.b.remap[old]
		s, was := t.b.list[n].Section, f.Sections[old]
		update := false
		if s.Addr != was.Addr && r.Value >= was.Addr && r.Value-was.Addr <= was.Size {
			r.Value += s.Addr - was.Addr
			update = true
		}
		if n != old {
			switch {
			case extended:
				t.changeIndex(i, n)
			case n >= uint32(elf.SHN_LORESERVE):
				if _, ok := raw.Slice(t.shndx, i*4, 4); !ok {
					return elfio.FormatErrorf(f.SectionLabel(t.i), f.Sections[t.i].Off,
						"section index %#x of symbol %d needs an extended index table, which the image lacks", n, i)
				}
				r.Shndx = uint16(elf.SHN_XINDEX)
				t.changeIndex(i, n)
				update = true
			default:
				r.Shndx = uint16(n)
				update = true
			}
		}
		if update {
			t.change(i, r)
		}
	}
	return nil
}

// inPlace overwrites the entries where they are, which for a section that moved is in RX.
func (t *symtabChange) inPlace() {
	for _, u := range t.changed {
		t.b.overwrite(t.i, u.index*uint64(len(u.entry)), u.entry)
	}
	for _, u := range t.xchanged {
		t.b.overwrite(t.xi, u.index*uint64(len(u.entry)), u.entry)
	}
}

// overwrite changes contents of a section of the image.
func (b *tableBuilder) overwrite(section int, off uint64, e []byte) {
	j := b.j
	for _, m := range j.in.Moved {
		if m.Section == section {
			copy(j.ownedRX()[m.Addr-j.plan.RX+off:], e)
			return
		}
	}
	j.extra = append(j.extra, elfio.RawEdit{Off: j.f.Sections[section].Off + off, New: e})
}

// extend writes a copy of the table with the new symbols to the tail.
func (t *symtabChange) extend() error {
	b, j, f := t.b, t.b.j, t.b.j.f
	size := f.c.SymSize()
	old := f.Sections[t.i]
	if old.Flags&elf.SHF_ALLOC != 0 {
		return elfio.FormatErrorf(f.SectionLabel(t.i), old.Off, "is part of the memory image, so no symbol can be added")
	}
	names, err := b.grow(old.Link)
	if err != nil {
		return err
	}
	n := uint64(len(t.data)) / size
	if uint64(old.Info) > n {
		return elfio.FormatErrorf(f.SectionLabel(t.i), old.Off, "%d of %d symbols are local", old.Info, n)
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
	added := addedSymbols{size: size, extended: t.xi >= 0, fixed: fixed}
	if err := added.all(b, names); err != nil {
		return err
	}
	split := uint64(old.Info)
	s := &b.list[b.remap[t.i]]
	s.Off = j.tail.align(8)
	j.tail.edited(t.data[:n*size], 0, split*size, size, t.changed)
	j.tail.put(added.local)
	j.tail.edited(t.data[:n*size], split*size, n*size, size, t.changed)
	j.tail.put(added.global)
	s.Size = j.tail.at() - s.Off
	s.Info += uint32(uint64(len(added.local)) / size)
	if t.xi >= 0 {
		xdata := make([]byte, n*4)
		copy(xdata, t.shndx)
		x := &b.list[b.remap[t.xi]]
		x.Off = j.tail.align(4)
		j.tail.edited(xdata, 0, split*4, 4, t.xchanged)
		j.tail.put(added.xlocal)
		j.tail.edited(xdata, split*4, n*4, 4, t.xchanged)
		j.tail.put(added.xglobal)
		x.Size = j.tail.at() - x.Off
	}
	return nil
}

// all encodes the injection's symbols, and adds their names to the string table.
func (added *addedSymbols) all(b *tableBuilder, names *grownTable) error {
	j, f := b.j, b.j.f
	room := 0
	for i := range j.in.SymbolRuns {
		added.n += j.in.SymbolRuns[i].N
		room += j.in.SymbolRuns[i].NameBytes
	}
	added.n += len(j.in.Symbols)
	for i := range j.in.Symbols {
		room += len(j.in.Symbols[i].Name) + 1
	}
	names.extra = append(bigslice.Make[byte](0, len(names.extra)+room), names.extra...)
	for i := range j.in.SymbolRuns {
		r := &j.in.SymbolRuns[i]
		sec := b.section(r.Section)
		if sec < 0 {
			return fmt.Errorf("symbols %s...: no section %s", r.Prefix, r.Section)
		}
		a := Symbol{Size: r.Size, Info: r.Info}
		for name, value := range r.All {
			a.Value = value
			if err := added.add(f, &a, sec, names.append(r.Prefix, name)); err != nil {
				return fmt.Errorf("symbol %s%s: %w", r.Prefix, name, err)
			}
		}
	}
	for i := range j.in.Symbols {
		a := &j.in.Symbols[i]
		sec, err := b.symbolSection(*a)
		if err != nil {
			return err
		}
		if err := added.add(f, a, sec, names.append("", a.Name)); err != nil {
			return fmt.Errorf("symbol %s: %w", a.Name, err)
		}
	}
	return nil
}

// addedSymbols are symbols to add, encoded.
type addedSymbols struct {
	n               int    // how many there will be
	size            uint64 // of an entry
	extended        bool   // there is a table of extended section indices
	fixed           bool   // no local symbol can be added
	local, global   []byte
	xlocal, xglobal []byte // the extended indices
}

// add encodes one more. sec is the index of its section, -1 for SHN_ABS, name the offset of its name.
func (t *addedSymbols) add(f *image, a *Symbol, sec int, name uint32) error {
	if !f.c.Fits(a.Value) || !f.c.Fits(a.Size) {
		return fmt.Errorf("value %#x or size %#x does not fit the file's class", a.Value, a.Size)
	}
	r := raw.Sym{Name: name, Info: a.Info, Other: a.Other, Value: a.Value, Size: a.Size}
	x := uint32(0)
	switch {
	case sec < 0:
		r.Shndx = uint16(elf.SHN_ABS)
	case sec >= int(elf.SHN_LORESERVE):
		if !t.extended {
			return fmt.Errorf("section index %#x needs an extended index table, which the image lacks", sec)
		}
		r.Shndx, x = uint16(elf.SHN_XINDEX), uint32(sec)
	default:
		r.Shndx = uint16(sec)
	}
	to, xto := &t.local, &t.xlocal
	if elf.ST_BIND(a.Info) != elf.STB_LOCAL {
		to, xto = &t.global, &t.xglobal
	} else if t.fixed {
		to, xto = &t.global, &t.xglobal
		r.Info = elf.ST_INFO(elf.STB_GLOBAL, elf.ST_TYPE(a.Info))
		r.Other = byte(elf.STV_HIDDEN)
	}
	b := *to
	if b == nil {
		b = bigslice.Make[byte](0, t.n*int(t.size)) // usually all of them are of one kind
	}
	at := uint64(len(b))
	b = slices.Grow(b, int(t.size))[:at+t.size]
	f.c.WriteSym(b[at:], r)
	*to = b
	if t.extended {
		*xto = f.c.Order.AppendUint32(*xto, x)
	}
	return nil
}

// symbolSection returns the new index of the section a symbol is defined in, -1 for SHN_ABS.
func (b *tableBuilder) symbolSection(a Symbol) (int, error) {
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
