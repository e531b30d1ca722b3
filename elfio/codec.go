package elfio

import (
	"debug/elf"
	"encoding/binary"
)

// Sizes of the raw structures, System V gABI chapters 4 and 5.
const (
	ehdr32, ehdr64 = 52, 64
	phdr32, phdr64 = 32, 56
	shdr32, shdr64 = 40, 64
	sym32, sym64   = 16, 24
	rel32, rel64   = 8, 16
	rela32, rela64 = 12, 24
	dyn32, dyn64   = 8, 16
)

// codec is the class and byte order of a file. Every raw structure is read and written through it,
// so that nothing above this file depends on either.
type codec struct {
	order byteOrder
	is64  bool
}

func (c codec) pick(n32, n64 uint64) uint64 {
	if c.is64 {
		return n64
	}
	return n32
}

func (c codec) ehdrSize() uint64 { return c.pick(ehdr32, ehdr64) }
func (c codec) phdrSize() uint64 { return c.pick(phdr32, phdr64) }
func (c codec) shdrSize() uint64 { return c.pick(shdr32, shdr64) }
func (c codec) symSize() uint64  { return c.pick(sym32, sym64) }
func (c codec) relSize() uint64  { return c.pick(rel32, rel64) }
func (c codec) relaSize() uint64 { return c.pick(rela32, rela64) }
func (c codec) dynSize() uint64  { return c.pick(dyn32, dyn64) }
func (c codec) wordSize() uint64 { return c.pick(4, 8) }

// word reads an address-sized unsigned integer.
func (c codec) word(b []byte) uint64 {
	if c.is64 {
		return c.order.Uint64(b)
	}
	return uint64(c.order.Uint32(b))
}

func (c codec) putWord(b []byte, v uint64) {
	if c.is64 {
		c.order.PutUint64(b, v)
	} else {
		c.order.PutUint32(b, uint32(v))
	}
}

// fits reports whether v can be stored in an address-sized field.
func (c codec) fits(v uint64) bool { return c.is64 || v>>32 == 0 }

// reader takes fixed-size fields off the front of a slice whose length has been checked.
type reader struct {
	c codec
	b []byte
}

func (r *reader) u16() uint16 {
	v := r.c.order.Uint16(r.b)
	r.b = r.b[2:]
	return v
}

func (r *reader) u32() uint32 {
	v := r.c.order.Uint32(r.b)
	r.b = r.b[4:]
	return v
}

func (r *reader) word() uint64 {
	n := r.c.wordSize()
	v := r.c.word(r.b)
	r.b = r.b[n:]
	return v
}

// writer stores fixed-size fields into the front of a slice whose length has been checked.
type writer struct {
	c codec
	b []byte
}

func (w *writer) u16(v uint16) {
	w.c.order.PutUint16(w.b, v)
	w.b = w.b[2:]
}

func (w *writer) u32(v uint32) {
	w.c.order.PutUint32(w.b, v)
	w.b = w.b[4:]
}

func (w *writer) word(v uint64) {
	w.c.putWord(w.b, v)
	w.b = w.b[w.c.wordSize():]
}

// rawHeader is the ELF header as stored: counts are not resolved.
type rawHeader struct {
	ident                      [16]byte
	typ, machine               uint16
	version                    uint32
	entry, phoff, shoff        uint64
	flags                      uint32
	ehsize, phentsize, phnum   uint16
	shentsize, shnum, shstrndx uint16
}

func (c codec) readHeader(b []byte) (h rawHeader) {
	copy(h.ident[:], b)
	r := reader{c, b[16:]}
	h.typ, h.machine, h.version = r.u16(), r.u16(), r.u32()
	h.entry, h.phoff, h.shoff = r.word(), r.word(), r.word()
	h.flags = r.u32()
	h.ehsize, h.phentsize, h.phnum = r.u16(), r.u16(), r.u16()
	h.shentsize, h.shnum, h.shstrndx = r.u16(), r.u16(), r.u16()
	return h
}

func (c codec) writeHeader(b []byte, h rawHeader) {
	copy(b, h.ident[:])
	w := writer{c, b[16:]}
	w.u16(h.typ)
	w.u16(h.machine)
	w.u32(h.version)
	w.word(h.entry)
	w.word(h.phoff)
	w.word(h.shoff)
	w.u32(h.flags)
	w.u16(h.ehsize)
	w.u16(h.phentsize)
	w.u16(h.phnum)
	w.u16(h.shentsize)
	w.u16(h.shnum)
	w.u16(h.shstrndx)
}

func (c codec) readProg(b []byte) (p Prog) {
	r := reader{c, b}
	p.Type = elf.ProgType(r.u32())
	if c.is64 {
		p.Flags = elf.ProgFlag(r.u32())
	}
	p.Off, p.Vaddr, p.Paddr, p.Filesz, p.Memsz = r.word(), r.word(), r.word(), r.word(), r.word()
	if !c.is64 {
		p.Flags = elf.ProgFlag(r.u32())
	}
	p.Align = r.word()
	return p
}

func (c codec) writeProg(b []byte, p Prog) {
	w := writer{c, b}
	w.u32(uint32(p.Type))
	if c.is64 {
		w.u32(uint32(p.Flags))
	}
	w.word(p.Off)
	w.word(p.Vaddr)
	w.word(p.Paddr)
	w.word(p.Filesz)
	w.word(p.Memsz)
	if !c.is64 {
		w.u32(uint32(p.Flags))
	}
	w.word(p.Align)
}

func (c codec) readSection(b []byte) (s Section) {
	if c.little64() {
		le := binary.LittleEndian
		_ = b[shdr64-1]
		flags := le.Uint64(b[8:])
		return Section{
			NameOff: le.Uint32(b), Type: elf.SectionType(le.Uint32(b[4:])), Flags: elf.SectionFlag(flags), flagsHigh: uint32(flags >> 32),
			Addr: le.Uint64(b[16:]), Off: le.Uint64(b[24:]), Size: le.Uint64(b[32:]), Link: le.Uint32(b[40:]), Info: le.Uint32(b[44:]),
			Addralign: le.Uint64(b[48:]), Entsize: le.Uint64(b[56:]),
		}
	}
	r := reader{c, b}
	s.NameOff = r.u32()
	s.Type = elf.SectionType(r.u32())
	flags := r.word()
	s.Flags, s.flagsHigh = elf.SectionFlag(flags), uint32(flags>>32)
	s.Addr, s.Off, s.Size = r.word(), r.word(), r.word()
	s.Link, s.Info = r.u32(), r.u32()
	s.Addralign, s.Entsize = r.word(), r.word()
	return s
}

// little64 reports whether the file is of the usual kind, for which the most frequent structures have a short cut.
func (c codec) little64() bool { return c.is64 && c.order.Uint16([]byte{1, 0}) == 1 }

func (c codec) writeSection(b []byte, s Section) {
	if c.little64() {
		le := binary.LittleEndian
		_ = b[shdr64-1]
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
	w := writer{c, b}
	w.u32(s.NameOff)
	w.u32(uint32(s.Type))
	w.word(uint64(s.Flags) | uint64(s.flagsHigh)<<32)
	w.word(s.Addr)
	w.word(s.Off)
	w.word(s.Size)
	w.u32(s.Link)
	w.u32(s.Info)
	w.word(s.Addralign)
	w.word(s.Entsize)
}

// rawSym is a symbol table entry as stored.
type rawSym struct {
	name        uint32
	info, other byte
	shndx       uint16
	value, size uint64
}

func (c codec) readSym(b []byte) (s rawSym) {
	if c.is64 {
		return rawSym{
			name: c.order.Uint32(b), info: b[4], other: b[5], shndx: c.order.Uint16(b[6:]),
			value: c.order.Uint64(b[8:]), size: c.order.Uint64(b[16:]),
		}
	}
	return rawSym{
		name: c.order.Uint32(b), value: uint64(c.order.Uint32(b[4:])), size: uint64(c.order.Uint32(b[8:])),
		info: b[12], other: b[13], shndx: c.order.Uint16(b[14:]),
	}
}

func (c codec) writeSym(b []byte, s rawSym) {
	c.order.PutUint32(b, s.name)
	if c.is64 {
		b[4], b[5] = s.info, s.other
		c.order.PutUint16(b[6:], s.shndx)
		c.order.PutUint64(b[8:], s.value)
		c.order.PutUint64(b[16:], s.size)
		return
	}
	c.order.PutUint32(b[4:], uint32(s.value))
	c.order.PutUint32(b[8:], uint32(s.size))
	b[12], b[13] = s.info, s.other
	c.order.PutUint16(b[14:], s.shndx)
}

// slice returns b[off:off+n], or false when the range is not inside b. It cannot overflow.
func slice(b []byte, off, n uint64) ([]byte, bool) {
	l := uint64(len(b))
	if off > l || n > l-off {
		return nil, false
	}
	return b[off : off+n : off+n], true
}

// alignUp rounds x up to a multiple of a, a power of two; ok is false on overflow.
func alignUp(x, a uint64) (v uint64, ok bool) {
	if a <= 1 {
		return x, true
	}
	v = (x + a - 1) &^ (a - 1)
	return v, v >= x
}

// byteOrder is what binary.LittleEndian and binary.BigEndian are.
type byteOrder interface {
	binary.ByteOrder
	binary.AppendByteOrder
}
