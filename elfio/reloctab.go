package elfio

import (
	"debug/elf"
	"encoding/binary"

	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// Relocation tables in place.
//
// An object compiled with a section for each function has thousands of relocation sections, of which a reader wants a
// few entries. So tables are opened into memory of the caller's and entries decoded one by one, with a short cut for
// the form nearly all files have, and Scan looks at nothing but symbol numbers.

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
	if err := t.Open(f, i); err != nil {
		return nil, err
	}
	return t, t.Check()
}

// Check returns an error if the table does not refer to a section and a symbol table. Tables of linked images need
// not.
func (t *RelocTable) Check() error {
	f, s := t.f, &t.f.Sections[t.Section]
	if t.Target == 0 || t.Target >= len(f.Sections) {
		return FormatErrorf(f.SectionLabel(t.Section), s.Off, "relocates section %d of %d", s.Info, len(f.Sections))
	}
	if t.Symtab == 0 || t.Symtab >= len(f.Sections) {
		return FormatErrorf(f.SectionLabel(t.Section), s.Off, "symbol table is section %d of %d", s.Link, len(f.Sections))
	}
	return nil
}

// Open makes t the table of section i, for callers that reuse a RelocTable: an object may have one table per
// function. The section and symbol table it refers to are not checked.
func (t *RelocTable) Open(f *File, i int) error {
	if i <= 0 || i >= len(f.Sections) {
		return FormatErrorf("section header table", f.Header.Shoff, "no section %d of %d", i, len(f.Sections))
	}
	s := &f.Sections[i]
	*t = RelocTable{Section: i, Target: int(s.Info), Symtab: int(s.Link), f: f}
	switch s.Type {
	case elf.SHT_REL:
		t.size = f.c.RelSize()
	case elf.SHT_RELA:
		t.size, t.Rela = f.c.RelaSize(), true
	default:
		return FormatErrorf(f.SectionLabel(i), s.Off, "%v is no relocation table", s.Type)
	}
	if s.Entsize != t.size {
		return FormatErrorf(f.SectionLabel(i), s.Off, "entries of %d bytes, want %d", s.Entsize, t.size)
	}
	var err error
	if t.data, err = f.SectionData(i); err != nil {
		return err
	}
	if uint64(len(t.data))%t.size != 0 {
		return FormatErrorf(f.SectionLabel(i), s.Off, "%#x bytes are not whole entries of %d", len(t.data), t.size)
	}
	t.mips, t.fast = f.relocForm()
	return nil
}

// relocForm says how relocations of the file are stored (see RelocTable).
func (f *File) relocForm() (mips, fast bool) {
	mips = f.c.Is64 && f.Header.Machine == elf.EM_MIPS
	return mips, !mips && f.c.Little64()
}

// Bytes returns all entries as stored, as a sub-slice of the file.
func (t *RelocTable) Bytes() []byte { return t.data }

// Len returns the number of entries.
func (t *RelocTable) Len() int { return int(uint64(len(t.data)) / t.size) }

// Entsize returns the size of an entry in bytes.
func (t *RelocTable) Entsize() uint64 { return t.size }

// FileOff returns the offset of entry i in the file.
func (t *RelocTable) FileOff(i int) uint64 {
	return t.f.Sections[t.Section].Off + uint64(i)*t.size
}

// Entry returns the bytes of entry i, as a sub-slice of the file.
func (t *RelocTable) Entry(i int) []byte { return t.data[uint64(i)*t.size : uint64(i+1)*t.size] }

// At returns entry i. The addend of a REL entry is in the relocated place and is returned as 0.
func (t *RelocTable) At(i int) Reloc {
	b := t.Entry(i)
	if !t.fast || len(b) < 16 {
		return readReloc(t.f.c, b, t.Rela, t.mips)
	}
	r := Reloc{Off: binary.LittleEndian.Uint64(b), Type: binary.LittleEndian.Uint32(b[8:]),
		Sym: binary.LittleEndian.Uint32(b[12:])}
	if len(b) >= 24 {
		r.Addend = int64(binary.LittleEndian.Uint64(b[16:]))
	}
	return r
}

// With returns the bytes of entry i with another symbol and type.
func (t *RelocTable) With(i int, sym, typ uint32) []byte {
	b := append([]byte(nil), t.Entry(i)...)
	r := t.At(i)
	r.Sym, r.Type = sym, typ
	writeReloc(t.f.c, b, r, t.Rela, t.mips)
	return b
}

// Scan calls hit with the index of every entry whose symbol is marked. marks is a bit set in which bit n stands for
// symbol n; symbols beyond its end are not marked.
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
	off := t.f.c.WordSize() // r_info
	shift := 8
	if t.f.c.Is64 {
		shift = 0
		if t.f.c.Order.Uint16([]byte{1, 0}) == 1 && !t.mips {
			off += 4 // the upper half holds the symbol
		}
	}
	n := t.Len()
	at := off
	for i := range n {
		sym := t.f.c.Order.Uint32(t.data[at:]) >> shift
		at += t.size
		if marked(sym) {
			hit(i)
		}
	}
}

// ShiftSymbols adds k to all symbol indices from first on in b, which holds entries in the form of the table that
// refer to n symbols. The two's complement of k undoes that. changed reports whether there were any.
func (t *RelocTable) ShiftSymbols(b []byte, first, n, k uint32) (changed bool, err error) {
	c := t.f.c
	for at := uint64(0); at+t.size <= uint64(len(b)); at += t.size {
		r := readReloc(c, b[at:], t.Rela, t.mips)
		if r.Sym >= n {
			return changed, FormatErrorf(t.f.SectionLabel(t.Section), t.FileOff(0)+at, "symbol %d of %d", r.Sym, n)
		}
		if r.Sym >= first {
			r.Sym += k
			writeReloc(c, b[at:], r, t.Rela, t.mips)
			changed = true
		}
	}
	return changed, nil
}

// readReloc decodes a relocation. r_info of MIPS N64 is a 32-bit symbol and four bytes, the type in the last one
// (64-bit ELF Object File Specification for MIPS, "Relocation"); the other three are in the upper bytes of Type.
func readReloc(c raw.Codec, b []byte, rela, mips64 bool) (r Reloc) {
	r.Off = c.Word(b)
	switch {
	case mips64:
		p := b[8:16]
		r.Sym = c.Order.Uint32(p)
		r.Type = uint32(p[7]) | uint32(p[6])<<8 | uint32(p[5])<<16 | uint32(p[4])<<24
	case c.Is64:
		info := c.Order.Uint64(b[8:])
		r.Sym, r.Type = uint32(info>>32), uint32(info)
	default:
		info := c.Order.Uint32(b[4:])
		r.Sym, r.Type = info>>8, info&0xff
	}
	if rela {
		if c.Is64 {
			r.Addend = int64(c.Order.Uint64(b[16:]))
		} else {
			r.Addend = int64(int32(c.Order.Uint32(b[8:])))
		}
	}
	return r
}

func writeReloc(c raw.Codec, b []byte, r Reloc, rela, mips64 bool) {
	c.PutWord(b, r.Off)
	switch {
	case mips64:
		p := b[8:16]
		c.Order.PutUint32(p, r.Sym)
		p[7], p[6], p[5], p[4] = byte(r.Type), byte(r.Type>>8), byte(r.Type>>16), byte(r.Type>>24)
	case c.Is64:
		c.Order.PutUint64(b[8:], uint64(r.Sym)<<32|uint64(r.Type))
	default:
		c.Order.PutUint32(b[4:], r.Sym<<8|r.Type&0xff)
	}
	if rela {
		c.PutWord(b[2*c.WordSize():], uint64(r.Addend))
	}
}

// RelocSize returns the size in bytes of a REL or RELA entry of the file.
func (f *File) RelocSize(rela bool) int {
	if rela {
		return int(f.c.RelaSize())
	}
	return int(f.c.RelSize())
}

// RelocWriter encodes relocations in a file's class and byte order.
type RelocWriter struct {
	c                raw.Codec
	rela, mips, fast bool
}

// RelocWriter returns a writer of RELA entries if rela is set, else of REL entries.
func (f *File) RelocWriter(rela bool) RelocWriter {
	mips, fast := f.relocForm()
	return RelocWriter{f.c, rela, mips, fast}
}

// Put encodes a relocation into b, which must have RelocSize bytes. A symbol index that does not fit the class is
// truncated.
func (w *RelocWriter) Put(b []byte, r Reloc) {
	if !w.fast {
		writeReloc(w.c, b, r, w.rela, w.mips)
		return
	}
	binary.LittleEndian.PutUint64(b, r.Off)
	binary.LittleEndian.PutUint64(b[8:], uint64(r.Sym)<<32|uint64(r.Type))
	if w.rela {
		binary.LittleEndian.PutUint64(b[16:], uint64(r.Addend))
	}
}

// PutReloc encodes one relocation into b as a RelocWriter does.
func (f *File) PutReloc(b []byte, r Reloc, rela bool) {
	w := f.RelocWriter(rela)
	w.Put(b, r)
}
