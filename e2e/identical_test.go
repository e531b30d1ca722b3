package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestIdenticalObjects compiles sources by compilers as they are installed, of which all functions are traced, those of LLVM's
// libraries included: objects and assembly are the same, byte by byte, as those that the untraced compilers make.
func TestIdenticalObjects(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("programs without sites are traced on x86-64")
	}
	if !testtool.Wide() {
		t.Skip("all functions of whole compilers are traced only in wide runs")
	}
	needFentry(t)
	sources, err := filepath.Glob("testdata/*.c")
	if err != nil || len(sources) < 10 {
		t.Fatalf("%d sources: %v", len(sources), err)
	}
	for name, options := range map[string][]string{
		"cc1":   {"-quiet", "-imultiarch", "x86_64-linux-gnu", "-O2", "-g", "-fno-working-directory"},
		"clang": {"-c", "-O2", "-g"},
	} {
		t.Run(name, func(t *testing.T) {
			compiler := append([]string{needProgram(t, name)}, options...)
			traced := []string{fentry, "record", "--overhead", "no", "--flight", "16M", "-L", "*", "-o", filepath.Join(t.TempDir(), "data")}
			compiled := 0
			for _, source := range sources {
				want, r := compileBy(t, source, compiler)
				if r.status != "exit 0" {
					continue // it is not for this compiler
				}
				compiled++
				got, r := compileBy(t, source, slices.Concat(traced, compiler))
				if !strings.Contains(r.stderr, " 0 lost") {
					t.Errorf("%s: %s\n%s", source, r.status, clip(r.stderr))
				}
				if !bytes.Equal(want, got) {
					t.Errorf("%s: %d bytes, untraced %d, or others", source, len(got), len(want))
				}
			}
			t.Logf("%d sources", compiled)
			if compiled < len(sources)/2 {
				t.Errorf("only %d of %d sources compile", compiled, len(sources))
			}
		})
	}
}

// compileBy compiles a source, and returns what was made of it; nothing if it could not be.
func compileBy(t *testing.T, source string, compiler []string) (made []byte, r *result) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	r = run(t, command{argv: slices.Concat(compiler, []string{"-o", out, source})})
	made, err := os.ReadFile(out)
	if err != nil && r.status == "exit 0" {
		t.Fatalf("%s: %v\n%s", source, err, clip(r.stderr))
	}
	return made, r
}
