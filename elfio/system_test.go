package elfio

import (
	"bytes"
	"debug/elf"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/elfio/internal/elftest"
)

// Every ELF file of the machine is parsed, agrees with debug/elf and is encoded back to what it was.
func TestSystemRoundTrip(t *testing.T) {
	n := elftest.SystemFiles(t, 8*time.Second, func(path string, raw []byte) {
		f, err := Parse(raw)
		if err != nil {
			// Not every file that starts like one is a valid ELF file, but then others agree.
			if want, err2 := elf.NewFile(bytes.NewReader(raw)); err2 == nil && len(want.Sections) > 0 {
				t.Errorf("%s: %v", path, err)
			}
			return
		}
		edits, err := f.headerEdits()
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return
		}
		for _, e := range edits {
			if !bytes.Equal(raw[e.Off:e.Off+uint64(len(e.New))], e.New) {
				t.Errorf("%s: headers at %#x differ: % x, was % x", path, e.Off, e.New, raw[e.Off:e.Off+uint64(len(e.New))])
			}
		}
		for name, read := range map[string]func() error{
			"symbols":             func() error { _, err := f.Symbols(); return err },
			"dynamic symbols":     func() error { _, err := f.DynamicSymbols(); return err },
			"dynamic relocations": func() error { _, err := f.DynamicRelocs(); return err },
			"notes":               func() error { _, err := f.Notes(); return err },
		} {
			if err := read(); err != nil {
				t.Errorf("%s: %s: %v", path, name, err)
			}
		}
	})
	t.Logf("%d files", n)
	if n == 0 {
		t.Skip("no ELF files on this machine")
	}
}
