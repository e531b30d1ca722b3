package elfio

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/fentry-dev/fentry/elfio/internal/raw"
	"github.com/fentry-dev/fentry/internal/bigslice"
)

// Symbol is a symbol table entry.
type Symbol struct {
	Name  string
	Value uint64
	Size  uint64
	Info  byte // st_info: type and binding
	Other byte // st_other: visibility
	// Section is the section header index with SHN_XINDEX resolved, or a reserved value such as SHN_ABS (0xfff1). In
	// a file with 0xff00 or more sections, Shndx tells the two apart.
	Section uint32
	Shndx   uint16 // st_shndx as stored
	Version uint16 // of a dynamic symbol: its entry in .gnu.version, 0 if there is none
	Index   uint32 // index in its table
}

// Type returns the symbol's type, such as elf.STT_FUNC.
func (s Symbol) Type() elf.SymType { return elf.ST_TYPE(s.Info) }

// Bind returns the symbol's binding, such as elf.STB_GLOBAL.
func (s Symbol) Bind() elf.SymBind { return elf.ST_BIND(s.Info) }

// Defined reports whether the symbol has a section or an absolute or common value.
func (s Symbol) Defined() bool { return elf.SectionIndex(s.Shndx) != elf.SHN_UNDEF }

// Reserved reports whether Section is one of the reserved values from SHN_LORESERVE on.
func (s Symbol) Reserved() bool {
	return elf.SectionIndex(s.Shndx) >= elf.SHN_LORESERVE && elf.SectionIndex(s.Shndx) != elf.SHN_XINDEX
}

// Superseded reports whether a dynamic symbol is of a version that is not the default one of its name: it is kept for what
// was linked before, and nothing new can be linked with it. Of symbols of .symtab the names tell (name@VERSION).
func (s Symbol) Superseded() bool { return s.Version&versionHidden != 0 }

const versionHidden = 0x8000 // VERSYM_HIDDEN (LSB, "Symbol Version Table")

// Symbols returns the symbols of the first SHT_SYMTAB section, or nil if there is none. The null symbol is left out,
// so entry i has Index i+1.
func (f *File) Symbols() ([]Symbol, error) {
	i := f.sectionOfType(elf.SHT_SYMTAB)
	if i < 0 {
		return nil, nil
	}
	return f.sectionSymbols(i)
}

// DynamicSymbols returns the symbols of the dynamic symbol table, or nil if there is none. It is found by its section
// or, where section headers are stripped, through PT_DYNAMIC. The null symbol is left out.
func (f *File) DynamicSymbols() ([]Symbol, error) {
	t, versions, err := f.dynamicTable()
	if err != nil || t == nil {
		return nil, err
	}
	syms, err := f.symbols(*t)
	if err == nil {
		f.addVersions(syms, versions)
	}
	return syms, err
}

// HasDynamicSymbol reports whether the dynamic symbol table has a symbol with one of some names, defined or not. Where it
// has none, as a rule, no symbol is decoded.
func (f *File) HasDynamicSymbol(names ...string) (bool, error) {
	t, _, err := f.dynamicTable()
	if err != nil || t == nil || !slices.ContainsFunc(names, t.mayName) {
		return false, err
	}
	syms, err := f.symbols(*t)
	return slices.ContainsFunc(syms, func(s Symbol) bool { return slices.Contains(names, s.Name) }), err
}

// dynamicTable is the dynamic symbol table, and the versions of its symbols; nil: there is none.
func (f *File) dynamicTable() (t *symbolTable, versions []byte, err error) {
	if i := f.sectionOfType(elf.SHT_DYNSYM); i >= 0 {
		if v := f.sectionOfType(elf.SHT_GNU_VERSYM); v >= 0 {
			versions, _ = f.SectionData(v)
		}
		t, err = f.sectionTable(i)
		return t, versions, err
	}
	d, err := f.dynamicInfo()
	if err != nil || d == nil || d.symtab == 0 {
		return nil, nil, err
	}
	n, err := f.dynsymCount(d)
	if err != nil || n == 0 {
		return nil, nil, err
	}
	table, off := f.From(d.symtab)
	if n*f.c.SymSize() > uint64(len(table)) {
		return nil, nil, FormatErrorf("dynamic symbol table", off, "%d symbols end outside its segment", n)
	}
	strs, stroff := f.From(d.strtab)
	if d.strsz > uint64(len(strs)) {
		return nil, nil, FormatErrorf("dynamic string table", stroff, "%#x bytes end outside its segment", d.strsz)
	}
	if d.versym != 0 {
		versions, _ = f.From(d.versym)
	}
	return &symbolTable{what: "dynamic symbol table", off: off, data: table[:n*f.c.SymSize()], strs: strs[:d.strsz]},
		versions, nil
}

// addVersions sets the versions of dynamic symbols, as far as the table goes.
func (f *File) addVersions(syms []Symbol, versions []byte) {
	for i := range syms {
		b, ok := raw.Slice(versions, 2*uint64(syms[i].Index), 2)
		if !ok {
			return
		}
		syms[i].Version = f.c.Order.Uint16(b)
	}
}

// symbolTable is a symbol table with the tables it needs.
type symbolTable struct {
	what  string
	off   uint64
	data  []byte
	strs  []byte // its names, each with a NUL behind it
	shndx []byte // SHT_SYMTAB_SHNDX, nil when there is none
}

// mayName is false of what is no symbol's name.
func (t *symbolTable) mayName(name string) bool {
	return bytes.Contains(t.strs, append([]byte(name), 0))
}

func (f *File) sectionSymbols(i int) ([]Symbol, error) {
	t, err := f.sectionTable(i)
	if err != nil || t == nil {
		return nil, err
	}
	return f.symbols(*t)
}

// sectionTable is the symbol table in a section; nil: it is not in the file.
func (f *File) sectionTable(i int) (*symbolTable, error) {
	s := &f.Sections[i]
	if s.Type == elf.SHT_NOBITS {
		return nil, nil
	}
	if s.Entsize != 0 && s.Entsize != f.c.SymSize() {
		return nil, FormatErrorf(f.SectionLabel(i), s.Off, "entries of %d bytes, want %d", s.Entsize, f.c.SymSize())
	}
	data, err := f.SectionData(i)
	if err != nil {
		return nil, err
	}
	if s.Link >= uint32(len(f.Sections)) {
		return nil, FormatErrorf(f.SectionLabel(i), s.Off, "string table is section %d of %d", s.Link, len(f.Sections))
	}
	strs, err := f.SectionData(int(s.Link))
	if err != nil {
		return nil, err
	}
	t := &symbolTable{what: f.SectionLabel(i), off: s.Off, data: data, strs: strs}
	if x := f.extendedIndices(i); x >= 0 {
		if t.shndx, err = f.SectionData(x); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (f *File) symbols(t symbolTable) ([]Symbol, error) {
	size := f.c.SymSize()
	n := uint64(len(t.data)) / size
	if n <= 1 {
		return nil, nil
	}
	out := bigslice.Make[Symbol](int(n-1), int(n-1))
	names := newStringTable(t.strs)
	plain := f.c.Is64 && f.c.Order == raw.ByteOrder(binary.LittleEndian)
	for i := uint64(1); i < n; i++ {
		var r raw.Sym
		if plain {
			b := t.data[i*24 : i*24+24]
			r = raw.Sym{
				Name: binary.LittleEndian.Uint32(b), Info: b[4], Other: b[5], Shndx: binary.LittleEndian.Uint16(b[6:]),
				Value: binary.LittleEndian.Uint64(b[8:]), Size: binary.LittleEndian.Uint64(b[16:]),
			}
		} else {
			r = f.c.ReadSym(t.data[i*size:])
		}
		name, ok := names.at(uint64(r.Name))
		if !ok {
			return nil, FormatErrorf(fmt.Sprintf("symbol %d of %s", i, t.what), t.off+i*size,
				"name at %#x of a table of %d bytes", r.Name, len(t.strs))
		}
		sec := uint32(r.Shndx)
		if elf.SectionIndex(r.Shndx) == elf.SHN_XINDEX {
			x, ok := raw.Slice(t.shndx, i*4, 4)
			if !ok {
				return nil, FormatErrorf(fmt.Sprintf("symbol %d of %s", i, t.what), t.off+i*size,
					"section index is in an extended table that has no entry for it")
			}
			sec = f.c.Order.Uint32(x)
		}
		out[i-1] = Symbol{Name: name, Value: r.Value, Size: r.Size, Info: r.Info, Other: r.Other, Section: sec,
			Shndx: r.Shndx, Index: uint32(i)}
	}
	return out, nil
}

// SymbolTable reads a symbol table in place. Unlike File.Symbols it decodes entries on demand, so looking at a few of
// a million symbols costs no memory. Index 0 is the null symbol, as in the file.
type SymbolTable struct {
	Section int // index of its section header
	// Extended is the index of the SHT_SYMTAB_SHNDX section that holds its section indices of 0xff00 and more, -1 if
	// none.
	Extended int

	f     *File
	data  []byte
	strs  []byte
	shndx []byte
	size  uint64
}

// SymbolTable opens section i, which must be a symbol table.
func (f *File) SymbolTable(i int) (*SymbolTable, error) {
	if i <= 0 || i >= len(f.Sections) {
		return nil, FormatErrorf("section header table", f.Header.Shoff, "no section %d of %d", i, len(f.Sections))
	}
	s := &f.Sections[i]
	if s.Type != elf.SHT_SYMTAB && s.Type != elf.SHT_DYNSYM {
		return nil, FormatErrorf(f.SectionLabel(i), s.Off, "%v is no symbol table", s.Type)
	}
	if s.Entsize != f.c.SymSize() {
		return nil, FormatErrorf(f.SectionLabel(i), s.Off, "entries of %d bytes, want %d", s.Entsize, f.c.SymSize())
	}
	data, err := f.SectionData(i)
	if err != nil {
		return nil, err
	}
	if uint64(len(data))%s.Entsize != 0 {
		return nil, FormatErrorf(f.SectionLabel(i), s.Off, "%#x bytes are not whole entries of %d", len(data), s.Entsize)
	}
	if s.Link == 0 || s.Link >= uint32(len(f.Sections)) || f.Sections[s.Link].Type != elf.SHT_STRTAB {
		return nil, FormatErrorf(f.SectionLabel(i), s.Off, "sh_link %d names no string table", s.Link)
	}
	strs, err := f.SectionData(int(s.Link))
	if err != nil {
		return nil, err
	}
	t := &SymbolTable{Section: i, Extended: f.extendedIndices(i), f: f, data: data, strs: strs, size: s.Entsize}
	if x := t.Extended; x >= 0 {
		if t.shndx, err = f.SectionData(x); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// extendedIndices returns the index of the SHT_SYMTAB_SHNDX section of symbol table i, -1 when it has none.
func (f *File) extendedIndices(i int) int {
	for k := range f.Sections {
		if f.Sections[k].Type == elf.SHT_SYMTAB_SHNDX && f.Sections[k].Link == uint32(i) {
			return k
		}
	}
	return -1
}

// Len returns the number of entries, including the null symbol.
func (t *SymbolTable) Len() int { return int(uint64(len(t.data)) / t.size) }

// NameOff returns st_name of entry i.
func (t *SymbolTable) NameOff(i int) uint32 { return t.f.c.Order.Uint32(t.data[uint64(i)*t.size:]) }

// Bytes returns all entries as stored, as a sub-slice of the file.
func (t *SymbolTable) Bytes() []byte { return t.data }

// Strings returns the string table that holds the names.
func (t *SymbolTable) Strings() []byte { return t.strs }

// Name returns the name of entry i as a sub-slice of the file, or nil if it is outside the string table.
func (t *SymbolTable) Name(i int) []byte {
	off := uint64(t.NameOff(i))
	if off >= uint64(len(t.strs)) {
		return nil
	}
	return raw.CString(t.strs[off:])
}

// At returns entry i without its name. A section index that is missing from the extended table is returned as
// SHN_XINDEX.
func (t *SymbolTable) At(i int) Symbol {
	r := t.f.c.ReadSym(t.data[uint64(i)*t.size:])
	s := Symbol{Value: r.Value, Size: r.Size, Info: r.Info, Other: r.Other, Section: uint32(r.Shndx), Shndx: r.Shndx,
		Index: uint32(i)}
	if elf.SectionIndex(r.Shndx) == elf.SHN_XINDEX {
		if x, ok := raw.Slice(t.shndx, uint64(i)*4, 4); ok {
			s.Section = t.f.c.Order.Uint32(x)
		}
	}
	return s
}

// Info returns st_info of entry i.
func (t *SymbolTable) Info(i int) byte {
	if t.f.c.Is64 {
		return t.data[uint64(i)*t.size+4]
	}
	return t.data[uint64(i)*t.size+12]
}

// SectionOf returns the index of the section that entry i is defined in, or 0 for an undefined, absolute or common
// symbol.
func (t *SymbolTable) SectionOf(i int) uint32 {
	at := uint64(i)*t.size + 14
	if t.f.c.Is64 {
		at = uint64(i)*t.size + 6
	}
	x := elf.SectionIndex(t.f.c.Order.Uint16(t.data[at:]))
	switch {
	case x < elf.SHN_LORESERVE:
		return uint32(x)
	case x == elf.SHN_XINDEX:
		if b, ok := raw.Slice(t.shndx, uint64(i)*4, 4); ok {
			return t.f.c.Order.Uint32(b)
		}
	}
	return 0
}
