package patch_test

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/patch"
)

// A file with the code changed differs from the image in just that, and the rest is still to be changed.
func TestWriteCode(t *testing.T) {
	for _, m := range []struct {
		name  string
		image []byte
	}{
		{"prepared", read(t, onAMD64.compile(t, "code.c", "int f(int i) { return i + 1; }\nint main(void) { return f(41); }\n", "-pg", "-mfentry"))},
		{"one segment", read(t, onAMD64.compile(t, "one.c", "int f(int i) { return i + 1; }\nint main(void) { return f(41); }\n",
			"-pg", "-mfentry", "-Wl,-z,noseparate-code"))},
	} {
		t.Run(m.name, func(t *testing.T) {
			memory, err := plan(t, m.image, patch.Options{Target: patch.Process}).Memory()
			if err != nil {
				t.Fatal(err)
			}
			f, err := elfio.Parse(m.image)
			if err != nil {
				t.Fatal(err)
			}
			have, err := written(t, memory, f, m.image)
			if err != nil {
				t.Fatal(err)
			}
			want, code := bytes.Clone(m.image), 0
			for _, p := range f.Progs {
				if p.Type != elf.PT_LOAD || p.Flags&elf.PF_X == 0 {
					continue
				}
				below, in, above, ok := memory.CodeEdits(p.Vaddr, p.Vaddr+p.Filesz)
				if !ok || len(in) == 0 || len(below)+len(in)+len(above) != len(memory.Edits) {
					t.Fatalf("%d, %d and %d of %d edits, %t", len(below), len(in), len(above), len(memory.Edits), ok)
				}
				for _, e := range in {
					copy(want[e.Addr-p.Vaddr+p.Off:], e.New)
					code++
				}
				for _, e := range append(below, above...) {
					if e.Addr >= p.Vaddr && e.Addr < p.Vaddr+p.Filesz {
						t.Errorf("%#x is still to be changed", e.Addr)
					}
				}
				if _, _, _, ok := memory.CodeEdits(p.Vaddr, in[0].Addr+1); ok {
					t.Error("cut in the middle of an edit")
				}
			}
			added := patch.AddedAt(int64(len(want)))
			if !bytes.Equal(have[:len(want)], want) || bytes.Equal(have[:len(want)], m.image) {
				t.Error("another file")
			}
			if int64(len(have)) != added+int64(len(memory.RX)) || !bytes.Equal(have[added:], withoutSession(memory)) {
				t.Error("other code is added")
			}
			pages := make(map[uint64]bool)
			for _, e := range memory.Edits {
				pages[e.Addr>>12] = true
			}
			if n := memory.CodePages(); n != len(pages) || code == 0 {
				t.Errorf("%d pages, want %d", n, len(pages))
			}
			// Another image is not written as if it were this one.
			other := bytes.Clone(m.image)
			at, ok := f.Offset(firstCode(f, memory).Addr)
			if !ok {
				t.Fatal("no place in the file")
			}
			other[at] ^= 0xff
			var bug *arch.Bug
			if _, err := written(t, memory, f, other); !errors.As(err, &bug) || bug.Class != arch.Mismatch {
				t.Errorf("an image with other code: %v", err)
			}
		})
	}
}

// withoutSession is RX without the path of the recorder's buffer.
func withoutSession(m *patch.Memory) []byte {
	b := bytes.Clone(m.RX)
	clear(b[m.Session-m.RXAddr:][:len(m.SessionPath())])
	return b
}

// written is the file that WriteCode writes.
func written(t *testing.T, m *patch.Memory, f *elfio.File, image []byte) ([]byte, error) {
	t.Helper()
	w, err := os.Create(filepath.Join(t.TempDir(), "code"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := m.WriteCode(w, f, image); err != nil {
		return nil, err
	}
	return read(t, w.Name()), nil
}

// firstCode is the first edit of code.
func firstCode(f *elfio.File, m *patch.Memory) *arch.Edit {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			if _, in, _, _ := m.CodeEdits(p.Vaddr, p.Vaddr+p.Filesz); len(in) > 0 {
				return &in[0]
			}
		}
	}
	return nil
}
