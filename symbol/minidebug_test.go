package symbol

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/cost"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// miniDebug strips a program as Fedora's find-debuginfo does: what remains of the symbols is in .gnu_debugdata.
func miniDebug(t *testing.T, program string) (stripped string) {
	t.Helper()
	testtool.Need(t, "objcopy", "strip", "xz")
	dir := t.TempDir()
	mini, stripped := filepath.Join(dir, "mini"), filepath.Join(dir, "prog")
	run(t, "", "objcopy", "-S", "--remove-section", ".comment", "--keep-symbol=main", program, mini)
	run(t, "", "xz", mini)
	run(t, "", "strip", "-o", stripped, program)
	run(t, "", "objcopy", "--add-section", ".gnu_debugdata="+mini+".xz", stripped)
	return stripped
}

func TestMiniDebugInfo(t *testing.T) {
	prog := compile(t, "g++", "-g", "-O1")
	stripped := miniDebug(t, prog)
	tab, err := Open(stripped, Options{DebugDirs: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	defer tab.Close()
	whole, err := Open(prog, Options{DebugDirs: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	found := 0
	for _, fn := range whole.Funcs() {
		if fn.Name != "main" {
			continue
		}
		got, ok := tab.Lookup(fn.Addr)
		if got.Part = fn.Part; !ok || got != fn {
			t.Errorf("%+v, want %+v", got, fn)
		}
		found++
	}
	if found != 1 {
		t.Errorf("%d functions main in the whole program", found)
	}
}

// A damaged stream takes nothing away but the names.
func TestMiniDebugInfoDamaged(t *testing.T) {
	stripped := miniDebug(t, compile(t, "g++", "-O1"))
	b, err := os.ReadFile(stripped)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elfio.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	s := &f.Sections[f.SectionIndex(".gnu_debugdata")]
	b[s.Off+s.Size/2] ^= 0xff
	if syms, err := miniSymbols(f); err == nil || !strings.Contains(err.Error(), "(.gnu_debugdata) at offset 0x") {
		t.Errorf("%d symbols, %v", len(syms), err)
	}
	tab, err := New(f)
	if err != nil {
		t.Fatal(err)
	}
	if len(tab.Funcs()) == 0 || slices.ContainsFunc(tab.Funcs(), func(fn Func) bool { return fn.Name == "main" }) {
		t.Errorf("%d functions", len(tab.Funcs()))
	}
}

// FuzzMiniDebugInfo: no stream costs more than its limits.
func FuzzMiniDebugInfo(f *testing.F) {
	base, err := os.ReadFile(filepath.Join("testdata", "lines.elf"))
	if err != nil {
		f.Fatal(err)
	}
	for _, b := range [][]byte{base, make([]byte, 1<<20)} {
		c := exec.Command("xz", "-c")
		c.Stdin = bytes.NewReader(b)
		if out, err := c.Output(); err == nil {
			f.Add(out)
		}
	}
	f.Add([]byte("\xfd7zXZ\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		cost.Check(t, len(b)+1<<10, 1<<14, func() {
			if syms, err := expandSymbols(b); err != nil && syms != nil {
				t.Errorf("%d symbols, and %v", len(syms), err)
			}
		})
	})
}
