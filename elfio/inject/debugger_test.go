package inject

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// A debugger walks from the program through injected code to its callers, by the injected unwind rows and symbols.
func TestInjectedBacktrace(t *testing.T) {
	testtool.Need(t, "gdb")
	testtool.Need(t, "g++")
	for _, args := range [][]string{{"-pie"}, {"-no-pie"}, {"-static"}} {
		t.Run(args[0][1:], func(t *testing.T) {
			name := strings.TrimPrefix(args[0], "-")
			if name == "no-pie" {
				name = "nopie"
			}
			raw := elftest.Compile(t, "splice-"+name, ".cc", spliceCXX, "g++", append([]string{"-O1", "-w"}, args...)...)
			f, err := elfio.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			dynamic := name != "static"
			out := splice(t, raw, f, dynamic, dynamic)
			b, err := exec.Command("gdb", "-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "break middle_body",
				"-ex", "run", "-ex", "bt", elftest.WriteExec(t, out)).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, b)
			}
			if strings.Contains(string(b), "ptrace: Operation not permitted") {
				t.Skip("ptrace is not permitted here")
			}
			at := 0
			for _, w := range []string{"in middle_body", "in fentry:thunk", "in main"} {
				i := strings.Index(string(b[at:]), w)
				if i < 0 {
					t.Fatalf("no %q in order in\n%s", w, b)
				}
				at += i
			}
			if strings.Contains(string(b), "warning:") && !strings.Contains(string(b), "debuginfod") {
				t.Logf("%s", b)
			}
		})
	}
}
