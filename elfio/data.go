package elfio

import (
	"bytes"
	"debug/elf"
	"fmt"
	"sort"

	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// SectionIndex returns the index of the first section with the given name, or -1 if there is none.
func (f *File) SectionIndex(name string) int {
	for i := range f.Sections {
		if f.Sections[i].Name == name {
			return i
		}
	}
	return -1
}

// ProgIndex returns the index of the first program header of type t, or -1 if there is none.
func (f *File) ProgIndex(t elf.ProgType) int {
	for i := range f.Progs {
		if f.Progs[i].Type == t {
			return i
		}
	}
	return -1
}

// sectionOfType returns the index of the first section of that type, -1 when there is none.
func (f *File) sectionOfType(t elf.SectionType) int {
	for i := range f.Sections {
		if f.Sections[i].Type == t {
			return i
		}
	}
	return -1
}

// SectionLabel returns the name of section i for error messages.
func (f *File) SectionLabel(i int) string {
	if i >= 0 && i < len(f.Sections) && f.Sections[i].Name != "" {
		name := f.Sections[i].Name
		if len(name) > maxLabel {
			name = name[:maxLabel] + "..."
		}
		return fmt.Sprintf("section %d (%s)", i, name)
	}
	return fmt.Sprintf("section %d", i)
}

// maxLabel bounds the part of a section name that an error message repeats.
const maxLabel = 80

// ProgLabel returns the name of program header i for error messages.
func (f *File) ProgLabel(i int) string {
	return fmt.Sprintf("program header %d (%v)", i, f.Progs[i].Type)
}

// SectionData returns the contents of section i as stored, as a sub-slice of Raw, or nil for a section without
// contents in the file (SHT_NOBITS, SHT_NULL). Compressed sections are not expanded.
func (f *File) SectionData(i int) ([]byte, error) {
	if i < 0 || i >= len(f.Sections) {
		return nil, FormatErrorf("section header table", f.Header.Shoff, "no section %d of %d", i, len(f.Sections))
	}
	s := &f.Sections[i]
	if s.Type == elf.SHT_NOBITS || s.Type == elf.SHT_NULL {
		return nil, nil
	}
	b, ok := raw.Slice(f.raw, s.Off, s.Size)
	if !ok {
		return nil, FormatErrorf(f.SectionLabel(i), s.Off, "%#x bytes end outside the file of %#x bytes", s.Size, len(f.raw))
	}
	return b, nil
}

// ProgData returns the file contents of a program header.
func (f *File) ProgData(i int) ([]byte, error) {
	p := f.Progs[i]
	b, ok := raw.Slice(f.raw, p.Off, p.Filesz)
	if !ok {
		return nil, FormatErrorf(f.ProgLabel(i), p.Off, "%#x bytes end outside the file of %#x bytes", p.Filesz, len(f.raw))
	}
	return b, nil
}

// load returns the PT_LOAD segment that holds addr in its memory image.
func (f *File) load(addr uint64) (Prog, bool) {
	i := sort.Search(len(f.loads), func(i int) bool { return f.loads[i].Vaddr > addr }) - 1
	if i < 0 || addr-f.loads[i].Vaddr >= f.loads[i].Memsz {
		return Prog{}, false
	}
	return f.loads[i], true
}

// Offset returns the file offset of a loaded address. ok is false if no PT_LOAD segment covers the address with file
// contents (bss, a gap), and always for relocatable objects.
func (f *File) Offset(addr uint64) (off uint64, ok bool) {
	b, off := f.From(addr)
	return off, len(b) > 0
}

// From returns the file-backed bytes from addr to the end of its segment, and their file offset.
func (f *File) From(addr uint64) ([]byte, uint64) {
	p, ok := f.load(addr)
	if !ok {
		return nil, 0
	}
	seg, ok := raw.Slice(f.raw, p.Off, p.Filesz)
	d := addr - p.Vaddr
	if !ok || d >= uint64(len(seg)) {
		return nil, 0
	}
	return seg[d:], p.Off + d
}

// Segment returns the file-backed bytes of the segment that holds a loaded address, up to where another segment
// begins, with the address and the file offset of the first byte. ok is false where that of [File.Offset] is.
func (f *File) Segment(addr uint64) (start, off uint64, data []byte, ok bool) {
	if _, ok = f.Offset(addr); !ok {
		return 0, 0, nil, false
	}
	p, _ := f.load(addr)
	data, _ = raw.Slice(f.raw, p.Off, p.Filesz)
	if i := sort.Search(len(f.loads), func(i int) bool { return f.loads[i].Vaddr > addr }); i < len(f.loads) {
		if n := f.loads[i].Vaddr - p.Vaddr; n < uint64(len(data)) {
			data = data[:n]
		}
	}
	return p.Vaddr, p.Off, data, true
}

// Bytes returns n file-backed bytes at a loaded address, as a sub-slice of Raw.
func (f *File) Bytes(addr uint64, n int) ([]byte, error) {
	b, off := f.From(addr)
	if b == nil || n < 0 {
		return nil, FormatErrorf(fmt.Sprintf("address %#x", addr), 0, "no loaded segment has file contents there")
	}
	if n > len(b) {
		return nil, FormatErrorf(fmt.Sprintf("address %#x", addr), off, "%d bytes wanted, %d before the end of the segment",
			n, len(b))
	}
	return b[:n:n], nil
}

// Overlay returns the range of the file after everything its headers describe: data that self-extracting programs,
// AppImages and the like append and look for from the end of the file. An injection follows it, so such programs may
// no longer find it. n is 0 for most files, also where only zeroes follow, with which linkers fill files up, as that of
// go1.21 does for arm64.
func (f *File) Overlay() (off, n uint64) {
	end := f.c.EhdrSize()
	cover := func(off, n uint64) {
		if n > 0 && off+n > off {
			end = max(end, off+n)
		}
	}
	cover(f.Header.Phoff, uint64(f.Header.Phnum)*uint64(f.Header.Phentsize))
	cover(f.Header.Shoff, uint64(f.Header.Shnum)*uint64(f.Header.Shentsize))
	for _, p := range f.Progs {
		if p.Type != elf.PT_NULL {
			cover(p.Off, p.Filesz)
		}
	}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOBITS && s.Type != elf.SHT_NULL {
			cover(s.Off, s.Size)
		}
	}
	if rest := bytes.TrimRight(f.raw[min(end, uint64(len(f.raw))):], "\x00"); len(rest) > 0 {
		return end, uint64(len(f.raw)) - end
	}
	return end, 0
}
