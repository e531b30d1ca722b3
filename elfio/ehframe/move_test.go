package ehframe

import (
	"bytes"
	"debug/elf"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
)

// Moved FDEs say of every function what the originals say, wherever they are
// moved to, and what is added to a CIE stands behind its own instructions.
func TestMoveFrames(t *testing.T) {
	ofInstalled(t, func(name string, f *elfio.File, table *Table) {
		const at = 0x40000000
		extra := []byte{0x2d, 0x0a, 0x0b} // any instructions will do
		var m Moved
		err := m.Append(f, at, 0, table.All(), Rules{CIE: func(c *CIE) []byte {
			if c.Signal {
				return nil
			}
			return extra
		}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		moved, err := Parse(f, m.EhFrame, at)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if moved.Len() != table.Len() || len(m.Entries) != table.Len() {
			t.Fatalf("%s: %d of %d FDEs, %d entries", name, moved.Len(), table.Len(), len(m.Entries))
		}
		trim := func(b []byte) []byte { return bytes.TrimRight(b, "\x00") }
		for i := range table.Len() {
			a, b := table.At(i), moved.At(i)
			want := trim(a.CIE.Instructions)
			if !a.CIE.Signal {
				want = append(bytes.Clone(a.CIE.Instructions), extra...)
			}
			if a.PC != b.PC || a.Size != b.Size || a.LSDA != b.LSDA ||
				!bytes.Equal(trim(a.Instructions), trim(b.Instructions)) ||
				!bytes.Equal(trim(b.CIE.Instructions), trim(want)) || a.CIE.Augmentation != b.CIE.Augmentation ||
				a.CIE.Personality() != b.CIE.Personality() {
				t.Fatalf("%s: FDE %d: %+v became %+v", name, i, a, b)
			}
			if e := m.Entries[i]; e.PC != b.PC || e.FDE != b.Addr {
				t.Fatalf("%s: entry %d is %+v for %+v", name, i, e, b)
			}
		}
		hdr, err := NewHeader(f, at-0x100000, at, m.Entries, nil)
		if err != nil || len(hdr) != 12+8*table.Len() {
			t.Errorf("%s: header of %d bytes, %v", name, len(hdr), err)
		}
		if f.Header.Type != elf.ET_REL {
			first := table.At(0)
			e, err := Hide(f, &first)
			if err != nil || e.Off != first.Off+12 || len(e.New) != 4 {
				t.Errorf("%s: hide %+v, %v", name, e, err)
			}
		}
	})
}
