package e2e

import (
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// language is a compiler whose programs know nothing of a tracer.
type language struct {
	name  string
	tools []string
	// build says how $out is made of sources in $src.
	build [][]string
	// names are what check and through are called in the program.
	names []string
}

var languages = []language{
	{
		name: "ada", tools: []string{"gnatmake"},
		build: [][]string{{"gnatmake", "-q", "-O1", "-o", "$out", "$src/calls.adb"}},
		names: []string{"calls__check", "calls__through"},
	},
	{
		name: "d-gcc", tools: []string{"gdc"},
		build: [][]string{{"gdc", "-O1", "-o", "$out", "$src/calls.d"}},
		names: []string{"check", "through"},
	},
	{
		name: "d-llvm", tools: []string{"ldc2"},
		build: [][]string{{"ldc2", "-O1", "-of=$out", "$src/calls.d"}},
		names: []string{"check", "through"},
	},
	{
		name: "fortran", tools: []string{"gfortran", "g++"},
		build: [][]string{
			{"gfortran", "-O1", "-fexceptions", "-c", "-o", "calls.o", "$src/calls.f90"},
			{"g++", "-O1", "-pthread", "-o", "$out", "$src/calls.cc", "calls.o", "-lgfortran"},
		},
		names: []string{"check", "through"},
	},
}

// make builds the program.
func (l *language) make(t *testing.T) string {
	t.Helper()
	testtool.Need(t, l.tools...)
	src, err := filepath.Abs("testdata/languages")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	out := filepath.Join(dir, "calls")
	for _, argv := range l.build {
		c := command{dir: dir}
		for _, a := range argv {
			c.argv = append(c.argv, strings.NewReplacer("$out", out, "$src", src).Replace(a))
		}
		run(t, c).mustSucceed(t)
	}
	return out
}

// TestRustStacks: what Rust prints of a panic's stack is the same of a recorded program. It looks there for functions of its
// own by their names.
func TestRustStacks(t *testing.T) {
	testtool.Need(t, "rustc", "gcc")
	if runtime.GOARCH != "amd64" {
		t.Skip("programs without sites are traced on x86-64")
	}
	needFentry(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "panics")
	run(t, command{argv: []string{"rustc", "-O", "-C", "force-frame-pointers=yes", "-o", program,
		"testdata/languages/panics.rs"}}).mustSucceed(t)
	thread := regexp.MustCompile(`thread 'main' \(\d+\)`)
	printed := func(argv ...string) string {
		r := run(t, command{argv: append([]string{"env", "RUST_BACKTRACE=1"}, argv...)})
		return r.status + "\n" + thread.ReplaceAllString(withoutSummary(r.stderr), "thread 'main'")
	}
	want := printed(program)
	if !strings.Contains(want, "outer") || !strings.Contains(want, "inner") {
		t.Fatalf("no stack in\n%s", want)
	}
	if got := printed(fentry, "record", "-q", "-o", filepath.Join(dir, "data"), program); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// withoutStack leaves out the stack that D's runtime prints, which has addresses.
func withoutStack(r *result) *result {
	out := *r
	out.stderr, _, _ = strings.Cut(withoutSummary(r.stderr), "----------------\n")
	return &out
}

// TestLanguages traces programs of languages that throw exceptions through frames with something to be cleaned up, in three
// threads, and are ended by one, with all of their libraries. Their behaviour stays, and all calls are counted.
func TestLanguages(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("programs without sites are traced on x86-64")
	}
	needFentry(t)
	const checks, throughs = 3 * 60, 3 * 150
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			program := l.make(t)
			dir := t.TempDir()
			cache, data := "XDG_CACHE_HOME="+filepath.Join(dir, "cache"), filepath.Join(dir, "data")
			want := withoutStack(run(t, command{argv: []string{program}}))
			if want.status == "exit 0" || want.stdout == "" {
				t.Fatalf("%s: %q, %q", want.status, want.stdout, want.stderr)
			}
			record := []string{"env", cache, fentry, "record", "--overhead", "no", "-o", data}
			for _, libraries := range [][]string{nil, {"-L", "*"}} {
				got := run(t, command{argv: append(append(append([]string{}, record...), libraries...), program)})
				sameBehaviour(t, want, withoutStack(got))
				calls := make(map[string]int64)
				tr := decodeTrace(t, data)
				for fn, n := range tr.entries {
					name, _, _ := strings.Cut(fn.name, ".") // of functions within others, Ada's have numbers
					calls[name] += n
				}
				if calls[l.names[0]] != checks || calls[l.names[1]] != throughs || tr.lost != 0 {
					t.Errorf("%q: %d and %d calls, want %d and %d; %d events lost", libraries, calls[l.names[0]], calls[l.names[1]],
						checks, throughs, tr.lost)
				}
			}
		})
	}
}
