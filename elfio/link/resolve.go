package link

import (
	"cmp"
	"debug/elf"
	"fmt"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// Symbols and relocations.
//
// A symbol stands for a place in the object, for an address the caller gave, for nothing (weak), or for something the
// dynamic linker supplies, which is reached through a word of zeroed memory. An undefined symbol is refused by the
// first relocation that uses it and not before: compilers leave names behind that nothing refers to.

// resolve gives every symbol its target.
func (l *linker) resolve() error {
	l.value = make([]target, len(l.syms))
	for i, s := range l.syms {
		t := target{name: s.Name}
		switch {
		case !s.Defined():
			if s.Name == "" {
				break
			}
			if addr, ok := l.o.Symbols[s.Name]; ok {
				t.addr = addr
			} else if s.Bind() != elf.STB_WEAK {
				t.absent = fmt.Errorf("undefined symbol")
			} else if l.o.Import != nil && l.o.Import(s.Name) {
				t.imported = true
			} else {
				t.undef = true
			}
		case s.Reserved():
			switch elf.SectionIndex(s.Shndx) {
			case elf.SHN_ABS:
				t.addr, t.absolute = s.Value, true
			case elf.SHN_COMMON: // st_value is the alignment
				addr, err := l.allocRW(s.Size, s.Value)
				if err != nil {
					return fmt.Errorf("common symbol %s: %w", s.Name, err)
				}
				t.addr = addr
				l.placed(elfio.Section{Name: ".bss", Type: elf.SHT_NOBITS, Flags: elf.SHF_ALLOC | elf.SHF_WRITE, Size: s.Size},
					addr, max(s.Value, 1))
				l.define(s, addr)
			default:
				t.absent = fmt.Errorf("symbol in reserved section %#x", s.Shndx)
			}
		case s.Type() == elf.STT_TLS || l.isTLS(s):
			off, ok := l.tls[int(s.Section)]
			if !ok {
				t.absent = fmt.Errorf("thread-local, but section %d is not", s.Section)
				break
			}
			t.addr, t.tls = off+s.Value, true
		default:
			addr, ok := l.addr[int(s.Section)]
			if !ok {
				t.absent = fmt.Errorf("defined in section %d, which is not part of the memory image", s.Section)
				break
			}
			if s.Type() == elf.STT_SECTION && s.Name == "" {
				t.name = l.obj.Sections[s.Section].Name
			}
			t.addr = addr + s.Value
			l.define(s, t.addr)
		}
		l.value[i] = t
	}
	return nil
}

// define records a symbol of the object.
func (l *linker) define(s elfio.Symbol, addr uint64) {
	if s.Name == "" || s.Type() == elf.STT_SECTION || s.Type() == elf.STT_FILE || strings.HasPrefix(s.Name, ".L") {
		return
	}
	if _, ok := l.out.Symbols[s.Name]; !ok || s.Bind() != elf.STB_LOCAL {
		l.out.Symbols[s.Name] = addr
	}
	l.out.Defined = append(l.out.Defined, Symbol{s.Name, addr, s.Size, s.Info})
}

// relocate applies the relocations of all placed sections.
func (l *linker) relocate() error {
	for i, s := range l.obj.Sections {
		if s.Type != elf.SHT_RELA && s.Type != elf.SHT_REL {
			continue
		}
		base, ok := l.addr[int(s.Info)]
		if !ok {
			continue // debug information and the like
		}
		rels, err := l.obj.Relocs(i)
		if err != nil {
			return err
		}
		t := l.obj.Sections[s.Info]
		if len(rels) > 0 && s.Type == elf.SHT_REL {
			return elfio.FormatErrorf(l.obj.SectionLabel(i), s.Off, "relocations without addends are not of this machine's ABI")
		}
		for k, rel := range rels {
			r := &relocation{Reloc: rel, section: int(s.Info), base: base}
			if rel.Sym > uint32(len(l.syms)) {
				return elfio.FormatErrorf(l.obj.SectionLabel(i), s.Off+uint64(k)*l.c.RelaSize(), "symbol %d of %d", rel.Sym,
					len(l.syms)+1)
			}
			r.target = target{absolute: true} // symbol 0 stands for the value 0
			if rel.Sym != 0 {
				r.target = l.value[rel.Sym-1]
			}
			if rel.Type == 0 { // R_*_NONE
				continue
			}
			if t.Flags&elf.SHF_WRITE != 0 {
				return l.errAt(r, "writable memory is zeroed, a pointer in it would need a dynamic relocation")
			}
			if r.target.absent != nil {
				return l.errAt(r, "%v", r.target.absent)
			}
			if rel.Off > t.Size {
				return l.errAt(r, "place is outside the section of %#x bytes", t.Size)
			}
			start := base - l.o.RX
			r.buf = l.out.RX[start : start+t.Size : start+t.Size]
			if err := l.apply(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// field returns n bytes at d bytes from the relocation's place.
func (l *linker) field(r *relocation, d int64, n uint64) ([]byte, error) {
	b, ok := raw.Slice(r.buf, r.Off+uint64(d), n)
	if !ok {
		return nil, l.errAt(r, "place is outside the section of %#x bytes", len(r.buf))
	}
	return b, nil
}

// slot returns the address of the word the dynamic linker stores an imported symbol's address in.
func (l *linker) slot(name string) (uint64, error) {
	if a, ok := l.slots[name]; ok {
		return a, nil
	}
	a, err := l.allocRW(8, 8)
	if err != nil {
		return 0, err
	}
	if l.slots == nil {
		l.slots = map[string]uint64{}
	}
	l.slots[name] = a
	l.out.Imports = append(l.out.Imports, Import{name, a})
	l.placed(elfio.Section{Name: ".got", Type: elf.SHT_NOBITS, Flags: elf.SHF_ALLOC | elf.SHF_WRITE, Size: 8}, a, 8)
	return a, nil
}

// zeroWord returns the address of a word of zeroes in RX: the table entry of an undefined weak symbol.
func (l *linker) zeroWord() uint64 {
	if l.zero == 0 {
		l.padRX(8)
		l.zero = l.o.RX + uint64(len(l.out.RX))
		l.placed(elfio.Section{Name: ".got", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC, Size: 8}, l.zero, 8)
		l.out.RX = append(l.out.RX, make([]byte, 8)...)
	}
	return l.zero
}

// reload fetches the relocated bytes again after RX has grown.
func (l *linker) reload(r *relocation) {
	start := r.base - l.o.RX
	r.buf = l.out.RX[start : start+uint64(len(r.buf)) : start+uint64(len(r.buf))]
}

// finish collects the result.
func (l *linker) finish() (*Linked, error) {
	out := l.out
	for i, s := range l.obj.Sections {
		if a, ok := l.addr[i]; ok && s.Name == ".eh_frame" && s.Size > 0 && out.EhFrame.Data == nil {
			out.EhFrame = Placed{a, out.RX[a-l.o.RX : a-l.o.RX+s.Size]}
			var err error
			if out.Frames, err = ehframe.Parse(l.obj, out.EhFrame.Data, a); err != nil {
				return nil, err
			}
		}
	}
	slices.SortStableFunc(out.Defined, func(a, b Symbol) int { return cmp.Compare(a.Value, b.Value) })
	slices.SortStableFunc(out.Sections, func(a, b Section) int {
		if w := cmp.Compare(a.Flags&elf.SHF_WRITE, b.Flags&elf.SHF_WRITE); w != 0 {
			return w
		}
		return cmp.Compare(a.Addr, b.Addr)
	})
	return out, nil
}
