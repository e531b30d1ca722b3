//go:build linux

package tracee

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fentry-dev/fentry/internal/cost"
)

// FuzzAuxv: whatever a process has on its stack, what is read of it is there.
func FuzzAuxv(f *testing.F) {
	words := func(w ...uint64) (b []byte) {
		for _, v := range w {
			b = le.AppendUint64(b, v)
		}
		return b
	}
	f.Add(words(1, 0x7ff0, 0, 0x7ff8, 0, atPhdr, 0x400040, atPhnum, 9, atEntry, 0x401000, atNull, 0))
	f.Add(words(0, 0, 0, atEntry, 1, atNull))
	f.Add(words(1<<63, 0))
	f.Add(words(2<<20-1, 0))
	file, err := os.Create(filepath.Join(f.TempDir(), "mem"))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { file.Close() })
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := file.Truncate(0); err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
		tr := &Process{mem: file}
		var aux map[uint64]auxEntry
		var err error
		cost.Check(t, len(b), 200, func() { aux, err = tr.auxv(0) })
		if err != nil {
			if aux != nil {
				t.Errorf("%v with %v", aux, err)
			}
			return
		}
		for key, e := range aux {
			if e.addr%8 != 0 || e.addr < 8 || e.addr+8 > uint64(len(b)) || le.Uint64(b[e.addr:]) != e.val || le.Uint64(b[e.addr-8:]) != key {
				t.Errorf("%d: %+v, of %d bytes", key, e, len(b))
			}
		}
	})
}
