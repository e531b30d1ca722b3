package elfio

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/fentry-dev/fentry/elfio/internal/raw"
	"github.com/fentry-dev/fentry/internal/bigslice"
)

// File is a parsed ELF image. It refers to the bytes given to Parse and never changes them. Its methods are safe for
// concurrent use.
type File struct {
	Header   Header
	Progs    []Prog
	Sections []Section // index 0 is the reserved null section, as in the file

	raw   []byte
	c     raw.Codec
	loads []Prog // PT_LOAD only, sorted by Vaddr
	// hdr is the header as stored. It is kept so that an extended count that is written although
	// a plain one would do comes back unchanged.
	hdr raw.Header

	memory *sync.Map // see Remember
}

// Parse reads the ELF header, the program headers and the section headers of the image b. Everything else is read
// when asked for. b must not change while the File is in use; it may be a memory-mapped file.
//
// Both classes, both byte orders and every e_type are accepted. Errors are *FormatError.
func Parse(b []byte) (*File, error) {
	if len(b) < elf.EI_NIDENT || string(b[:4]) != elf.ELFMAG {
		return nil, FormatErrorf("ELF header", 0, "not an ELF file")
	}
	f := &File{raw: b, memory: new(sync.Map)}
	switch elf.Class(b[elf.EI_CLASS]) {
	case elf.ELFCLASS32:
	case elf.ELFCLASS64:
		f.c.Is64 = true
	default:
		return nil, FormatErrorf("ELF header", elf.EI_CLASS, "unknown class %d", b[elf.EI_CLASS])
	}
	switch elf.Data(b[elf.EI_DATA]) {
	case elf.ELFDATA2LSB:
		f.c.Order = binary.LittleEndian
	case elf.ELFDATA2MSB:
		f.c.Order = binary.BigEndian
	default:
		return nil, FormatErrorf("ELF header", elf.EI_DATA, "unknown byte order %d", b[elf.EI_DATA])
	}
	if b[elf.EI_VERSION] != byte(elf.EV_CURRENT) {
		return nil, FormatErrorf("ELF header", elf.EI_VERSION, "unknown version %d", b[elf.EI_VERSION])
	}
	if uint64(len(b)) < f.c.EhdrSize() {
		return nil, FormatErrorf("ELF header", 0, "file ends inside it (%d bytes)", len(b))
	}
	f.hdr = f.c.ReadHeader(b)
	f.Header = Header{
		Ident: f.hdr.Ident, Type: elf.Type(f.hdr.Type), Machine: elf.Machine(f.hdr.Machine), Version: f.hdr.Version,
		Entry: f.hdr.Entry, Phoff: f.hdr.Phoff, Shoff: f.hdr.Shoff, Flags: f.hdr.Flags, Ehsize: f.hdr.Ehsize,
		Phentsize: f.hdr.Phentsize, Phnum: uint32(f.hdr.Phnum),
		Shentsize: f.hdr.Shentsize, Shnum: uint32(f.hdr.Shnum), Shstrndx: uint32(f.hdr.Shstrndx),
	}
	if err := f.parseSections(); err != nil {
		return nil, err
	}
	if err := f.parseProgs(); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *File) parseSections() error {
	h := &f.Header
	if h.Shoff == 0 {
		if h.Shnum != 0 {
			return FormatErrorf("ELF header", 0, "%d section headers at offset 0", h.Shnum)
		}
		h.Shstrndx = 0
		return nil
	}
	ent := uint64(h.Shentsize)
	if ent < f.c.ShdrSize() {
		if h.Shnum == 0 && ent == 0 {
			return nil
		}
		return FormatErrorf("ELF header", 0, "section header entries have %d bytes, want %d", ent, f.c.ShdrSize())
	}
	first, ok := raw.Slice(f.raw, h.Shoff, ent)
	if !ok {
		return FormatErrorf("section header table", h.Shoff, "outside the file of %d bytes", len(f.raw))
	}
	null := readSection(f.c, first)
	if h.Shnum == 0 { // the number did not fit e_shnum, or there are none
		if null.Size>>32 != 0 {
			return FormatErrorf("section header 0", h.Shoff, "%#x section headers", null.Size)
		}
		h.Shnum = uint32(null.Size)
	}
	if elf.SectionIndex(h.Shstrndx) == elf.SHN_XINDEX {
		h.Shstrndx = null.Link
	}
	if h.Shnum == 0 {
		return nil
	}
	table, ok := raw.Slice(f.raw, h.Shoff, ent*uint64(h.Shnum)) // 16 times 32 bits: no overflow
	if !ok {
		return FormatErrorf("section header table", h.Shoff, "%d entries of %d bytes end outside the file of %d bytes",
			h.Shnum, ent, len(f.raw))
	}
	f.Sections = bigslice.Make[Section](int(h.Shnum), int(h.Shnum))
	for i := range f.Sections {
		f.Sections[i] = readSection(f.c, table[uint64(i)*ent:])
	}
	return f.nameSections()
}

func (f *File) nameSections() error {
	h := &f.Header
	if h.Shstrndx == 0 {
		return nil
	}
	if h.Shstrndx >= h.Shnum {
		return FormatErrorf("ELF header", 0, "section name table is section %d of %d", h.Shstrndx, h.Shnum)
	}
	s := &f.Sections[h.Shstrndx]
	if s.Type == elf.SHT_NOBITS {
		return nil // a debug file made by objcopy --only-keep-debug keeps the table; others may not
	}
	data, ok := raw.Slice(f.raw, s.Off, s.Size)
	if !ok {
		return FormatErrorf(fmt.Sprintf("section %d (section name table)", h.Shstrndx), s.Off,
			"%d bytes end outside the file of %d bytes", s.Size, len(f.raw))
	}
	names := newStringTable(data)
	for i := range f.Sections {
		name, ok := names.at(uint64(f.Sections[i].NameOff))
		if !ok {
			return FormatErrorf(fmt.Sprintf("section header %d", i), h.Shoff+uint64(i)*uint64(h.Shentsize),
				"name at %#x of a table of %d bytes", f.Sections[i].NameOff, len(data))
		}
		f.Sections[i].Name = name
	}
	return nil
}

func (f *File) parseProgs() error {
	h := &f.Header
	if h.Phnum == 0xffff && len(f.Sections) > 0 { // PN_XNUM
		h.Phnum = f.Sections[0].Info
	}
	if h.Phnum == 0 {
		return nil
	}
	ent := uint64(h.Phentsize)
	if ent < f.c.PhdrSize() {
		return FormatErrorf("ELF header", 0, "program header entries have %d bytes, want %d", ent, f.c.PhdrSize())
	}
	table, ok := raw.Slice(f.raw, h.Phoff, ent*uint64(h.Phnum))
	if !ok {
		return FormatErrorf("program header table", h.Phoff, "%d entries of %d bytes end outside the file of %d bytes",
			h.Phnum, ent, len(f.raw))
	}
	f.Progs = make([]Prog, h.Phnum)
	for i := range f.Progs {
		p := readProg(f.c, table[uint64(i)*ent:])
		f.Progs[i] = p
		if p.Type == elf.PT_LOAD {
			f.loads = append(f.loads, p)
		}
	}
	slices.SortStableFunc(f.loads, func(a, b Prog) int {
		if a.Vaddr < b.Vaddr {
			return -1
		} else if a.Vaddr > b.Vaddr {
			return 1
		}
		return 0
	})
	return nil
}

// Remember returns the results of the first call of read for key. As for context keys, the key should be of a type of
// the caller's own. Packages that read tables of an image use it to keep those that several others ask for.
func (f *File) Remember(key any, read func() (any, error)) (any, error) {
	m, ok := f.memory.Load(key)
	if !ok {
		m, _ = f.memory.LoadOrStore(key, sync.OnceValues(read))
	}
	return m.(func() (any, error))()
}

// Raw returns the bytes given to Parse.
func (f *File) Raw() []byte { return f.raw }

// Order returns the byte order of the file.
func (f *File) Order() binary.ByteOrder { return f.c.Order }

// Is64 reports whether the file is of class ELFCLASS64.
func (f *File) Is64() bool { return f.c.Is64 }
