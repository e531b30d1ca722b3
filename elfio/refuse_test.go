package elfio

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Malformed headers are refused with the structure's name and its offset.
func TestParseRefuses(t *testing.T) {
	base := testImages(t)["x86_64-exec"]
	f, err := Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	header := func(change func(*rawHeader)) func([]byte) []byte {
		return func(b []byte) []byte {
			h := f.hdr
			change(&h)
			f.c.writeHeader(b, h)
			return b
		}
	}
	section := func(i int, change func(*Section)) func([]byte) []byte {
		return func(b []byte) []byte {
			s := f.Sections[i]
			change(&s)
			f.c.writeSection(b[f.Header.Shoff+uint64(i)*shdr64:], s)
			return b
		}
	}
	for _, c := range []struct {
		name   string
		change func([]byte) []byte
		want   string
	}{
		{"empty", func(b []byte) []byte { return nil }, "ELF header at offset 0x0: not an ELF file"},
		{"short", func(b []byte) []byte { return b[:40] }, "ELF header at offset 0x0: file ends inside it"},
		{"class", func(b []byte) []byte { b[4] = 3; return b }, "offset 0x4: unknown class 3"},
		{"byte order", func(b []byte) []byte { b[5] = 0; return b }, "offset 0x5: unknown byte order 0"},
		{"version", func(b []byte) []byte { b[6] = 9; return b }, "offset 0x6: unknown version 9"},
		{"program headers outside", header(func(h *rawHeader) { h.phoff = ^uint64(0) - 100 }), "program header table at offset 0xffffffffffffff9b"},
		{"program headers too many", header(func(h *rawHeader) { h.phnum = 0xfffe }), "program header table at offset 0x40: 65534 entries"},
		{"program header size", header(func(h *rawHeader) { h.phentsize = 55 }), "program header entries have 55 bytes"},
		{"section headers outside", header(func(h *rawHeader) { h.shoff = 1 << 63 }), "section header table at offset 0x8000000000000000"},
		{"section headers too many", header(func(h *rawHeader) { h.shnum = 0xfeff }), "65279 entries"},
		{"section header size", header(func(h *rawHeader) { h.shentsize = 1 }), "section header entries have 1 bytes"},
		{"no section headers", header(func(h *rawHeader) { h.shoff = 0 }), "section headers at offset 0"},
		{"name table", header(func(h *rawHeader) { h.shstrndx = 999 }), "section name table is section 999"},
		{"name", section(1, func(s *Section) { s.NameOff = 1 << 30 }), "section header 1 at offset"},
		{"name table outside", section(int(f.Header.Shstrndx), func(s *Section) { s.Size = ^uint64(0) }), "(section name table) at offset"},
		{"extended number", header(func(h *rawHeader) { h.shnum = 0; h.shoff = 0x10 }), "section header 0 at offset"},
	} {
		_, err := Parse(c.change(bytes.Clone(base)))
		var fe *FormatError
		if err == nil || !errors.As(err, &fe) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

func TestAccessorsRefuse(t *testing.T) {
	base := testImages(t)["x86_64-exec"]
	f, err := Parse(bytes.Clone(base))
	if err != nil {
		t.Fatal(err)
	}
	text := f.SectionIndex(".text")
	for name, call := range map[string]func() error{
		"no such section":       func() error { _, err := f.SectionData(len(f.Sections)); return err },
		"negative section":      func() error { _, err := f.SectionData(-1); return err },
		"not loaded":            func() error { _, err := f.Bytes(1, 1); return err },
		"negative length":       func() error { _, err := f.Bytes(f.Header.Entry, -1); return err },
		"behind the segment":    func() error { _, err := f.Bytes(f.Header.Entry, 1<<30); return err },
		"no relocation table":   func() error { _, err := f.Relocs(text); return err },
		"nothing dynamic":       func() error { _, err := f.ExtendDynamic(0, nil); return err },
		"build-id length":       func() error { _, err := f.BuildIDEdit([]byte{1}); return err },
		"alignment":             func() error { _, err := f.Layout(10, 3); return err },
		"memory":                func() error { _, err := f.Layout(^uint64(0), 8); return err },
		"not injected":          f.Verify,
		"section count changed": func() error { g := *f; g.Sections = g.Sections[1:]; _, err := g.HeaderEdits(); return err },
		"section outside": func() error {
			g := *f
			g.Sections = append([]Section(nil), f.Sections...)
			g.Sections[text].Off = ^uint64(0)
			_, err := g.SectionData(text)
			return err
		},
	} {
		if call() == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, ok := f.Offset(^uint64(0)); ok {
		t.Error("the last address has an offset")
	}
}

func TestInjectRefuses(t *testing.T) {
	f, err := Parse(testImages(t)["x86_64-exec"])
	if err != nil {
		t.Fatal(err)
	}
	l, err := f.Layout(64, 8)
	if err != nil {
		t.Fatal(err)
	}
	alloc := AddedSection{Name: ".x", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC, Addr: l.RX, Size: 4}
	entry, _ := f.Offset(f.Header.Entry)
	for name, c := range map[string]struct {
		change func(*Injection)
		want   string
	}{
		"layout":          {func(in *Injection) { in.Layout.RX += 64 }, "belongs to another image"},
		"empty":           {func(in *Injection) { in.RX = nil }, "empty"},
		"memory":          {func(in *Injection) { in.RWSize = 65 }, "the layout has 0x40"},
		"edit outside":    {func(in *Injection) { in.Edits = []RawEdit{{uint64(len(f.raw)) - 1, []byte("xy")}} }, "outside the file"},
		"edit of header":  {func(in *Injection) { in.Edits = []RawEdit{{60, []byte("12345678")}} }, "overlaps the headers"},
		"edits overlap":   {func(in *Injection) { in.Edits = []RawEdit{{entry + 2, []byte("x")}, {entry, []byte("abc")}} }, "overlap"},
		"section outside": {func(in *Injection) { a := alloc; a.Size = 5; in.Sections = []AddedSection{a} }, "neither in the new segment"},
		"section align":   {func(in *Injection) { a := alloc; a.Addr++; a.Size = 1; a.Align = 4; in.Sections = []AddedSection{a} }, "not aligned"},
		"section link":    {func(in *Injection) { a := alloc; a.Link = ".nowhere"; in.Sections = []AddedSection{a} }, "does not exist"},
		"symbol section":  {func(in *Injection) { in.Symbols = []AddedSymbol{{Name: "s", Section: ".nowhere"}} }, "no section .nowhere"},
		"table outside":   {func(in *Injection) { in.EhFrameHdr = [2]uint64{l.RX + 2, 4} }, "outside the new segment"},
		"moved outside":   {func(in *Injection) { in.Moved = []MovedSection{{1, l.RX, 5}} }, "outside the new segment"},
		"moved nothing":   {func(in *Injection) { in.Moved = []MovedSection{{0, l.RX, 1}} }, "moved section 0"},
	} {
		in := Injection{Layout: l, RX: []byte("code")}
		c.change(&in)
		if _, err := f.Inject(in); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// A damaged undo record is found out, never followed.
func TestUninjectDamaged(t *testing.T) {
	raw := testImages(t)["x86_64-exec"]
	f, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	l, err := f.Layout(64, 8)
	if err != nil {
		t.Fatal(err)
	}
	out, err := f.Inject(Injection{Layout: l, RX: []byte("code")})
	if err != nil {
		t.Fatal(err)
	}
	g, err := Parse(out)
	if err != nil {
		t.Fatal(err)
	}
	rec := g.Sections[g.SectionIndex(undoSection)]
	// The last bytes find the record where there are no sections; they are not needed here.
	for i := range rec.Size - undoTrailer {
		bad := bytes.Clone(out)
		bad[rec.Off+i] ^= 0x55
		if b, err := Uninject(bad); err == nil && !bytes.Equal(b, raw) {
			t.Fatalf("byte %d of the record changed, and another original came out", i)
		}
	}
	code, _ := f.Offset(f.Header.Entry)
	bad := bytes.Clone(out)
	bad[code] ^= 1
	if _, err := Uninject(bad); !errors.Is(err, ErrUndoLost) {
		t.Errorf("code changed after injection: %v", err)
	}
	if x, err := g.Injected(); err != nil || x.OriginalSize != uint64(len(raw)) || len(x.Changed) == 0 || x.Changed[0] != [2]uint64{0, ehdr64} {
		t.Errorf("undo record %+v, %v", x, err)
	}
}

func TestApplyTo(t *testing.T) {
	raw := testImages(t)["x86_64-shared"]
	f, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	l, err := f.Layout(64, 8)
	if err != nil {
		t.Fatal(err)
	}
	in := Injection{Layout: l, RX: []byte("code")}
	text := f.Sections[f.SectionIndex(".text")]
	for i := range text.Size / 4 {
		in.Edits = append(in.Edits, RawEdit{text.Off + i*4, []byte{byte(i), 1}})
	}
	o, err := f.PlanInject(in)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(name, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := o.ApplyTo(w); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(name)
	if err != nil || !bytes.Equal(got, o.Bytes()) || int64(len(got)) != o.Size() {
		t.Errorf("ApplyTo and Bytes differ (%v)", err)
	}
}

// The tables of .eh_frame_hdr that linkers may write besides the usual one.
func TestMergeEhFrameHdrEncodings(t *testing.T) {
	raw := testImages(t)["x86_64-shared"]
	f, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	at := f.loads[len(f.loads)-1].Vaddr + 1<<20
	extra := []EhEntry{{at + 100, at + 50}, {1, at + 60}}
	want, err := MergeEhFrameHdr(f, at, extra)
	if err != nil {
		t.Fatal(err)
	}
	// The first row is the lowest address, the last the highest.
	rows := want[12:]
	pc := func(row []byte) uint64 { return at + uint64(int64(int32(f.c.order.Uint32(row)))) }
	if pc(rows) != 1 || pc(rows[len(rows)-8:]) != at+100 {
		t.Errorf("rows from %#x to %#x", pc(rows), pc(rows[len(rows)-8:]))
	}
	for i := 8; i < len(rows); i += 8 {
		if pc(rows[i:]) < pc(rows[i-8:]) {
			t.Errorf("row %d is out of order", i/8)
		}
	}
	hdr := f.Progs[f.progOfType(elf.PT_GNU_EH_FRAME)].Off
	parse := func(enc ...byte) *File {
		b := bytes.Clone(raw)
		copy(b[hdr+1:], enc)
		g, err := Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	// Without a table the rows come from .eh_frame: the same.
	if got, err := MergeEhFrameHdr(parse(0x1b, encOmit, encOmit), at, extra); err != nil || !bytes.Equal(got, want) {
		t.Errorf("no table: %v\n% x\n% x", err, got, want)
	}
	if _, err := MergeEhFrameHdr(parse(0x1b, 3, 0x1b), at, extra); err == nil || !strings.Contains(err.Error(), "1b 03 1b") {
		t.Errorf("another table encoding: %v", err)
	}
	if _, err := MergeEhFrameHdr(parse(0x4b, 3, 0x3b), at, extra); err == nil {
		t.Error("a pointer relative to functions was accepted")
	}
	if _, err := MergeEhFrameHdr(f, at+1<<33, extra); err == nil || !strings.Contains(err.Error(), "2 GiB") {
		t.Errorf("8 GiB away: %v", err)
	}
}

// Without section headers the number of dynamic symbols comes from the hash tables.
func TestDynamicSymbolsSectionless(t *testing.T) {
	for _, name := range []string{"pie", "pie-now", "static-pie", "gold-pie", "lld-pie", "musl-dyn"} {
		for _, x := range fixtures {
			if x.name != name {
				continue
			}
			t.Run(name, func(t *testing.T) {
				raw := compile(t, name+"-rdynamic", ".c", fixtureC, x.tool, append([]string{"-O1", "-w", "-rdynamic"}, x.args...)...)
				f, err := Parse(raw)
				if err != nil {
					t.Fatal(err)
				}
				bare, err := Parse(dropSections(t, raw))
				if err != nil {
					t.Fatal(err)
				}
				compareSectionless(t, f, bare)
			})
		}
	}
}
