package elfio

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"slices"
	"sort"
)

// Section types of LLVM that hold symbol indices (LLVM, "Extensions": SHT_LLVM_ADDRSIG, SHT_LLVM_CALL_GRAPH_PROFILE).
const (
	shtLLVMAddrsig     = elf.SectionType(0x6fff4c03)
	shtLLVMCallGraph   = elf.SectionType(0x6fff4c02) // {u32 from, to; u64 weight}; later versions use relocations
	shtLLVMCallGraph09 = elf.SectionType(0x6fff4c09)
	shtCrel            = elf.SectionType(0x40000014) // LLVM, compact relocations
)

// insertSymbols adds the local symbols and moves the indices of the symbols behind them.
func (e *extender) insertSymbols() error {
	f, c := e.f, e.f.c
	t, err := f.SymbolTable(e.a.Symtab)
	if err != nil {
		return err
	}
	first, k := f.Sections[t.Section].Info, uint32(len(e.a.Locals))
	if first == 0 || uint64(first) > uint64(t.Len()) {
		return formatErr(f.sectionLabel(t.Section), f.Sections[t.Section].Off, "sh_info says %d local symbols of %d", first, t.Len())
	}
	if !c.is64 && uint64(t.Len())+uint64(k) >= 1<<24 {
		return formatErr(f.sectionLabel(t.Section), f.Sections[t.Section].Off, "no room for %d more symbols in the relocations of a 32-bit file", k)
	}
	at := uint64(first) * t.size
	ins := make([]byte, uint64(k)*t.size)
	var strs []byte
	nameAt := map[string]uint32{"": 0}
	extended := false
	for i, l := range e.a.Locals {
		name, ok := nameAt[l.Name]
		if !ok {
			name = uint32(len(t.strs) + len(strs))
			nameAt[l.Name] = name
			strs = append(append(strs, l.Name...), 0)
		}
		r := rawSym{name: name, info: elf.ST_INFO(elf.STB_LOCAL, l.Type), value: l.Value, shndx: uint16(l.Section)}
		if l.Section >= uint32(elf.SHN_LORESERVE) {
			r.shndx = uint16(elf.SHN_XINDEX)
			extended = true
		}
		c.writeSym(ins[uint64(i)*t.size:], r)
	}
	e.grown = append(e.grown, grownSection{header: t.Section, pre: t.data[:at], ins: ins, post: t.data[at:]})
	e.header(t.Section).Info += k
	switch {
	case len(strs) == 0:
	case f.Sections[t.Section].Link == f.Header.Shstrndx: // clang makes one table of all names
		e.names = strs
	default:
		e.grown = append(e.grown, grownSection{header: int(f.Sections[t.Section].Link), pre: t.strs, ins: strs})
	}
	if err := e.insertIndices(t, int(first), extended); err != nil {
		return err
	}
	e.inner, e.edits = e.edits, nil
	slices.SortStableFunc(e.inner, func(a, b RawEdit) int { return cmp.Compare(a.Off, b.Off) })
	var relocs []int // by offset, which nearly always is their order
	for i := range f.Sections {
		if s := &f.Sections[i]; s.Link == uint32(t.Section) && (s.Type == elf.SHT_REL || s.Type == elf.SHT_RELA) && s.Size > 0 {
			relocs = append(relocs, i)
		}
	}
	slices.SortStableFunc(relocs, func(a, b int) int { return cmp.Compare(f.Sections[a].Off, f.Sections[b].Off) })
	size, end := uint64(0), uint64(0)
	for _, i := range relocs {
		s := &f.Sections[i]
		if _, ok := slice(f.raw, s.Off, s.Size); !ok || s.Off < end {
			return formatErr(f.sectionLabel(i), s.Off, "relocation sections overlap or end outside the file")
		}
		size, end = size+s.Size, s.Off+s.Size
	}
	e.moved, e.symbols = make([]byte, 0, size), uint32(t.Len())
	for i := range f.Sections {
		if f.Sections[i].Link == uint32(t.Section) {
			if err := e.renumber(i, first, k); err != nil {
				return err
			}
		}
	}
	for _, ed := range e.inner {
		if ed.New != nil {
			e.edits = append(e.edits, ed)
		}
	}
	return nil
}

// insertIndices keeps SHT_SYMTAB_SHNDX parallel to the symbol table, and makes one where the first symbol needs it.
func (e *extender) insertIndices(t *SymbolTable, first int, extended bool) error {
	f, c := e.f, e.f.c
	x := f.extendedIndices(t.Section)
	if x < 0 && !extended {
		return nil
	}
	var ins []byte
	for _, l := range e.a.Locals {
		v := uint32(0)
		if l.Section >= uint32(elf.SHN_LORESERVE) {
			v = l.Section
		}
		ins = c.order.AppendUint32(ins, v)
	}
	if x >= 0 {
		if len(t.shndx) != 4*t.Len() {
			return formatErr(f.sectionLabel(x), f.Sections[x].Off, "%d bytes for %d symbols", len(t.shndx), t.Len())
		}
		e.grown = append(e.grown, grownSection{header: x, pre: t.shndx[:4*first], ins: ins, post: t.shndx[4*first:]})
		return nil
	}
	data := make([]byte, 4*first, 4*(t.Len()+len(e.a.Locals)))
	data = append(append(data, ins...), make([]byte, 4*(t.Len()-first))...)
	e.a.Sections = append(e.a.Sections[:len(e.a.Sections):len(e.a.Sections)], ObjectSection{
		Name: ".symtab_shndx", Type: elf.SHT_SYMTAB_SHNDX, Link: uint32(t.Section), Addralign: 4, Entsize: 4, Data: data,
	})
	return nil
}

// renumber rewrites section i, which refers to symbols by index: those from first on move up by k.
func (e *extender) renumber(i int, first, k uint32) error {
	f, c := e.f, e.f.c
	s := &f.Sections[i]
	switch s.Type {
	case elf.SHT_REL, elf.SHT_RELA:
		var t RelocTable
		if err := f.openRelocs(i, &t); err != nil {
			return err
		}
		return e.renumberRelocs(&t, first, k)
	case elf.SHT_GROUP:
		if s.Info >= first {
			e.header(i).Info += k
		}
	case elf.SHT_SYMTAB_SHNDX, shtLLVMCallGraph09:
	case shtLLVMAddrsig:
		data, err := f.SectionData(i)
		if err != nil {
			return err
		}
		var out []byte
		for at := 0; at < len(data); {
			v, n := binary.Uvarint(data[at:])
			if n <= 0 {
				return formatErr(f.sectionLabel(i), s.Off+uint64(at), "malformed symbol index")
			}
			if v >= uint64(first) {
				v += uint64(k)
			}
			out = binary.AppendUvarint(out, v)
			at += n
		}
		e.grown = append(e.grown, grownSection{header: i, pre: out})
	case shtLLVMCallGraph:
		data, err := f.SectionData(i)
		if err != nil {
			return err
		}
		if len(data)%16 != 0 {
			return formatErr(f.sectionLabel(i), s.Off, "%#x bytes are not whole entries of 16", len(data))
		}
		out := append([]byte(nil), data...)
		for at := 0; at < len(out); at += 16 {
			for _, p := range [][]byte{out[at:], out[at+4:]} {
				if v := c.order.Uint32(p); v >= first {
					c.order.PutUint32(p, v+k)
				}
			}
		}
		e.grown = append(e.grown, grownSection{header: i, pre: out})
	default:
		return formatErr(f.sectionLabel(i), s.Off, "a section of type %v may refer to symbols in a way that is not known", s.Type)
	}
	return nil
}

// renumberRelocs rewrites a relocation section in place. Edits of single entries that are wanted already are applied
// on the way, so that edits do not overlap.
func (e *extender) renumberRelocs(t *RelocTable, first, k uint32) error {
	off := t.FileOff(0)
	start := len(e.moved)
	e.moved = append(e.moved, t.data...)
	out := e.moved[start:]
	wanted := false
	i := sort.Search(len(e.inner), func(i int) bool { return e.inner[i].Off >= off })
	for ; i < len(e.inner) && e.inner[i].Off-off < uint64(len(out)); i++ {
		copy(out[e.inner[i].Off-off:], e.inner[i].New)
		wanted = wanted || len(e.inner[i].New) > 0
		e.inner[i].New = nil
	}
	changed, err := shiftSymbols(t, out, first, e.symbols, k)
	if err != nil {
		return err
	}
	if changed || wanted {
		// One edit for sections that follow each other in the file, as there may be one a function.
		if n := len(e.edits) - 1; n >= 0 && e.edits[n].Off+uint64(len(e.edits[n].New)) == off {
			e.edits[n].New = e.moved[start-len(e.edits[n].New):]
		} else {
			e.edits = append(e.edits, RawEdit{off, out})
		}
	} else {
		e.moved = e.moved[:start]
	}
	return nil
}

// shiftSymbols adds k to the symbol indices from first on in the entries of b, which has the form of t and refers to n
// symbols. With the two's complement of k it undoes that.
func shiftSymbols(t *RelocTable, b []byte, first, n, k uint32) (changed bool, err error) {
	c := t.f.c
	for at := uint64(0); at+t.size <= uint64(len(b)); at += t.size {
		r := c.readReloc(b[at:], t.Rela, t.mips)
		if r.Sym >= n {
			return changed, formatErr(t.f.sectionLabel(t.Section), t.FileOff(0)+at, "symbol %d of %d", r.Sym, n)
		}
		if r.Sym >= first {
			r.Sym += k
			c.writeReloc(b[at:], r, t.Rela, t.mips)
			changed = true
		}
	}
	return changed, nil
}

// UnshiftSymbols returns the contents of relocation section i as they were before Extend inserted k symbols at index
// first.
func (f *File) UnshiftSymbols(i int, first, k uint32) ([]byte, error) {
	t, err := f.RelocTable(i)
	if err != nil {
		return nil, err
	}
	out := append([]byte(nil), t.data...)
	if _, err := shiftSymbols(t, out, first+k, ^uint32(0), -k); err != nil {
		return nil, err
	}
	return out, nil
}
