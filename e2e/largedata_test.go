package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestLargeData: a program with much memory of its own is traced as long as what is added behind that can be reached, and runs all the
// same if it cannot.
func TestLargeData(t *testing.T) {
	needFentry(t)
	testtool.Need(t, "gcc")
	for _, tt := range []struct {
		mib    int
		traced bool
	}{{1100, true}, {1800, true}, {3000, false}} {
		t.Run(fmt.Sprint(tt.mib), func(t *testing.T) {
			dir := t.TempDir()
			source, prog, data := filepath.Join(dir, "main.c"), filepath.Join(dir, "program"), filepath.Join(dir, "data")
			text := fmt.Sprintf("#include <stdio.h>\nstatic char big[%dL << 20];\n__attribute__((noipa)) char *get(long i) { return big + i; }\n"+
				"int main(void) { *get(sizeof big - 1) = 1; puts(\"ok\"); return *get(sizeof big - 1); }\n", tt.mib)
			if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			testtool.Output(t, "gcc", "-O1", "-mcmodel=medium", "-o", prog, source)
			for _, more := range [][]string{nil, {"--no-ptrace"}, {"--syscalls", "-F", "*"}} {
				argv := append(append([]string{fentry, "record", "-o", data}, more...), prog)
				r := run(t, command{argv: argv})
				said := strings.Contains(r.stderr, "out-of-reach")
				if r.status != "exit 1" || r.stdout != "ok\n" || said == tt.traced && len(more) < 2 { // its loader's system calls are recorded
					t.Errorf("%q: %s, %q, %s", more, r.status, r.stdout, r.stderr)
				}
			}
		})
	}
}
