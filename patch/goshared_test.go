package patch_test

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
)

// TestGoShared: of a shared library that Go has linked is said why it is not traced. It is told from a program by what
// loads it, so a program that asks for no loader stands for one here, which needs no C compiler.
func TestGoShared(t *testing.T) {
	source := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() { println(len(\"abc\")) }\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(testtool.Go(t, "amd64", "-buildmode=pie", source))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newPlanWith(b, patch.Options{}, record.Options{}); err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	table, size, n := le.Uint64(b[32:]), uint64(le.Uint16(b[54:])), uint64(le.Uint16(b[56:]))
	for i := range n {
		if at := table + i*size; elf.ProgType(le.Uint32(b[at:])) == elf.PT_INTERP {
			le.PutUint32(b[at:], uint32(elf.PT_NULL))
		}
	}
	if _, err := newPlanWith(b, patch.Options{}, record.Options{}); !errors.Is(err, patch.ErrNoSites) || !strings.Contains(err.Error(), "-buildmode=c-shared") {
		t.Errorf("error %v, want ErrNoSites and that it is a shared library", err)
	}
}
