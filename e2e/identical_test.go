package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
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
	for name, argv := range map[string][]string{
		"cc1":   {"cc1", "-quiet", "-imultiarch", "x86_64-linux-gnu", "-O2", "-g", "-fno-working-directory", "-o"},
		"clang": {"clang", "-c", "-O2", "-g", "-o"},
	} {
		t.Run(name, func(t *testing.T) {
			file := needProgram(t, name)
			compiled := 0
			for _, source := range sources {
				made := map[bool][]byte{}
				for _, traced := range []bool{false, true} {
					dir := t.TempDir()
					out := filepath.Join(dir, "out")
					words := append(append([]string{file}, argv[1:]...), out, source)
					if traced {
						words = append([]string{fentry, "record", "--overhead", "no", "--flight", "16M", "-L", "*", "-o", filepath.Join(dir, "data")},
							words...)
					}
					r := run(t, command{argv: words})
					if !traced && r.status != "exit 0" {
						break // it is not for this compiler
					}
					if traced && !strings.Contains(r.stderr, " 0 lost") {
						t.Errorf("%s: %s\n%s", source, r.status, clip(r.stderr))
					}
					if made[traced], err = os.ReadFile(out); err != nil {
						t.Fatalf("%s, traced %v: %v\n%s", source, traced, err, clip(r.stderr))
					}
				}
				if made[false] == nil {
					continue
				}
				if compiled++; !bytes.Equal(made[false], made[true]) {
					t.Errorf("%s: %d bytes, untraced %d, or others", source, len(made[true]), len(made[false]))
				}
			}
			t.Logf("%d sources", compiled)
			if compiled < len(sources)/2 {
				t.Errorf("only %d of %d sources compile", compiled, len(sources))
			}
		})
	}
}
