package elfio

import (
	"bytes"
	"debug/elf"
	"fmt"
	"strings"
	"testing"
)

// An object with more sections than 16 bits number: e_shnum and e_shstrndx are in section header 0, symbols
// have their section in SHT_SYMTAB_SHNDX.
func TestExtendedSectionNumbers(t *testing.T) {
	need(t, "gcc", "gcc")
	var src strings.Builder
	const n = 66000
	for i := range n {
		fmt.Fprintf(&src, ".section .s%d,\"a\"\ns%d: .byte %d\n", i, i, i&0xff)
	}
	raw := compile(t, "sections.o", ".s", src.String(), "gcc", "-c")
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
		if s.Name == "" || s.reserved() {
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

// manySections gives an image section headers up to number n.
func manySections(t *testing.T, raw []byte, n uint32) []byte {
	t.Helper()
	f, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	out := bytes.Clone(raw)
	h := f.hdr
	h.shoff = uint64(len(out))
	h.shnum = 0
	f.c.writeHeader(out, h)
	for i := range n {
		s := Section{Type: elf.SHT_PROGBITS, Addralign: 1}
		if int(i) < len(f.Sections) {
			s = f.Sections[i]
		}
		if i == 0 {
			s.Size = uint64(n)
		}
		b := make([]byte, f.c.shdrSize())
		f.c.writeSection(b, s)
		out = append(out, b...)
	}
	return out
}

// Injection crosses from plain to extended section numbers, and stays there.
func TestInjectExtendedSectionNumbers(t *testing.T) {
	tiny := testImages(t)["x86_64-exec"]
	for _, n := range []uint32{0xfefe, 0xfeff, 0xff00, 0xff01, 70000} {
		f, err := Parse(manySections(t, tiny, n))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := f.Encode(); err != nil || !bytes.Equal(b, f.raw) {
			t.Errorf("%#x sections: encoding gives another image (%v)", n, err)
		}
		l, err := f.Layout(64, 8)
		if err != nil {
			t.Fatal(err)
		}
		rx := []byte("code")
		out, err := f.Inject(Injection{Layout: l, RX: rx, Symbols: []AddedSymbol{{Name: "fentry:x", Value: l.RX, Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC)}}})
		if err != nil {
			t.Fatal(err)
		}
		g, err := Parse(out)
		if err != nil {
			t.Fatal(err)
		}
		if len(g.Sections) != int(n)+3 { // .fentry.rx, .fentry.bss, .fentry.undo
			t.Errorf("%#x sections became %#x", n, len(g.Sections))
		}
		if msg := checkInjected(f, out, l, rx); msg != "" {
			t.Errorf("%#x sections: %s", n, msg)
		}
		if back, err := Uninject(out); err != nil || !bytes.Equal(back, f.raw) {
			t.Errorf("%#x sections: Uninject does not give the original (%v)", n, err)
		}
	}
}

// A core file with more program headers than 16 bits number has their count in section header 0.
func TestExtendedProgramHeaders(t *testing.T) {
	const n = 70000
	f, err := Parse(testImages(t)["x86_64-exec"])
	if err != nil {
		t.Fatal(err)
	}
	raw := make([]byte, ehdr64+n*phdr64+shdr64)
	h := f.hdr
	h.typ = uint16(elf.ET_CORE)
	h.phoff, h.phnum = ehdr64, 0xffff
	h.shoff, h.shnum, h.shstrndx = ehdr64+n*phdr64, 1, 0
	f.c.writeHeader(raw, h)
	for i := range n {
		f.c.writeProg(raw[ehdr64+i*phdr64:], Prog{Type: elf.PT_LOAD, Vaddr: uint64(i) << 12, Memsz: 1 << 12, Align: 1})
	}
	f.c.writeSection(raw[h.shoff:], Section{Info: n})
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

func TestOverlay(t *testing.T) {
	raw := testImages(t)["x86_64-exec"]
	f, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	if off, n := f.Overlay(); n != 0 || off != uint64(len(raw)) {
		t.Errorf("%#x bytes at %#x", n, off)
	}
	if f, err = Parse(append(bytes.Clone(raw), "archive"...)); err != nil {
		t.Fatal(err)
	}
	if off, n := f.Overlay(); n != 7 || off != uint64(len(raw)) {
		t.Errorf("%#x bytes at %#x", n, off)
	}
	checkInject(t, f)
}
