package object

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"slices"
	"sort"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// Local symbols come before all global ones (gABI, "Symbol Table"), so one more shifts the index of every global
// symbol, and relocations, groups and sections of LLVM's refer to symbols by index. All of them are rewritten in one
// pass; relocation sections in place, as their size stays. A section of an unknown type that is linked to the symbol
// table might hold indices, too: the object is refused then, rather than linked to something else.

// Section types of LLVM that hold symbol indices (LLVM, "Extensions": SHT_LLVM_ADDRSIG, SHT_LLVM_CALL_GRAPH_PROFILE).
const (
	shtLLVMAddrsig     = elf.SectionType(0x6fff4c03)
	shtLLVMCallGraph   = elf.SectionType(0x6fff4c02) // {u32 from, to; u64 weight}; later versions use relocations
	shtLLVMCallGraph09 = elf.SectionType(0x6fff4c09)
)

// insertSymbols adds the local symbols and moves the indices of the symbols behind them.
func (e *extender) insertSymbols() error {
	f, c := e.f, e.c
	t, err := f.SymbolTable(e.a.Symtab)
	if err != nil {
		return err
	}
	first, k := f.Sections[t.Section].Info, uint32(len(e.a.Locals))
	if first == 0 || uint64(first) > uint64(t.Len()) {
		return elfio.FormatErrorf(f.SectionLabel(t.Section), f.Sections[t.Section].Off,
			"sh_info says %d local symbols of %d", first, t.Len())
	}
	if !c.Is64 && uint64(t.Len())+uint64(k) >= 1<<24 {
		return elfio.FormatErrorf(f.SectionLabel(t.Section), f.Sections[t.Section].Off,
			"no room for %d more symbols in the relocations of a 32-bit file", k)
	}
	size := c.SymSize()
	at, old := uint64(first)*size, t.Bytes()
	ins := make([]byte, uint64(k)*size)
	var strs []byte
	nameAt := map[string]uint32{"": 0}
	extended := false
	for i, l := range e.a.Locals {
		name, ok := nameAt[l.Name]
		if !ok {
			name = uint32(len(t.Strings()) + len(strs))
			nameAt[l.Name] = name
			strs = append(append(strs, l.Name...), 0)
		}
		r := raw.Sym{Name: name, Info: elf.ST_INFO(elf.STB_LOCAL, l.Type), Value: l.Value, Shndx: uint16(l.Section)}
		if l.Section >= uint32(elf.SHN_LORESERVE) {
			r.Shndx = uint16(elf.SHN_XINDEX)
			extended = true
		}
		c.WriteSym(ins[uint64(i)*size:], r)
	}
	e.grown = append(e.grown, grownSection{header: t.Section, pre: old[:at], ins: ins, post: old[at:]})
	e.header(t.Section).Info += k
	switch {
	case len(strs) == 0:
	case f.Sections[t.Section].Link == f.Header.Shstrndx: // clang makes one table of all names
		e.names = strs
	default:
		e.grown = append(e.grown, grownSection{header: int(f.Sections[t.Section].Link), pre: t.Strings(), ins: strs})
	}
	if err := e.insertIndices(t, int(first), extended); err != nil {
		return err
	}
	e.inner, e.edits = e.edits, nil
	slices.SortStableFunc(e.inner, func(a, b elfio.RawEdit) int { return cmp.Compare(a.Off, b.Off) })
	var relocs []int // by offset, which nearly always is their order
	for i := range f.Sections {
		if s := &f.Sections[i]; s.Link == uint32(t.Section) && (s.Type == elf.SHT_REL || s.Type == elf.SHT_RELA) &&
			s.Size > 0 {
			relocs = append(relocs, i)
		}
	}
	slices.SortStableFunc(relocs, func(a, b int) int { return cmp.Compare(f.Sections[a].Off, f.Sections[b].Off) })
	total, end := uint64(0), uint64(0)
	for _, i := range relocs {
		s := &f.Sections[i]
		if _, ok := raw.Slice(f.Raw(), s.Off, s.Size); !ok || s.Off < end {
			return elfio.FormatErrorf(f.SectionLabel(i), s.Off, "relocation sections overlap or end outside the file")
		}
		total, end = total+s.Size, s.Off+s.Size
	}
	e.moved, e.symbols = make([]byte, 0, total), uint32(t.Len())
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
func (e *extender) insertIndices(t *elfio.SymbolTable, first int, extended bool) error {
	f, c := e.f, e.c
	x := t.Extended
	if x < 0 && !extended {
		return nil
	}
	var ins []byte
	for _, l := range e.a.Locals {
		v := uint32(0)
		if l.Section >= uint32(elf.SHN_LORESERVE) {
			v = l.Section
		}
		ins = c.Order.AppendUint32(ins, v)
	}
	if x >= 0 {
		indices, err := f.SectionData(x)
		if err != nil {
			return err
		}
		if len(indices) != 4*t.Len() {
			return elfio.FormatErrorf(f.SectionLabel(x), f.Sections[x].Off, "%d bytes for %d symbols", len(indices), t.Len())
		}
		e.grown = append(e.grown, grownSection{header: x, pre: indices[:4*first], ins: ins, post: indices[4*first:]})
		return nil
	}
	data := make([]byte, 4*first, 4*(t.Len()+len(e.a.Locals)))
	data = append(append(data, ins...), make([]byte, 4*(t.Len()-first))...)
	e.a.Sections = append(e.a.Sections[:len(e.a.Sections):len(e.a.Sections)], Section{
		Name: ".symtab_shndx", Type: elf.SHT_SYMTAB_SHNDX, Link: uint32(t.Section), Addralign: 4, Entsize: 4, Data: data,
	})
	return nil
}

// renumber rewrites section i, which refers to symbols by index: those from first on move up by k.
func (e *extender) renumber(i int, first, k uint32) error {
	f, c := e.f, e.c
	s := &f.Sections[i]
	switch s.Type {
	case elf.SHT_REL, elf.SHT_RELA:
		var t elfio.RelocTable
		if err := t.Open(f, i); err != nil {
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
				return elfio.FormatErrorf(f.SectionLabel(i), s.Off+uint64(at), "malformed symbol index")
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
			return elfio.FormatErrorf(f.SectionLabel(i), s.Off, "%#x bytes are not whole entries of 16", len(data))
		}
		out := append([]byte(nil), data...)
		for at := 0; at < len(out); at += 16 {
			for _, p := range [][]byte{out[at:], out[at+4:]} {
				if v := c.Order.Uint32(p); v >= first {
					c.Order.PutUint32(p, v+k)
				}
			}
		}
		e.grown = append(e.grown, grownSection{header: i, pre: out})
	default:
		return elfio.FormatErrorf(f.SectionLabel(i), s.Off,
			"a section of type %v may refer to symbols in a way that is not known", s.Type)
	}
	return nil
}

// renumberRelocs rewrites a relocation section in place. Edits of single entries that are wanted already are applied
// on the way, so that edits do not overlap.
func (e *extender) renumberRelocs(t *elfio.RelocTable, first, k uint32) error {
	off := t.FileOff(0)
	start := len(e.moved)
	e.moved = append(e.moved, t.Bytes()...)
	out := e.moved[start:]
	wanted := false
	i := sort.Search(len(e.inner), func(i int) bool { return e.inner[i].Off >= off })
	for ; i < len(e.inner) && e.inner[i].Off-off < uint64(len(out)); i++ {
		copy(out[e.inner[i].Off-off:], e.inner[i].New)
		wanted = wanted || len(e.inner[i].New) > 0
		e.inner[i].New = nil
	}
	changed, err := t.ShiftSymbols(out, first, e.symbols, k)
	if err != nil {
		return err
	}
	if changed || wanted {
		// One edit for sections that follow each other in the file, as there may be one a function.
		if n := len(e.edits) - 1; n >= 0 && e.edits[n].Off+uint64(len(e.edits[n].New)) == off {
			e.edits[n].New = e.moved[start-len(e.edits[n].New):]
		} else {
			e.edits = append(e.edits, elfio.RawEdit{Off: off, New: out})
		}
	} else {
		e.moved = e.moved[:start]
	}
	return nil
}

// UnshiftSymbols returns the contents of relocation section i as they were before Extend inserted k symbols at index
// first.
func UnshiftSymbols(f *elfio.File, i int, first, k uint32) ([]byte, error) {
	t, err := f.RelocTable(i)
	if err != nil {
		return nil, err
	}
	out := append([]byte(nil), t.Bytes()...)
	if _, err := t.ShiftSymbols(out, first+k, ^uint32(0), -k); err != nil {
		return nil, err
	}
	return out, nil
}
