package elfio

import (
	"debug/elf"
	"encoding/binary"

	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// Header is the ELF header with the counts resolved: Phnum, Shnum and Shstrndx are the real numbers
// even where the 16-bit fields overflow into section header 0 (gABI, "ELF Header": PN_XNUM, SHN_XINDEX).
type Header struct {
	Ident     [elf.EI_NIDENT]byte
	Type      elf.Type
	Machine   elf.Machine
	Version   uint32
	Entry     uint64
	Phoff     uint64
	Shoff     uint64
	Flags     uint32
	Ehsize    uint16
	Phentsize uint16
	Phnum     uint32
	Shentsize uint16
	Shnum     uint32
	Shstrndx  uint32
}

// Prog is a program header.
type Prog struct {
	Type   elf.ProgType
	Flags  elf.ProgFlag
	Off    uint64
	Vaddr  uint64
	Paddr  uint64
	Filesz uint64
	Memsz  uint64
	Align  uint64
}

// Section is a section header with its name resolved.
type Section struct {
	Name      string
	NameOff   uint32 // sh_name: offset of Name in the section name string table
	Type      elf.SectionType
	Flags     elf.SectionFlag
	flagsHigh uint32 // upper half of a 64-bit sh_flags; no ABI defines bits there
	Addr      uint64
	Off       uint64
	Size      uint64
	Link      uint32
	Info      uint32
	Addralign uint64
	Entsize   uint64
}

func readProg(c raw.Codec, b []byte) (p Prog) {
	r := c.Reader(b)
	p.Type = elf.ProgType(r.U32())
	if c.Is64 {
		p.Flags = elf.ProgFlag(r.U32())
	}
	p.Off, p.Vaddr, p.Paddr, p.Filesz, p.Memsz = r.Word(), r.Word(), r.Word(), r.Word(), r.Word()
	if !c.Is64 {
		p.Flags = elf.ProgFlag(r.U32())
	}
	p.Align = r.Word()
	return p
}

// PutProg encodes a program header into b, in the file's class and byte order.
func (f *File) PutProg(b []byte, p Prog) {
	w := f.c.Writer(b)
	w.U32(uint32(p.Type))
	if f.c.Is64 {
		w.U32(uint32(p.Flags))
	}
	w.Word(p.Off)
	w.Word(p.Vaddr)
	w.Word(p.Paddr)
	w.Word(p.Filesz)
	w.Word(p.Memsz)
	if !f.c.Is64 {
		w.U32(uint32(p.Flags))
	}
	w.Word(p.Align)
}

func readSection(c raw.Codec, b []byte) (s Section) {
	if c.Little64() {
		le := binary.LittleEndian
		_ = b[63]
		flags := le.Uint64(b[8:])
		return Section{
			NameOff: le.Uint32(b), Type: elf.SectionType(le.Uint32(b[4:])),
			Flags: elf.SectionFlag(flags), flagsHigh: uint32(flags >> 32),
			Addr: le.Uint64(b[16:]), Off: le.Uint64(b[24:]), Size: le.Uint64(b[32:]),
			Link: le.Uint32(b[40:]), Info: le.Uint32(b[44:]),
			Addralign: le.Uint64(b[48:]), Entsize: le.Uint64(b[56:]),
		}
	}
	r := c.Reader(b)
	s.NameOff = r.U32()
	s.Type = elf.SectionType(r.U32())
	flags := r.Word()
	s.Flags, s.flagsHigh = elf.SectionFlag(flags), uint32(flags>>32)
	s.Addr, s.Off, s.Size = r.Word(), r.Word(), r.Word()
	s.Link, s.Info = r.U32(), r.U32()
	s.Addralign, s.Entsize = r.Word(), r.Word()
	return s
}

// PutSection encodes a section header into b, in the file's class and byte order. The name is written as NameOff.
func (f *File) PutSection(b []byte, s *Section) {
	if f.c.Little64() {
		le := binary.LittleEndian
		_ = b[63]
		le.PutUint32(b, s.NameOff)
		le.PutUint32(b[4:], uint32(s.Type))
		le.PutUint64(b[8:], uint64(s.Flags)|uint64(s.flagsHigh)<<32)
		le.PutUint64(b[16:], s.Addr)
		le.PutUint64(b[24:], s.Off)
		le.PutUint64(b[32:], s.Size)
		le.PutUint32(b[40:], s.Link)
		le.PutUint32(b[44:], s.Info)
		le.PutUint64(b[48:], s.Addralign)
		le.PutUint64(b[56:], s.Entsize)
		return
	}
	w := f.c.Writer(b)
	w.U32(s.NameOff)
	w.U32(uint32(s.Type))
	w.Word(uint64(s.Flags) | uint64(s.flagsHigh)<<32)
	w.Word(s.Addr)
	w.Word(s.Off)
	w.Word(s.Size)
	w.U32(s.Link)
	w.U32(s.Info)
	w.Word(s.Addralign)
	w.Word(s.Entsize)
}
