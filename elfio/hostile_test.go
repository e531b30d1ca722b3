package elfio

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"
	"time"
)

// hostileImage has sections and program headers of every kind by the ten thousand, all over the same bytes.
func hostileImage(sections, progs int) []byte {
	c := codec{order: binary.LittleEndian, is64: true}
	const body = 1 << 20
	size := ehdr64 + progs*phdr64 + body + sections*shdr64
	raw := make([]byte, size)
	at := uint64(ehdr64 + progs*phdr64)
	h := rawHeader{typ: uint16(elf.ET_DYN), machine: uint16(elf.EM_X86_64), version: 1, phoff: ehdr64, phentsize: phdr64, phnum: uint16(progs),
		ehsize: ehdr64, shoff: at + body, shentsize: shdr64, shstrndx: 1}
	copy(h.ident[:], "\x7fELF\x02\x01\x01")
	c.writeHeader(raw, h)
	for i := range progs {
		p := Prog{Type: elf.ProgType(i % 8), Flags: elf.ProgFlag(i % 8), Off: at, Vaddr: at, Paddr: at, Filesz: body, Memsz: body, Align: 1}
		if i == 0 {
			p = Prog{Type: elf.PT_LOAD, Flags: 7, Filesz: uint64(size), Memsz: uint64(size)}
		}
		c.writeProg(raw[ehdr64+i*phdr64:], p)
	}
	fill := raw[at : at+body]
	for i := range fill { // names without end, notes, symbols: anything but zero
		fill[i] = byte(1 + i%3)
	}
	fill[body-1] = 0
	for i := range sections {
		s := Section{Type: elf.SectionType(i % 20), Flags: elf.SectionFlag(i % 8), NameOff: uint32(i % 1000), Addr: at, Off: at, Size: body, Link: 1, Addralign: 1}
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
			s = Section{Size: uint64(sections)}
		case i == 1:
			s = Section{Type: elf.SHT_STRTAB, Off: at, Size: body}
		case s.Type == elf.SHT_SYMTAB || s.Type == elf.SHT_DYNSYM:
			s.Entsize = sym64
		}
		c.writeSection(raw[int(h.shoff)+i*shdr64:], s)
	}
	return raw
}

// Nothing takes more than linear time, whatever the headers say.
func TestHostileIsBounded(t *testing.T) {
	for _, raw := range [][]byte{hostileImage(200000, 60000), hostileImage(200000, 1), hostileImage(2, 60000), dropSections(t, hostileImage(2, 60000))} {
		start := time.Now()
		f, err := Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		touch(f)
		_, _ = f.FDEs()
		_, _ = f.ExtendDynamic(0, []DynReloc{{Off: 1, Type: 8, Symbol: "x"}})
		_, _ = LinkObject(f, LinkOptions{})
		_, _, _ = WritableSize(f)
		l, err := f.Layout(100, 8)
		t.Logf("Layout: %v", err)
		if err == nil {
			out, err := f.Inject(Injection{Layout: l, RX: []byte{0xc3}, Sections: []AddedSection{{Name: ".fentry.text", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC, Addr: l.RX, Size: 1}}, Symbols: []AddedSymbol{{Name: "fentry:x", Value: l.RX}}})
			t.Logf("Inject: %v", err)
			if err == nil {
				if back, err := Uninject(out); err != nil || !bytes.Equal(back, raw) {
					t.Errorf("Uninject does not give the original (%v)", err)
				}
			}
		}
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("%v for %d bytes with %d sections and %d program headers", d, len(raw), len(f.Sections), len(f.Progs))
		} else {
			t.Logf("%v", d)
		}
	}
}
