package inject

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
	"github.com/fentry-dev/fentry/elfio/link"
	"github.com/fentry-dev/fentry/internal/cost"
)

// hostileImage has sections and program headers of every kind by the ten thousand, all over the same bytes.
func hostileImage(sections, progs int) []byte {
	c := raw.Codec{Order: binary.LittleEndian, Is64: true}
	const body, ehdr, phdr, shdr = 1 << 20, 64, 56, 64
	size := ehdr + progs*phdr + body + sections*shdr
	image := make([]byte, size)
	at := uint64(ehdr + progs*phdr)
	h := raw.Header{Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Phoff: ehdr, Phentsize: phdr,
		Phnum:  uint16(progs),
		Ehsize: ehdr, Shoff: at + body, Shentsize: shdr, Shstrndx: 1}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	none := h
	none.Phoff, none.Phnum, none.Shoff, none.Shstrndx = 0, 0, 0, 0
	c.WriteHeader(image, none)
	f, err := elfio.Parse(image) // to encode with
	if err != nil {
		panic(err)
	}
	c.WriteHeader(image, h)
	for i := range progs {
		p := elfio.Prog{Type: elf.ProgType(i % 8), Flags: elf.ProgFlag(i % 8), Off: at, Vaddr: at, Paddr: at, Filesz: body,
			Memsz: body, Align: 1}
		if i == 0 {
			p = elfio.Prog{Type: elf.PT_LOAD, Flags: 7, Filesz: uint64(size), Memsz: uint64(size)}
		}
		f.PutProg(image[ehdr+i*phdr:], p)
	}
	fill := image[at : at+body]
	for i := range fill { // names without end, notes, symbols: anything but zero
		fill[i] = byte(1 + i%3)
	}
	fill[body-1] = 0
	for i := range sections {
		s := elfio.Section{Type: elf.SectionType(i % 20), Flags: elf.SectionFlag(i % 8), NameOff: uint32(i % 1000), Addr: at,
			Off: at, Size: body, Link: 1, Addralign: 1}
		if i > 20 && (s.Type == elf.SHT_SYMTAB || s.Type == elf.SHT_DYNSYM) || s.Type == elf.SHT_GROUP {
			s.Type = elf.SHT_GNU_HASH // a second symbol table and overlapping groups are refused early
		}
		if s.Type == elf.SHT_NOBITS {
			s.Flags = elf.SHF_ALLOC
		}
		if s.Type == elf.SHT_SYMTAB || s.Type == elf.SHT_STRTAB {
			s.Flags = 0
		}
		switch {
		case i == 0:
			s = elfio.Section{Size: uint64(sections)}
		case i == 1:
			s = elfio.Section{Type: elf.SHT_STRTAB, Off: at, Size: body}
		case s.Type == elf.SHT_SYMTAB || s.Type == elf.SHT_DYNSYM:
			s.Entsize = 24
		}
		f.PutSection(image[int(h.Shoff)+i*shdr:], &s)
	}
	return image
}

// Nothing takes more than linear time, whatever the headers say.
func TestHostileIsBounded(t *testing.T) {
	for _, raw := range [][]byte{hostileImage(200000, 60000), hostileImage(200000, 1), hostileImage(2, 60000),
		elftest.DropSections(t, hostileImage(2, 60000))} {
		t.Logf("%d bytes", len(raw))
		cost.Time(t, func() {
			f, err := elfio.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = ehframe.Read(f)
			_, _ = ExtendDynamic(f, 0, []DynReloc{{Off: 1, Type: 8, Symbol: "x"}})
			_, _ = link.Object(f, link.Options{})
			_, _, _ = link.WritableSize(f)
			l, err := NewLayout(f, Memory{RW: 100, RWAlign: 8})
			t.Logf("Layout: %v", err)
			if err == nil {
				out, err := injected(f, Injection{Layout: l, RX: []byte{0xc3},
					Sections: []Section{{Name: ".fentry.text", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC, Addr: l.RX,
						Size: 1}}, Symbols: []Symbol{{Name: "fentry:x", Value: l.RX}}})
				t.Logf("Inject: %v", err)
				if err == nil {
					if back, err := Undo(out); err != nil || !bytes.Equal(back, raw) {
						t.Errorf("Uninject does not give the original (%v)", err)
					}
				}
			}
		})
	}
}
