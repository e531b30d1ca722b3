package ehframe

import (
	"debug/elf"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
)

// The FDEs cover exactly the functions.
func TestFDEsCoverFunctions(t *testing.T) {
	for name, raw := range elftest.Images(t) {
		f, err := elfio.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if f.Header.Type == elf.ET_REL || f.SectionIndex(".eh_frame") < 0 {
			continue
		}
		fdes, err := Read(f)
		if err != nil {
			t.Fatal(err)
		}
		at := map[uint64]uint64{}
		for d := range fdes.All() {
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
		if n != fdes.Len() || n == 0 {
			t.Errorf("%s: %d functions, %d FDEs", name, n, fdes.Len())
		}
	}
}

// Without section headers the entries are found through PT_GNU_EH_FRAME, and are the same.
func TestReadSectionless(t *testing.T) {
	for name, b := range elftest.Images(t) {
		f, err := elfio.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if f.ProgIndex(elf.PT_GNU_EH_FRAME) < 0 {
			continue
		}
		bare, err := elfio.Parse(elftest.DropSections(t, b))
		if err != nil {
			t.Fatal(err)
		}
		want, err := Read(f)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Read(bare)
		if err != nil {
			t.Fatal(err)
		}
		if got.Len() != want.Len() || want.Len() == 0 {
			t.Fatalf("%s: %d FDEs, without sections %d", name, want.Len(), got.Len())
		}
		for i := range want.Len() {
			if w, g := want.At(i), got.At(i); w.PC != g.PC || w.Size != g.Size || w.Off != g.Off {
				t.Errorf("%s: %v, without sections %v", name, w, g)
			}
		}
	}
}
