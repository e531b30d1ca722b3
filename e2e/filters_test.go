package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/trace"
)

// TestFilters: processes that forbid themselves system calls which the tracer needs, on pain of death, live as untraced. What
// is not recorded of them is counted, and of what they execute it is said.
func TestFilters(t *testing.T) {
	prog := following(t, "filters")
	plain := run(t, command{argv: []string{prog}})
	plain.mustSucceed(t)
	children := strings.Count(plain.stdout, "exit 0")
	if children < 60 || strings.Count(plain.stdout, "\n") != children+6 {
		t.Fatalf("children end\n%s", plain.stdout)
	}
	const rounds, once, depth = 20000, 1, 4000
	leaf := children*(2*(rounds+once)+1) + 1 // by threads, a handler; and one program that is executed
	nested := children * 2 * (depth + 1)
	for _, options := range [][]string{
		{"--plain"}, {"-L", "*"}, {"--syscalls"}, {"-L", "*", "--syscalls"}, {"-T", "count"},
	} {
		t.Run(strings.Join(options, " "), func(t *testing.T) {
			data := filepath.Join(t.TempDir(), "data")
			got := run(t, command{argv: append(append([]string{fentry, "record", "--overhead", "no", "-o", data}, options...), prog)})
			if got.status != plain.status || got.err != nil || got.stdout != plain.stdout {
				t.Errorf("%s, %v\n%s%s, untraced\n%s", got.status, got.err, got.stdout, got.stderr, plain.stdout)
			}
			if options[0] == "-T" {
				return // nothing tells how much is lost
			}
			said := []string{"what was executed at 2 requests"}
			if options[0] != "--plain" {
				said = append(said, "libraries among 2 files") // one, and where it is looked up
			}
			for _, said := range said {
				if !strings.Contains(got.stderr, said) || strings.Contains(got.stderr, "on a stack") {
					t.Errorf("not only %q is said:\n%s", said, got.stderr)
				}
			}
			tr, err := trace.Open(data)
			if err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			for name, want := range map[string]int{"leaf": leaf, "nested": nested} {
				n := calls(t, data, name)
				if n > want || 2*(want-n) > int(tr.Lost) || n < want*4/5 {
					t.Errorf("%d of %d calls of %s, %d events are lost", n, want, name, tr.Lost)
				}
			}
		})
	}
}
