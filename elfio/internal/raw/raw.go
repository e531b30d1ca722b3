// Package raw is how the structures of ELF files are stored, in both classes and both byte orders (System V gABI,
// chapters 4 and 5), and the arithmetic that keeps hostile offsets and sizes harmless. It knows no file: every slice it
// is given has been checked to be long enough, with [Slice].
package raw

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
)

// Codec is the class and byte order of a file. Every structure is read and written through it, so that nothing above
// this package depends on either.
type Codec struct {
	Order ByteOrder
	Is64  bool
}

// CodecOf returns the codec of a file that has been parsed.
func CodecOf(file []byte) Codec {
	c := Codec{binary.LittleEndian, elf.Class(file[elf.EI_CLASS]) == elf.ELFCLASS64}
	if elf.Data(file[elf.EI_DATA]) == elf.ELFDATA2MSB {
		c.Order = binary.BigEndian
	}
	return c
}

func (c Codec) pick(n32, n64 uint64) uint64 {
	if c.Is64 {
		return n64
	}
	return n32
}

// Sizes of the structures in bytes.

func (c Codec) EhdrSize() uint64 { return c.pick(52, 64) }
func (c Codec) PhdrSize() uint64 { return c.pick(32, 56) }
func (c Codec) ShdrSize() uint64 { return c.pick(40, 64) }
func (c Codec) SymSize() uint64  { return c.pick(16, 24) }
func (c Codec) RelSize() uint64  { return c.pick(8, 16) }
func (c Codec) RelaSize() uint64 { return c.pick(12, 24) }
func (c Codec) DynSize() uint64  { return c.pick(8, 16) }
func (c Codec) WordSize() uint64 { return c.pick(4, 8) }

// Word reads an address-sized unsigned integer.
func (c Codec) Word(b []byte) uint64 {
	if c.Is64 {
		return c.Order.Uint64(b)
	}
	return uint64(c.Order.Uint32(b))
}

// PutWord stores an address-sized unsigned integer.
func (c Codec) PutWord(b []byte, v uint64) {
	if c.Is64 {
		c.Order.PutUint64(b, v)
	} else {
		c.Order.PutUint32(b, uint32(v))
	}
}

// Fits reports whether v can be stored in an address-sized field.
func (c Codec) Fits(v uint64) bool { return c.Is64 || v>>32 == 0 }

// Reader takes fixed-size fields off the front of a slice whose length has been checked.
type Reader struct {
	c Codec
	b []byte
}

// Reader reads structures of the codec from b.
func (c Codec) Reader(b []byte) Reader { return Reader{c, b} }

// Fixed-size fields of 2 and 4 bytes, and of an address's size.

func (r *Reader) U16() uint16 {
	v := r.c.Order.Uint16(r.b)
	r.b = r.b[2:]
	return v
}

func (r *Reader) U32() uint32 {
	v := r.c.Order.Uint32(r.b)
	r.b = r.b[4:]
	return v
}

func (r *Reader) Word() uint64 {
	n := r.c.WordSize()
	v := r.c.Word(r.b)
	r.b = r.b[n:]
	return v
}

// Writer stores fixed-size fields into the front of a slice whose length has been checked.
type Writer struct {
	c Codec
	b []byte
}

// Writer writes structures of the codec into b.
func (c Codec) Writer(b []byte) Writer { return Writer{c, b} }

// Fixed-size fields of 2 and 4 bytes, and of an address's size.

func (w *Writer) U16(v uint16) {
	w.c.Order.PutUint16(w.b, v)
	w.b = w.b[2:]
}

func (w *Writer) U32(v uint32) {
	w.c.Order.PutUint32(w.b, v)
	w.b = w.b[4:]
}

func (w *Writer) Word(v uint64) {
	w.c.PutWord(w.b, v)
	w.b = w.b[w.c.WordSize():]
}

// Header is the ELF header as stored: counts are not resolved.
type Header struct {
	Ident                      [elf.EI_NIDENT]byte
	Type, Machine              uint16
	Version                    uint32
	Entry, Phoff, Shoff        uint64
	Flags                      uint32
	Ehsize, Phentsize, Phnum   uint16
	Shentsize, Shnum, Shstrndx uint16
}

// ReadHeader decodes an ELF header.
func (c Codec) ReadHeader(b []byte) (h Header) {
	copy(h.Ident[:], b)
	r := Reader{c, b[16:]}
	h.Type, h.Machine, h.Version = r.U16(), r.U16(), r.U32()
	h.Entry, h.Phoff, h.Shoff = r.Word(), r.Word(), r.Word()
	h.Flags = r.U32()
	h.Ehsize, h.Phentsize, h.Phnum = r.U16(), r.U16(), r.U16()
	h.Shentsize, h.Shnum, h.Shstrndx = r.U16(), r.U16(), r.U16()
	return h
}

// WriteHeader encodes an ELF header.
func (c Codec) WriteHeader(b []byte, h Header) {
	copy(b, h.Ident[:])
	w := Writer{c, b[16:]}
	w.U16(h.Type)
	w.U16(h.Machine)
	w.U32(h.Version)
	w.Word(h.Entry)
	w.Word(h.Phoff)
	w.Word(h.Shoff)
	w.U32(h.Flags)
	w.U16(h.Ehsize)
	w.U16(h.Phentsize)
	w.U16(h.Phnum)
	w.U16(h.Shentsize)
	w.U16(h.Shnum)
	w.U16(h.Shstrndx)
}

// Little64 reports whether the file is of the usual kind, for which the most frequent structures have a short cut.
func (c Codec) Little64() bool { return c.Is64 && c.Order.Uint16([]byte{1, 0}) == 1 }

// Sym is a symbol table entry as stored.
type Sym struct {
	Name        uint32
	Info, Other byte
	Shndx       uint16
	Value, Size uint64
}

// ReadSym decodes a symbol table entry.
func (c Codec) ReadSym(b []byte) (s Sym) {
	if c.Is64 {
		return Sym{
			Name: c.Order.Uint32(b), Info: b[4], Other: b[5], Shndx: c.Order.Uint16(b[6:]),
			Value: c.Order.Uint64(b[8:]), Size: c.Order.Uint64(b[16:]),
		}
	}
	return Sym{
		Name: c.Order.Uint32(b), Value: uint64(c.Order.Uint32(b[4:])), Size: uint64(c.Order.Uint32(b[8:])),
		Info: b[12], Other: b[13], Shndx: c.Order.Uint16(b[14:]),
	}
}

// WriteSym encodes a symbol table entry.
func (c Codec) WriteSym(b []byte, s Sym) {
	c.Order.PutUint32(b, s.Name)
	if c.Is64 {
		b[4], b[5] = s.Info, s.Other
		c.Order.PutUint16(b[6:], s.Shndx)
		c.Order.PutUint64(b[8:], s.Value)
		c.Order.PutUint64(b[16:], s.Size)
		return
	}
	c.Order.PutUint32(b[4:], uint32(s.Value))
	c.Order.PutUint32(b[8:], uint32(s.Size))
	b[12], b[13] = s.Info, s.Other
	c.Order.PutUint16(b[14:], s.Shndx)
}

// Slice returns b[off:off+n], or false when the range is not inside b. It cannot overflow.
func Slice(b []byte, off, n uint64) ([]byte, bool) {
	l := uint64(len(b))
	if off > l || n > l-off {
		return nil, false
	}
	return b[off : off+n : off+n], true
}

// AlignUp rounds x up to a multiple of a, a power of two; ok is false on overflow.
func AlignUp(x, a uint64) (v uint64, ok bool) {
	if a <= 1 {
		return x, true
	}
	v = (x + a - 1) &^ (a - 1)
	return v, v >= x
}

// ByteOrder is what binary.LittleEndian and binary.BigEndian are.
type ByteOrder interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

// Disp32 returns the distance of an address from another as 32 bits; what names the thing at to in the error.
func Disp32(what string, to, from uint64) (uint32, error) {
	d := int64(to - from)
	if d != int64(int32(d)) {
		return 0, fmt.Errorf("%s at %#x is farther than 2 GiB from %#x", what, to, from)
	}
	return uint32(d), nil
}

// AllZero reports whether b is zeroes only.
func AllZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// CString returns the bytes of b up to the first NUL, all of b when there is none.
func CString(b []byte) []byte {
	if n := bytes.IndexByte(b, 0); n >= 0 {
		return b[:n]
	}
	return b
}

// MaxTLS bounds thread-local memory: 24 bits are what the relocations of AArch64's local-exec model reach.
const MaxTLS = 1 << 24
