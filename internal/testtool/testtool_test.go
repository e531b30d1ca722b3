package testtool

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fake records what a test would have been told.
type fake struct {
	testing.TB
	skipped, failed, logged bool
}

func (f *fake) Helper()               {}
func (f *fake) Skipf(string, ...any)  { f.skipped = true; panic(f) }
func (f *fake) Fatalf(string, ...any) { f.failed = true; panic(f) }
func (f *fake) Logf(string, ...any)   { f.logged = true }

// try calls fn and returns what became of the test.
func try(fn func(testing.TB)) (f *fake) {
	f = &fake{}
	defer func() {
		if r := recover(); r != nil && r != any(f) {
			panic(r)
		}
	}()
	fn(f)
	return f
}

func TestNeed(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "gcc"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	if f := try(func(t testing.TB) { Need(t, "gcc") }); f.skipped || f.failed {
		t.Errorf("a tool that is there: %+v", f)
	}
	if got := Path(t, "gcc"); got != filepath.Join(dir, "gcc") {
		t.Errorf("gcc is at %s", got)
	}
	if f := try(func(t testing.TB) { Need(t, "gcc", "clang") }); !f.skipped {
		t.Error("a test that needs a missing tool is not skipped")
	}
	if f := try(func(t testing.TB) { Need(t, "no-such-tool") }); !f.failed {
		t.Error("a tool that is not on the list does not fail the test")
	}
	if f := try(func(test testing.TB) {
		if Have(test, "clang") {
			t.Error("clang is there")
		}
	}); !f.logged || f.skipped {
		t.Errorf("an optional tool: %+v", f)
	}
}

// The list is read by this package and by the Makefile, whose awk wants "package: tool ...".
func TestList(t *testing.T) {
	var all []string
	for line := range strings.Lines(list + wideList) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		pkg, tools, ok := strings.Cut(line, ": ")
		if !ok || pkg == "" || strings.ContainsAny(pkg, " \t") || len(strings.Fields(tools)) == 0 {
			t.Errorf("%q is not PACKAGE: TOOL...", line)
		}
		all = append(all, strings.Fields(tools)...)
	}
	slices.Sort(all)
	for i := 1; i < len(all); i++ {
		if all[i] == all[i-1] {
			t.Errorf("%s is listed twice", all[i])
		}
	}
	make := Output(t, "awk", "-F", ": ", "/^[^#]/ { print $2 }", "tools.txt", "widetools.txt")
	if got := strings.Fields(make); len(got) != len(all) || len(all) != len(packages()) {
		t.Errorf("awk finds %d tools, this package %d of %d", len(got), len(packages()), len(all))
	}
}
