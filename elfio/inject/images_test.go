package inject

import (
	"bytes"
	"debug/elf"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
)

func TestImages(t *testing.T) {
	for name, b := range elftest.Images(t) {
		t.Run(name, func(t *testing.T) {
			f, err := elfio.Parse(b)
			if err != nil {
				t.Fatal(err)
			}
			if f.Header.Type == elf.ET_REL {
				if _, err := NewLayout(f, Memory{}); err == nil {
					t.Error("a relocatable object has a layout")
				}
				return
			}
			checkInject(t, f)
			bare, err := elfio.Parse(elftest.DropSections(t, b))
			if err != nil {
				t.Fatal(err)
			}
			checkInject(t, bare)
		})
	}
}

// checkInject injects something, checks it and takes it out again.
func checkInject(t *testing.T, f *elfio.File) {
	t.Helper()
	l, err := NewLayout(f, Memory{RW: 300, RWAlign: 32})
	if err != nil {
		t.Error(err)
		return
	}
	rx := bytes.Repeat([]byte("code"), 33)
	in := Injection{Layout: l, RX: rx, Symbols: []Symbol{
		{Name: "fentry:local", Value: l.RX, Size: 4, Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC)},
		{Name: "fentry:global", Value: l.RX + 4, Size: 4, Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC)},
		{Name: "fentry:bss", Value: l.RW, Size: 300, Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_OBJECT),
			Section: ".fentry.bss"},
	}, Sections: []Section{{Name: ".fentry.notes", Type: elf.SHT_PROGBITS, Data: []byte("data"), Align: 4}}}
	if len(f.Sections) == 0 {
		in.Symbols = nil
	}
	out, err := injected(f, in)
	if err != nil {
		t.Error(err)
		return
	}
	if msg := checkInjected(f, out, l, rx); msg != "" {
		t.Error(msg)
	}
	verify(t, out)
	g, err := elfio.Parse(out)
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
		info := g.Sections[newImage(g).sectionOfType(elf.SHT_SYMTAB)].Info
		for _, s := range syms {
			if (s.Bind() == elf.STB_LOCAL) != (s.Index < info) {
				t.Errorf("symbol %d (%s) is on the wrong side of the first global one, %d", s.Index, s.Name, info)
			}
			if s.Name == "fentry:bss" && g.Sections[s.Section].Name != ".fentry.bss" {
				t.Errorf("fentry:bss is in %s", g.Sections[s.Section].Name)
			}
		}
	}
	if _, err := injected(g, in); err != ErrInjected {
		t.Errorf("second injection: %v", err)
	}
	if back, err := Undo(out); err != nil || !bytes.Equal(back, f.Raw()) {
		t.Errorf("Uninject does not give the original (%v)", err)
	}
}
