package elfio

import (
	"bytes"
	"debug/elf"
	"os"
	"testing"

	"github.com/fentry-dev/fentry/elfio/internal/elftest"
)

func TestParseAgainstDebugELF(t *testing.T) {
	for _, path := range []string{"/bin/ls", "/bin/bash", "/usr/bin/ld.bfd", "/lib/x86_64-linux-gnu/libc.so.6"} {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Logf("%v", err)
			continue
		}
		f, err := Parse(raw)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		want, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer want.Close()
		compareWithDebugELF(t, path, f, want)
	}
}

func compareWithDebugELF(t *testing.T, path string, f *File, want *elf.File) {
	t.Helper()
	if len(f.Sections) != len(want.Sections) || len(f.Progs) != len(want.Progs) {
		t.Fatalf("%s: %d sections, %d program headers; debug/elf has %d, %d", path, len(f.Sections), len(f.Progs),
			len(want.Sections), len(want.Progs))
	}
	for i, s := range want.Sections {
		g := f.Sections[i]
		if g.Name != s.Name || g.Type != s.Type || g.Flags != s.Flags || g.Addr != s.Addr || g.Off != s.Offset ||
			g.Size != s.FileSize && s.Type != elf.SHT_NOBITS || g.Link != s.Link || g.Info != s.Info ||
			g.Addralign != s.Addralign || g.Entsize != s.Entsize {
			t.Errorf("%s: section %d: %+v, debug/elf: %+v", path, i, g, s.SectionHeader)
		}
	}
	for i, p := range want.Progs {
		g := f.Progs[i]
		if g != (Prog{p.Type, p.Flags, p.Off, p.Vaddr, p.Paddr, p.Filesz, p.Memsz, p.Align}) {
			t.Errorf("%s: program header %d: %+v, debug/elf: %+v", path, i, g, p.ProgHeader)
		}
	}
	got, err := f.DynamicSymbols()
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	dyn, _ := want.DynamicSymbols()
	if len(got) != len(dyn) {
		t.Fatalf("%s: %d dynamic symbols, debug/elf: %d", path, len(got), len(dyn))
	}
	for i, s := range dyn {
		g := got[i]
		if g.Name != s.Name || g.Value != s.Value || g.Size != s.Size || g.Info != s.Info || g.Other != s.Other ||
			elf.SectionIndex(g.Section) != s.Section {
			t.Errorf("%s: dynamic symbol %d: %+v, debug/elf: %+v", path, i, g, s)
		}
	}
	if f.Header.Type == elf.ET_REL {
		return
	}
	if _, err := f.DynamicRelocs(); err != nil {
		t.Errorf("%s: %v", path, err)
	}
}

func TestImages(t *testing.T) {
	for name, b := range elftest.Images(t) {
		t.Run(name, func(t *testing.T) {
			f, err := Parse(b)
			if err != nil {
				t.Fatal(err)
			}
			want, err := elf.NewFile(bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			compareWithDebugELF(t, name, f, want)
			if out, err := f.Encode(); err != nil || !bytes.Equal(out, b) {
				t.Errorf("encoding gives another image (%v)", err)
			}
			if f.Header.Type == elf.ET_REL {
				return
			}
			if len(f.BuildID()) != 20 {
				t.Errorf("build-id %x", f.BuildID())
			}
			bare, err := Parse(elftest.DropSections(t, b))
			if err != nil {
				t.Fatal(err)
			}
			compareSectionless(t, f, bare)
		})
	}
}
