package inject

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
)

// What was added to an image without section headers is found by name.
func TestDescribed(t *testing.T) {
	for _, name := range []string{"x86_64-exec", "x86_64-shared"} {
		f, err := elfio.Parse(elftest.DropSections(t, elftest.Images(t)[name]))
		if err != nil {
			t.Fatal(err)
		}
		if g, err := Described(f); g != f || err != nil {
			t.Errorf("%s: without an injection: %v", name, err)
		}
		l, err := NewLayout(f, Memory{RW: 64, RWAlign: 8})
		if err != nil {
			t.Fatal(err)
		}
		out, err := injected(f, Injection{Layout: l, RX: []byte("codedata"), Sections: []Section{
			{Name: ".fentry.code", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: l.RX, Size: 4},
			{Name: ".fentry.data", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC, Addr: l.RX + 4, Size: 4},
		}})
		if err != nil {
			t.Fatal(err)
		}
		g, err := elfio.Parse(out)
		if err != nil {
			t.Fatal(err)
		}
		d, err := Described(g)
		if err != nil || len(g.Sections) != 0 {
			t.Fatalf("%s: %d sections: %v", name, len(g.Sections), err)
		}
		for name, want := range map[string]string{".fentry.code": "code", ".fentry.data": "data"} {
			if b, err := d.SectionData(d.SectionIndex(name)); err != nil || string(b) != want {
				t.Errorf("%s: %q: %v", name, b, err)
			}
		}
		describedDamaged(t, g, out)
	}
}

// describedDamaged changes every byte of the descriptions, and cuts them: what comes out is in the file.
func describedDamaged(t *testing.T, g *elfio.File, out []byte) {
	t.Helper()
	rec, off, err := newImage(g).undoBytes()
	if err != nil {
		t.Fatal(err)
	}
	b, err := descriptions(rec, off)
	if err != nil || len(b) == 0 {
		t.Fatalf("%d bytes of descriptions: %v", len(b), err)
	}
	for i := range b {
		// Both take as many bytes.
		if _, err := described(g, b[:i], off); err == nil && i > 0 && i != len(b)/2 {
			t.Errorf("descriptions are cut at %d of %d", i, len(b))
		}
		bad := bytes.Clone(b)
		bad[i] = 0xff
		sections, err := described(g, bad, off)
		for _, s := range sections {
			if err == nil && (s.Off > uint64(len(out)) || s.Size > uint64(len(out))-s.Off) {
				t.Errorf("byte %d: section at %#x+%#x of %#x", i, s.Off, s.Size, len(out))
			}
		}
	}
	rec = bytes.Clone(rec)
	binary.LittleEndian.PutUint64(rec[48:], 1<<63)
	if _, err := descriptions(rec, off); err == nil {
		t.Error("a body of 8 EiB is believed")
	}
}
