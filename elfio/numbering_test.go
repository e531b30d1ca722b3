package elfio

import (
	"bytes"
	"debug/elf"
	"fmt"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio/internal/elftest"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// An object with more sections than 16 bits number: e_shnum and e_shstrndx are in section header 0, symbols
// have their section in SHT_SYMTAB_SHNDX.
func TestExtendedSectionNumbers(t *testing.T) {
	testtool.Need(t, "gcc")
	var src strings.Builder
	const n = 66000
	for i := range n {
		fmt.Fprintf(&src, ".section .s%d,\"a\"\ns%d: .byte %d\n", i, i, i&0xff)
	}
	raw := elftest.Compile(t, "sections.o", ".s", src.String(), "gcc", "-c")
	f, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	want, err := elf.NewFile(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Sections) != len(want.Sections) || len(f.Sections) < n {
		t.Fatalf("%d sections, debug/elf has %d", len(f.Sections), len(want.Sections))
	}
	for i, s := range want.Sections {
		if f.Sections[i].Name != s.Name {
			t.Fatalf("section %d is %q, debug/elf has %q", i, f.Sections[i].Name, s.Name)
		}
	}
	if b, err := f.Encode(); err != nil || !bytes.Equal(b, raw) {
		t.Errorf("encoding gives another image (%v)", err)
	}
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, s := range syms {
		if s.Name == "" || s.Reserved() {
			continue
		}
		seen++
		if got := f.Sections[s.Section].Name; got != "."+s.Name {
			t.Fatalf("symbol %s is in section %s", s.Name, got)
		}
	}
	if seen != n {
		t.Errorf("%d symbols", seen)
	}
}

// A core file with more program headers than 16 bits number has their count in section header 0.
func TestExtendedProgramHeaders(t *testing.T) {
	const n = 70000
	f, err := Parse(elftest.Images(t)["x86_64-exec"])
	if err != nil {
		t.Fatal(err)
	}
	raw := make([]byte, 64+n*56+64)
	h := f.hdr
	h.Type = uint16(elf.ET_CORE)
	h.Phoff, h.Phnum = 64, 0xffff
	h.Shoff, h.Shnum, h.Shstrndx = 64+n*56, 1, 0
	f.c.WriteHeader(raw, h)
	for i := range n {
		f.PutProg(raw[64+i*56:], Prog{Type: elf.PT_LOAD, Vaddr: uint64(i) << 12, Memsz: 1 << 12, Align: 1})
	}
	f.PutSection(raw[h.Shoff:], &Section{Info: n})
	g, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Progs) != n || g.Header.Phnum != n {
		t.Errorf("%d program headers", len(g.Progs))
	}
	if b, err := g.Encode(); err != nil || !bytes.Equal(b, raw) {
		t.Errorf("encoding gives another image (%v)", err)
	}
	if p, ok := g.load(12345<<12 + 5); !ok || p.Vaddr != 12345<<12 {
		t.Errorf("segment %+v", p)
	}
}
