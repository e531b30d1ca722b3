package objects

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"

	"github.com/fentry-dev/fentry/elfio/object"
)

var errNoOriginal = errors.New("its " + TableName +
	" was made by a compiler or put together by a linker: there is no original to restore")

// stripCompat undoes what recordmcount, or this package with Options.Compat, has done. The old section headers are
// still in the file, behind all that was there; the calls that became nops are known by their relocations, which keep
// the symbol.
func stripCompat(b []byte) ([]byte, error) {
	ob, err := Parse(b, Options{})
	if err != nil {
		return nil, err
	}
	f := ob.f
	if f.SectionIndex(TableName) < 0 {
		// Nothing but nops may have been written, or nothing at all.
		out := bytes.Clone(b)
		n, err := ob.restoreCalls(out)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, ErrNoTable
		}
		return out, nil
	}
	n := len(f.Sections)
	if n < 4 || f.Sections[n-2].Name != TableName || f.Sections[n-1].Info != uint32(n-2) ||
		f.SectionIndex(TableName) != n-2 {
		return nil, errNoOriginal
	}
	names := &f.Sections[f.Header.Shstrndx]
	size := names.Off // the new name table stands where the old file ended
	added := uint64(len(f.Sections[n-1].Name) + 1)
	if size > uint64(len(b)) || names.Size < added || f.Header.Shoff < size {
		return nil, errNoOriginal
	}
	shoff, err := ob.oldHeaders(b[:size], n-2)
	if err != nil {
		return nil, err
	}
	data, err := f.SectionData(int(f.Header.Shstrndx))
	if err != nil {
		return nil, err
	}
	data = data[:uint64(len(data))-added]
	off, ok := findNames(b[:size], shoff, data)
	if !ok {
		return nil, errNoOriginal
	}
	out := bytes.Clone(b[:size])
	object.RestoreHeaders(f, out, shoff, n-2, off, uint64(len(data)))
	_, err = ob.restoreCalls(out)
	return out, err
}

// findNames finds the old name table in b, whose section headers are at shoff.
func findNames(b []byte, shoff uint64, names []byte) (uint64, bool) {
	off := bytes.LastIndex(b[:shoff], names) // assemblers write it in front of the headers
	if off < 0 {
		off = bytes.LastIndex(b, names)
	}
	return uint64(off), off >= 0
}

// namesFound reports whether findNames finds the name table of an object that has no other one yet.
func (ob *Object) namesFound() bool {
	f := ob.f
	names, err := f.SectionData(int(f.Header.Shstrndx))
	if err != nil {
		return false
	}
	off, ok := findNames(f.Raw(), f.Header.Shoff, names)
	headers := uint64(len(f.Sections)) * uint64(f.Header.Shentsize)
	return ok && off == f.Sections[f.Header.Shstrndx].Off &&
		(off >= f.Header.Shoff+headers || off+uint64(len(names)) <= f.Header.Shoff)
}

// oldHeaders finds the section header table with n entries that b still holds. It is equal to the new one.
func (ob *Object) oldHeaders(b []byte, n int) (shoff uint64, err error) {
	f := ob.f
	size := uint64(n) * uint64(f.Header.Shentsize)
	table := f.Raw()[f.Header.Shoff:]
	// The table is the last thing an assembler writes, so the search ends soon.
	k := bytes.LastIndex(b, table[:size])
	if k < 0 {
		return 0, errNoOriginal
	}
	return uint64(k), nil
}

// restoreCalls puts the calls back that became nops: relocations of type R_*_NONE to a profiling symbol in front of
// such nops. out begins like the object. Their type is that of the object's other calls, or what assemblers use.
func (ob *Object) restoreCalls(out []byte) (int, error) {
	f := ob.f
	var call uint32
	switch f.Header.Machine {
	case elf.EM_X86_64:
		call = uint32(elf.R_X86_64_PLT32)
	case elf.EM_AARCH64:
		call = uint32(elf.R_AARCH64_CALL26)
		if !f.Is64() {
			call = uint32(elf.R_AARCH64_P32_CALL26)
		}
	case elf.EM_ARM:
		call = uint32(elf.R_ARM_CALL)
	default:
		return 0, nil
	}
	for i := range ob.parts {
		for _, s := range ob.parts[i].sites {
			if r := ob.parts[i].rel.At(int(s.rel)); s.hit.form == FormCall && r.Type != uint32(elf.R_ARM_THM_PC22) {
				call = r.Type
			}
		}
	}
	n := 0
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Type != elf.SHT_REL && s.Type != elf.SHT_RELA || s.Size == 0 || s.Info >= uint32(len(f.Sections)) ||
			!isCode(&f.Sections[s.Info]) {
			continue
		}
		t, err := f.RelocTable(i)
		if err != nil {
			return n, err
		}
		if ob.syms == nil || t.Symtab != ob.syms.Section {
			continue
		}
		data, err := f.SectionData(t.Target)
		if err != nil {
			return n, err
		}
		c := code{data, orderOf(f), f.Is64()}
		off := f.Sections[t.Target].Off
		var failed error
		t.Scan(ob.marks, func(k int) {
			r := t.At(k)
			if r.Type != 0 {
				return
			}
			at, old, typ := oldCall(f.Header.Machine, &c, r.Off, call)
			if old == nil {
				failed = fmt.Errorf("%s: entry %d at offset %#x: no nops that replaced a call at %#x", ob.label(i), k,
					t.FileOff(k), r.Off)
				return
			}
			copy(out[off+at:], old)
			copy(out[t.FileOff(k):], t.With(k, r.Sym, typ))
			n++
		})
		if failed != nil {
			return n, failed
		}
	}
	return n, nil
}

// oldCall returns what stood where recordmcount has put its nops.
func oldCall(m elf.Machine, c *code, off uint64, call uint32) (at uint64, old []byte, typ uint32) {
	switch m {
	case elf.EM_X86_64:
		if b, ok := c.bytes(off-1, 5); ok && off >= 1 && bytes.Equal(b, nop5x64) {
			return off - 1, []byte{0xe8, 0, 0, 0, 0}, call
		}
	case elf.EM_AARCH64:
		if b, ok := c.bytes(off, 4); ok && string(b) == "\x1f\x20\x03\xd5" {
			return off, []byte{0, 0, 0, 0x94}, call
		}
	case elf.EM_ARM:
		bl := c.order.AppendUint32(nil, 0xebfffffe)
		if w, ok := c.word32(off); ok && w == 0xe1a00000 {
			if p, ok := c.word32(off - 4); ok && off >= 4 && p == 0xe1a00000 {
				return off - 4, append(c.order.AppendUint32(nil, 0xe52de004), bl...), call
			}
			return off, bl, call
		}
		n0, ok0 := c.half(off - 2)
		n1, ok1 := c.half(off)
		n2, ok2 := c.half(off + 2)
		if off >= 2 && ok0 && ok1 && ok2 && n0 == 0xbf00 && n1 == 0xbf00 && n2 == 0xbf00 {
			b := c.order.AppendUint16(nil, 0xb500)
			b = c.order.AppendUint16(b, 0xf7ff)
			return off - 2, c.order.AppendUint16(b, 0xfffe), uint32(elf.R_ARM_THM_PC22)
		}
	}
	return 0, nil, 0
}
