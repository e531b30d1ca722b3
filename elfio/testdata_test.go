package elfio

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// testImages are the checked-in images: both classes, both byte orders, six machines, all linked forms.
func testImages(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("testdata/*")
	if err != nil {
		t.Fatal(err)
	}
	images := map[string][]byte{}
	for _, p := range paths {
		if st, err := os.Stat(p); err != nil || st.IsDir() {
			continue
		}
		raw, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(raw), elf.ELFMAG) {
			images[filepath.Base(p)] = raw
		}
	}
	if len(images) < 12 {
		t.Fatalf("%d images in testdata", len(images))
	}
	return images
}

func TestImages(t *testing.T) {
	for name, raw := range testImages(t) {
		t.Run(name, func(t *testing.T) {
			f, err := Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			want, err := elf.NewFile(bytes.NewReader(raw))
			if err != nil {
				t.Fatal(err)
			}
			compareWithDebugELF(t, name, f, want)
			if b, err := f.Encode(); err != nil || !bytes.Equal(b, raw) {
				t.Errorf("encoding gives another image (%v)", err)
			}
			if f.Header.Type == elf.ET_REL {
				if _, err := f.Layout(0, 0); err == nil {
					t.Error("a relocatable object has a layout")
				}
				return
			}
			if len(f.BuildID()) != 20 {
				t.Errorf("build-id %x", f.BuildID())
			}
			checkInject(t, f)
			bare, err := Parse(dropSections(t, raw))
			if err != nil {
				t.Fatal(err)
			}
			compareSectionless(t, f, bare)
			checkInject(t, bare)
		})
	}
}

// checkInject injects something, checks it and takes it out again.
func checkInject(t *testing.T, f *File) {
	t.Helper()
	l, err := f.Layout(300, 32)
	if err != nil {
		t.Error(err)
		return
	}
	rx := bytes.Repeat([]byte("code"), 33)
	in := Injection{Layout: l, RX: rx, Symbols: []AddedSymbol{
		{Name: "fentry:local", Value: l.RX, Size: 4, Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC)},
		{Name: "fentry:global", Value: l.RX + 4, Size: 4, Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC)},
		{Name: "fentry:bss", Value: l.RW, Size: 300, Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_OBJECT), Section: ".fentry.bss"},
	}, Sections: []AddedSection{{Name: ".fentry.notes", Type: elf.SHT_PROGBITS, Data: []byte("data"), Align: 4}}}
	if len(f.Sections) == 0 {
		in.Symbols = nil
	}
	out, err := f.Inject(in)
	if err != nil {
		t.Error(err)
		return
	}
	if msg := checkInjected(f, out, l, rx); msg != "" {
		t.Error(msg)
	}
	verify(t, out)
	g, err := Parse(out)
	if err != nil {
		t.Fatal(err)
	}
	if i := g.SectionIndex(".fentry.notes"); len(f.Sections) > 0 {
		if b, err := g.SectionData(i); err != nil || string(b) != "data" {
			t.Errorf(".fentry.notes: %q, %v", b, err)
		}
		syms, err := g.Symbols()
		if err != nil {
			t.Fatal(err)
		}
		info := g.Sections[g.sectionOfType(elf.SHT_SYMTAB)].Info
		for _, s := range syms {
			if (s.Bind() == elf.STB_LOCAL) != (s.Index < info) {
				t.Errorf("symbol %d (%s) is on the wrong side of the first global one, %d", s.Index, s.Name, info)
			}
			if s.Name == "fentry:bss" && g.Sections[s.Section].Name != ".fentry.bss" {
				t.Errorf("fentry:bss is in %s", g.Sections[s.Section].Name)
			}
		}
	}
	if _, err := g.Inject(in); err != ErrInjected {
		t.Errorf("second injection: %v", err)
	}
	if back, err := Uninject(out); err != nil || !bytes.Equal(back, f.raw) {
		t.Errorf("Uninject does not give the original (%v)", err)
	}
}

// compareSectionless checks that what the program headers lead to is what the section headers say.
func compareSectionless(t *testing.T, f, bare *File) {
	t.Helper()
	a, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	b, err := bare.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a, b) {
		t.Errorf("dynamic symbols: %v, without sections %v", a, b)
	}
	ra, err := f.DynamicRelocs()
	if err != nil {
		t.Fatal(err)
	}
	rb, err := bare.DynamicRelocs()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(ra, rb) {
		t.Errorf("dynamic relocations: %v, without sections %v", ra, rb)
	}
	fa, err := f.FDEs()
	if err != nil {
		t.Fatal(err)
	}
	fb, err := bare.FDEs()
	if err != nil {
		t.Fatal(err)
	}
	if bare.progOfType(elf.PT_GNU_EH_FRAME) < 0 {
		return
	}
	if len(fa) != len(fb) || len(fa) == 0 {
		t.Fatalf("%d FDEs, without sections %d", len(fa), len(fb))
	}
	for i := range fa {
		if fa[i].PC != fb[i].PC || fa[i].Size != fb[i].Size || fa[i].Off != fb[i].Off {
			t.Errorf("%v, without sections %v", fa[i], fb[i])
		}
	}
}

// The FDEs cover exactly the functions.
func TestFDEsCoverFunctions(t *testing.T) {
	for name, raw := range testImages(t) {
		f, err := Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if f.Header.Type == elf.ET_REL || f.SectionIndex(".eh_frame") < 0 {
			continue
		}
		fdes, err := f.FDEs()
		if err != nil {
			t.Fatal(err)
		}
		at := map[uint64]uint64{}
		for _, d := range fdes {
			at[d.PC] = d.Size
		}
		syms, err := f.Symbols()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, s := range syms {
			if s.Type() == elf.STT_FUNC && s.Defined() && !strings.HasPrefix(s.Name, "__plt_") { // lld names its call stubs
				n++
				if at[s.Value] != s.Size {
					t.Errorf("%s: %s at %#x has %d bytes, its FDE %d", name, s.Name, s.Value, s.Size, at[s.Value])
				}
			}
		}
		if n != len(fdes) || n == 0 {
			t.Errorf("%s: %d functions, %d FDEs", name, n, len(fdes))
		}
	}
}
