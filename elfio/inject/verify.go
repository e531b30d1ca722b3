package inject

import (
	"debug/elf"
	"fmt"
	"strings"

	"github.com/fentry-dev/fentry/elfio"
)

// Verify checks an injected image: the original can be restored, loaders will map the additions where the code
// expects them, and the section headers agree with the program headers. It reads the whole image.
func Verify(file *elfio.File) error {
	f := newImage(file)
	if _, err := Undo(f.raw); err != nil {
		return err
	}
	page := f.pageSize()
	last := elfio.Prog{}
	for i, p := range f.Progs {
		bad := func(format string, args ...any) error {
			return elfio.FormatErrorf(f.ProgLabel(i), f.Header.Phoff+uint64(i)*uint64(f.Header.Phentsize), format, args...)
		}
		if _, err := f.ProgData(i); err != nil {
			return err
		}
		switch p.Type {
		case elf.PT_LOAD:
			if p.Align > 1 && (p.Vaddr-p.Off)&(p.Align-1) != 0 {
				return bad("offset %#x is not congruent to address %#x modulo %#x", p.Off, p.Vaddr, p.Align)
			}
			if last.Type == elf.PT_LOAD && p.Vaddr < last.Vaddr && p.Vaddr+p.Memsz > last.Vaddr&^(page-1) {
				return bad("overlaps the segment at %#x", last.Vaddr)
			}
			last = p
		case elf.PT_PHDR:
			if n := uint64(len(f.Progs)) * f.c.PhdrSize(); p.Filesz != n || p.Off != f.Header.Phoff {
				return bad("covers %#x bytes at %#x, the table has %#x at %#x", p.Filesz, p.Off, n, f.Header.Phoff)
			}
		case elf.PT_INTERP, elf.PT_NOTE, elf.PT_DYNAMIC, elf.PT_GNU_EH_FRAME:
			if off, ok := f.Offset(p.Vaddr); p.Filesz > 0 && (!ok || off != p.Off) {
				return bad("address %#x is not loaded from offset %#x", p.Vaddr, p.Off)
			}
		}
	}
	if p, ok := f.load(f.Header.Entry); f.Header.Type == elf.ET_EXEC && f.Header.Entry != 0 &&
		(!ok || p.Flags&elf.PF_X == 0) {
		return elfio.FormatErrorf("ELF header", 24, "entry point %#x is not in an executable segment", f.Header.Entry)
	}
	for i, s := range f.Sections {
		if s.Flags&elf.SHF_ALLOC == 0 || s.Size == 0 || !strings.HasPrefix(s.Name, ".fentry") {
			continue
		}
		p, ok := f.load(s.Addr)
		if !ok || s.Size > p.Memsz-(s.Addr-p.Vaddr) {
			return elfio.FormatErrorf(f.SectionLabel(i), s.Off, "address %#x+%#x is not in a segment", s.Addr, s.Size)
		}
		if s.Type == elf.SHT_NOBITS {
			if s.Addr < p.Vaddr+p.Filesz || p.Flags&elf.PF_W == 0 {
				return elfio.FormatErrorf(f.SectionLabel(i), s.Off, "address %#x is not zeroed, writable memory", s.Addr)
			}
		} else if s.Off-p.Off != s.Addr-p.Vaddr || s.Addr-p.Vaddr+s.Size > p.Filesz {
			return elfio.FormatErrorf(f.SectionLabel(i), s.Off, "address %#x is not loaded from there", s.Addr)
		}
	}
	if ent := f.Header.Shentsize; len(f.Sections) > 0 && uint64(ent) != f.c.ShdrSize() {
		return fmt.Errorf("section header entries have %d bytes, want %d", ent, f.c.ShdrSize())
	}
	return nil
}
