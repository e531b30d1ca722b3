package elfio

import (
	"debug/elf"
	"encoding/binary"
	"fmt"

	"github.com/fentry-dev/fentry/internal/bigslice"
)

// Symbol is a symbol table entry.
type Symbol struct {
	Name  string
	Value uint64
	Size  uint64
	Info  byte // st_info: type and binding
	Other byte // st_other: visibility
	// Section is the section header index with SHN_XINDEX resolved, or a reserved value such as
	// SHN_ABS (0xfff1). Shndx tells the two apart where a file has 0xff00 or more sections.
	Section uint32
	Shndx   uint16 // st_shndx as stored
	Index   uint32 // index in its table
}

// Type returns the symbol's type, such as elf.STT_FUNC.
func (s Symbol) Type() elf.SymType { return elf.ST_TYPE(s.Info) }

// Bind returns the symbol's binding, such as elf.STB_GLOBAL.
func (s Symbol) Bind() elf.SymBind { return elf.ST_BIND(s.Info) }

// Defined reports whether the symbol has a section or an absolute or common value.
func (s Symbol) Defined() bool { return elf.SectionIndex(s.Shndx) != elf.SHN_UNDEF }

// reserved reports whether Section is one of the reserved values from SHN_LORESERVE on.
func (s Symbol) reserved() bool {
	return elf.SectionIndex(s.Shndx) >= elf.SHN_LORESERVE && elf.SectionIndex(s.Shndx) != elf.SHN_XINDEX
}

// Symbols returns the symbols of the first SHT_SYMTAB section, nil when there is none. The null
// symbol is left out, so entry i has Index i+1.
func (f *File) Symbols() ([]Symbol, error) {
	i := f.sectionOfType(elf.SHT_SYMTAB)
	if i < 0 {
		return nil, nil
	}
	return f.sectionSymbols(i)
}

// DynamicSymbols returns the symbols of the dynamic symbol table, nil when there is none. It is found
// by its section or, where section headers are stripped, through PT_DYNAMIC. The null symbol is left out.
func (f *File) DynamicSymbols() ([]Symbol, error) {
	if i := f.sectionOfType(elf.SHT_DYNSYM); i >= 0 {
		return f.sectionSymbols(i)
	}
	d, err := f.dynamicInfo()
	if err != nil || d == nil || d.symtab == 0 {
		return nil, err
	}
	n, err := f.dynsymCount(d)
	if err != nil || n == 0 {
		return nil, err
	}
	table, off := f.from(d.symtab)
	if n*f.c.symSize() > uint64(len(table)) {
		return nil, formatErr("dynamic symbol table", off, "%d symbols end outside its segment", n)
	}
	strs, stroff := f.from(d.strtab)
	if d.strsz > uint64(len(strs)) {
		return nil, formatErr("dynamic string table", stroff, "%#x bytes end outside its segment", d.strsz)
	}
	return f.symbols(symbolTable{what: "dynamic symbol table", off: off, data: table[:n*f.c.symSize()], names: newStringTable(strs[:d.strsz])})
}

// symbolTable is a symbol table with the tables it needs.
type symbolTable struct {
	what  string
	off   uint64
	data  []byte
	names *stringTable
	shndx []byte // SHT_SYMTAB_SHNDX, nil when there is none
}

func (f *File) sectionSymbols(i int) ([]Symbol, error) {
	s := &f.Sections[i]
	if s.Type == elf.SHT_NOBITS {
		return nil, nil
	}
	if s.Entsize != 0 && s.Entsize != f.c.symSize() {
		return nil, formatErr(f.sectionLabel(i), s.Off, "entries of %d bytes, want %d", s.Entsize, f.c.symSize())
	}
	data, err := f.SectionData(i)
	if err != nil {
		return nil, err
	}
	if s.Link >= uint32(len(f.Sections)) {
		return nil, formatErr(f.sectionLabel(i), s.Off, "string table is section %d of %d", s.Link, len(f.Sections))
	}
	strs, err := f.SectionData(int(s.Link))
	if err != nil {
		return nil, err
	}
	t := symbolTable{what: f.sectionLabel(i), off: s.Off, data: data, names: newStringTable(strs)}
	for k := range f.Sections {
		if f.Sections[k].Type == elf.SHT_SYMTAB_SHNDX && f.Sections[k].Link == uint32(i) {
			if t.shndx, err = f.SectionData(k); err != nil {
				return nil, err
			}
			break
		}
	}
	return f.symbols(t)
}

func (f *File) symbols(t symbolTable) ([]Symbol, error) {
	size := f.c.symSize()
	n := uint64(len(t.data)) / size
	if n <= 1 {
		return nil, nil
	}
	out := bigslice.Make[Symbol](int(n-1), int(n-1))
	plain := f.c.is64 && f.c.order == byteOrder(binary.LittleEndian)
	for i := uint64(1); i < n; i++ {
		var r rawSym
		if plain {
			b := t.data[i*sym64 : i*sym64+sym64]
			r = rawSym{
				name: binary.LittleEndian.Uint32(b), info: b[4], other: b[5], shndx: binary.LittleEndian.Uint16(b[6:]),
				value: binary.LittleEndian.Uint64(b[8:]), size: binary.LittleEndian.Uint64(b[16:]),
			}
		} else {
			r = f.c.readSym(t.data[i*size:])
		}
		name, ok := t.names.at(uint64(r.name))
		if !ok {
			return nil, formatErr(fmt.Sprintf("symbol %d of %s", i, t.what), t.off+i*size, "name at %#x of a table of %d bytes", r.name, len(t.names.s))
		}
		sec := uint32(r.shndx)
		if elf.SectionIndex(r.shndx) == elf.SHN_XINDEX {
			x, ok := slice(t.shndx, i*4, 4)
			if !ok {
				return nil, formatErr(fmt.Sprintf("symbol %d of %s", i, t.what), t.off+i*size, "section index is in an extended table that has no entry for it")
			}
			sec = f.c.order.Uint32(x)
		}
		out[i-1] = Symbol{Name: name, Value: r.value, Size: r.size, Info: r.info, Other: r.other, Section: sec, Shndx: r.shndx, Index: uint32(i)}
	}
	return out, nil
}
