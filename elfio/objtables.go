package elfio

import (
	"debug/elf"
	"encoding/binary"
)

// SymbolTable reads a symbol table in place. Unlike Symbols it decodes entries when asked for, so looking at a few
// of a million symbols costs no memory. Index 0 is the null symbol, as in the file.
type SymbolTable struct {
	Section int // index of its section header

	f     *File
	data  []byte
	strs  []byte
	shndx []byte
	size  uint64
}

// SymbolTable opens section i, which must be a symbol table.
func (f *File) SymbolTable(i int) (*SymbolTable, error) {
	if i <= 0 || i >= len(f.Sections) {
		return nil, formatErr("section header table", f.Header.Shoff, "no section %d of %d", i, len(f.Sections))
	}
	s := &f.Sections[i]
	if s.Type != elf.SHT_SYMTAB && s.Type != elf.SHT_DYNSYM {
		return nil, formatErr(f.sectionLabel(i), s.Off, "%v is no symbol table", s.Type)
	}
	if s.Entsize != f.c.symSize() {
		return nil, formatErr(f.sectionLabel(i), s.Off, "entries of %d bytes, want %d", s.Entsize, f.c.symSize())
	}
	data, err := f.SectionData(i)
	if err != nil {
		return nil, err
	}
	if uint64(len(data))%s.Entsize != 0 {
		return nil, formatErr(f.sectionLabel(i), s.Off, "%#x bytes are not whole entries of %d", len(data), s.Entsize)
	}
	if s.Link == 0 || s.Link >= uint32(len(f.Sections)) || f.Sections[s.Link].Type != elf.SHT_STRTAB {
		return nil, formatErr(f.sectionLabel(i), s.Off, "sh_link %d names no string table", s.Link)
	}
	strs, err := f.SectionData(int(s.Link))
	if err != nil {
		return nil, err
	}
	t := &SymbolTable{Section: i, f: f, data: data, strs: strs, size: s.Entsize}
	if x := f.extendedIndices(i); x >= 0 {
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

// Len is the number of entries with the null symbol.
func (t *SymbolTable) Len() int { return int(uint64(len(t.data)) / t.size) }

// NameOff returns st_name of entry i.
func (t *SymbolTable) NameOff(i int) uint32 { return t.f.c.order.Uint32(t.data[uint64(i)*t.size:]) }

// Strings is the string table the names are in.
func (t *SymbolTable) Strings() []byte { return t.strs }

// Name returns the name of entry i, a sub-slice of the file; nil where it is outside the string table.
func (t *SymbolTable) Name(i int) []byte {
	off := uint64(t.NameOff(i))
	if off >= uint64(len(t.strs)) {
		return nil
	}
	return cString(t.strs[off:])
}

// At decodes entry i without its name. A section index that an extended table should have and has not comes out as
// SHN_XINDEX.
func (t *SymbolTable) At(i int) Symbol {
	r := t.f.c.readSym(t.data[uint64(i)*t.size:])
	s := Symbol{Value: r.value, Size: r.size, Info: r.info, Other: r.other, Section: uint32(r.shndx), Shndx: r.shndx, Index: uint32(i)}
	if elf.SectionIndex(r.shndx) == elf.SHN_XINDEX {
		if x, ok := slice(t.shndx, uint64(i)*4, 4); ok {
			s.Section = t.f.c.order.Uint32(x)
		}
	}
	return s
}

// Info returns st_info of entry i.
func (t *SymbolTable) Info(i int) byte {
	if t.f.c.is64 {
		return t.data[uint64(i)*t.size+4]
	}
	return t.data[uint64(i)*t.size+12]
}

// SectionOf returns the index of the section entry i is defined in, 0 for an undefined, absolute or common symbol.
func (t *SymbolTable) SectionOf(i int) uint32 {
	at := uint64(i)*t.size + 14
	if t.f.c.is64 {
		at = uint64(i)*t.size + 6
	}
	x := elf.SectionIndex(t.f.c.order.Uint16(t.data[at:]))
	switch {
	case x < elf.SHN_LORESERVE:
		return uint32(x)
	case x == elf.SHN_XINDEX:
		if b, ok := slice(t.shndx, uint64(i)*4, 4); ok {
			return t.f.c.order.Uint32(b)
		}
	}
	return 0
}

// RelocTable reads a relocation section in place.
type RelocTable struct {
	Section int  // index of its section header
	Target  int  // the section that is relocated
	Symtab  int  // the symbol table
	Rela    bool // entries carry their addend

	f    *File
	data []byte
	size uint64
	mips bool // MIPS N64: r_sym, r_ssym and three types as separate fields
	fast bool // 64-bit and little-endian, of the generic form: what nearly all objects are
}

// RelocTable opens section i, which must be of type SHT_REL or SHT_RELA and refer to a section and a symbol table.
func (f *File) RelocTable(i int) (*RelocTable, error) {
	t := new(RelocTable)
	if err := f.OpenRelocTable(i, t); err != nil {
		return nil, err
	}
	return t, nil
}

// OpenRelocTable is RelocTable for a table the caller has allocated: an object may have one a function.
func (f *File) OpenRelocTable(i int, t *RelocTable) error {
	if err := f.openRelocs(i, t); err != nil {
		return err
	}
	s := &f.Sections[i]
	if t.Target == 0 || t.Target >= len(f.Sections) {
		return formatErr(f.sectionLabel(i), s.Off, "relocates section %d of %d", s.Info, len(f.Sections))
	}
	if t.Symtab == 0 || t.Symtab >= len(f.Sections) {
		return formatErr(f.sectionLabel(i), s.Off, "symbol table is section %d of %d", s.Link, len(f.Sections))
	}
	return nil
}

// DynamicRelocTable opens section i of a linked image, whose relocations need not belong to a section.
func (f *File) DynamicRelocTable(i int) (*RelocTable, error) {
	t := new(RelocTable)
	return t, f.openRelocs(i, t)
}

func (f *File) openRelocs(i int, t *RelocTable) error {
	if i <= 0 || i >= len(f.Sections) {
		return formatErr("section header table", f.Header.Shoff, "no section %d of %d", i, len(f.Sections))
	}
	s := &f.Sections[i]
	*t = RelocTable{Section: i, Target: int(s.Info), Symtab: int(s.Link), f: f}
	switch s.Type {
	case elf.SHT_REL:
		t.size = f.c.relSize()
	case elf.SHT_RELA:
		t.size, t.Rela = f.c.relaSize(), true
	default:
		return formatErr(f.sectionLabel(i), s.Off, "%v is no relocation table", s.Type)
	}
	if s.Entsize != t.size {
		return formatErr(f.sectionLabel(i), s.Off, "entries of %d bytes, want %d", s.Entsize, t.size)
	}
	var err error
	if t.data, err = f.SectionData(i); err != nil {
		return err
	}
	if uint64(len(t.data))%t.size != 0 {
		return formatErr(f.sectionLabel(i), s.Off, "%#x bytes are not whole entries of %d", len(t.data), t.size)
	}
	t.mips, t.fast = f.relocForm()
	return nil
}

// relocForm says how relocations of the file are stored (see RelocTable).
func (f *File) relocForm() (mips, fast bool) {
	mips = f.c.is64 && f.Header.Machine == elf.EM_MIPS
	return mips, !mips && f.c.little64()
}

// Len is the number of entries.
func (t *RelocTable) Len() int { return int(uint64(len(t.data)) / t.size) }

// Entsize is the size of an entry in bytes.
func (t *RelocTable) Entsize() uint64 { return t.size }

// FileOff is the offset of entry i in the file.
func (t *RelocTable) FileOff(i int) uint64 {
	return t.f.Sections[t.Section].Off + uint64(i)*t.size
}

// Entry returns the bytes of entry i, a sub-slice of the file.
func (t *RelocTable) Entry(i int) []byte { return t.data[uint64(i)*t.size : uint64(i+1)*t.size] }

// At decodes entry i. The addend of a REL entry is in the relocated place; it comes out as 0.
func (t *RelocTable) At(i int) Reloc {
	b := t.Entry(i)
	if !t.fast || len(b) < rel64 {
		return t.f.c.readReloc(b, t.Rela, t.mips)
	}
	r := Reloc{Off: binary.LittleEndian.Uint64(b), Type: binary.LittleEndian.Uint32(b[8:]), Sym: binary.LittleEndian.Uint32(b[12:])}
	if len(b) >= rela64 {
		r.Addend = int64(binary.LittleEndian.Uint64(b[16:]))
	}
	return r
}

// With returns entry i with another symbol and type.
func (t *RelocTable) With(i int, sym, typ uint32) []byte {
	b := append([]byte(nil), t.Entry(i)...)
	r := t.At(i)
	r.Sym, r.Type = sym, typ
	t.f.c.writeReloc(b, r, t.Rela, t.mips)
	return b
}

// Scan calls hit with the index of every entry whose symbol is marked: bit n of marks, a set of words of 64 bits,
// stands for symbol n. Symbols behind its end are not marked.
func (t *RelocTable) Scan(marks []uint64, hit func(i int)) {
	marked := func(sym uint32) bool {
		w := sym >> 6
		return w < uint32(len(marks)) && marks[w]&(1<<(sym&63)) != 0
	}
	if t.fast {
		i := 0
		for b := t.data; len(b) >= int(t.size); b = b[t.size:] {
			if marked(binary.LittleEndian.Uint32(b[12:])) {
				hit(i)
			}
			i++
		}
		return
	}
	off := t.f.c.wordSize() // r_info
	shift := 8
	if t.f.c.is64 {
		shift = 0
		if t.f.c.order.Uint16([]byte{1, 0}) == 1 && !t.mips {
			off += 4 // the upper half holds the symbol
		}
	}
	n := t.Len()
	at := off
	for i := range n {
		sym := t.f.c.order.Uint32(t.data[at:]) >> shift
		at += t.size
		if marked(sym) {
			hit(i)
		}
	}
}

// readReloc decodes a relocation. r_info of MIPS N64 is a 32-bit symbol and four bytes, the type in the last one
// (64-bit ELF Object File Specification for MIPS, "Relocation"); the other three are in the upper bytes of Type.
func (c codec) readReloc(b []byte, rela, mips64 bool) (r Reloc) {
	r.Off = c.word(b)
	switch {
	case mips64:
		p := b[8:16]
		r.Sym = c.order.Uint32(p)
		r.Type = uint32(p[7]) | uint32(p[6])<<8 | uint32(p[5])<<16 | uint32(p[4])<<24
	case c.is64:
		info := c.order.Uint64(b[8:])
		r.Sym, r.Type = uint32(info>>32), uint32(info)
	default:
		info := c.order.Uint32(b[4:])
		r.Sym, r.Type = info>>8, info&0xff
	}
	if rela {
		if c.is64 {
			r.Addend = int64(c.order.Uint64(b[16:]))
		} else {
			r.Addend = int64(int32(c.order.Uint32(b[8:])))
		}
	}
	return r
}

func (c codec) writeReloc(b []byte, r Reloc, rela, mips64 bool) {
	c.putWord(b, r.Off)
	switch {
	case mips64:
		p := b[8:16]
		c.order.PutUint32(p, r.Sym)
		p[7], p[6], p[5], p[4] = byte(r.Type), byte(r.Type>>8), byte(r.Type>>16), byte(r.Type>>24)
	case c.is64:
		c.order.PutUint64(b[8:], uint64(r.Sym)<<32|uint64(r.Type))
	default:
		c.order.PutUint32(b[4:], r.Sym<<8|r.Type&0xff)
	}
	if rela {
		c.putWord(b[2*c.wordSize():], uint64(r.Addend))
	}
}

// RelocSize is the size in bytes of a REL or RELA entry of this file.
func (f *File) RelocSize(rela bool) int {
	if rela {
		return int(f.c.relaSize())
	}
	return int(f.c.relSize())
}

// RelocWriter encodes relocations in the form of a file.
type RelocWriter struct {
	c                codec
	rela, mips, fast bool
}

// RelocWriter is for entries with their addend, or without.
func (f *File) RelocWriter(rela bool) RelocWriter {
	mips, fast := f.relocForm()
	return RelocWriter{f.c, rela, mips, fast}
}

// Put encodes a relocation into b, which has RelocSize bytes. A symbol index that the class cannot hold is cut off.
func (w *RelocWriter) Put(b []byte, r Reloc) {
	if !w.fast {
		w.c.writeReloc(b, r, w.rela, w.mips)
		return
	}
	binary.LittleEndian.PutUint64(b, r.Off)
	binary.LittleEndian.PutUint64(b[8:], uint64(r.Sym)<<32|uint64(r.Type))
	if w.rela {
		binary.LittleEndian.PutUint64(b[16:], uint64(r.Addend))
	}
}

// PutReloc encodes one relocation as RelocWriter does.
func (f *File) PutReloc(b []byte, r Reloc, rela bool) {
	w := f.RelocWriter(rela)
	w.Put(b, r)
}
