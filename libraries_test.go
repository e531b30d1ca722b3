//go:build linux

package fentry

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// someLibrary compiles something that the loader could be given as a library.
func someLibrary(t *testing.T) string {
	t.Helper()
	text := "int visible(int i) { return i + 1; }\nint main(void) { return visible(41); }\n"
	return testtool.Compile(t, "libx.so.1.2", text, "-pie", "-fPIE", "-fpatchable-function-entry=5")
}

// loaded is what the loader gets for a file in a run.
type loaded struct {
	lib      Library
	contents []byte
	path     string // of the copy
	log      string
}

func load(t *testing.T, path string, o Options) loaded {
	t.Helper()
	var log strings.Builder
	o.Logf = func(format string, args ...any) { fmt.Fprintf(&log, format+"\n", args...) }
	if o.Libraries == nil {
		o.Libraries = []string{"libx"}
	}
	l, err := newLibraries(nil, &o, false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := l.open(path, f)
	if again := l.open("/other/name.so", f); again != r {
		t.Error("the second time it is another file")
	}
	out := loaded{log: log.String()}
	if libs, _ := l.results(); len(libs) == 1 {
		out.lib = libs[0]
	}
	if r != nil {
		if out.contents, err = io.ReadAll(io.NewSectionReader(r, 0, 1<<30)); err != nil {
			t.Fatal(err)
		}
		if out.path, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", r.Fd())); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// A library's copy is found again in the next run, and made anew for other options or another file.
func TestLibraryKept(t *testing.T) {
	path, base := someLibrary(t), t.TempDir()
	t.Setenv("XDG_CACHE_HOME", base)
	first := load(t, path, Options{})
	if first.lib.Untraced != "" || first.lib.Traced < 2 || first.lib.Kept || first.lib.Path != path {
		t.Fatalf("%+v: %s", first.lib, first.log)
	}
	if !strings.HasPrefix(first.path, base+"/fentry/images/") || filepath.Base(first.path) != filepath.Base(path) {
		t.Errorf("the copy is %s", first.path)
	}
	second := load(t, path, Options{})
	if !second.lib.Kept || second.lib.Traced != first.lib.Traced || second.path != first.path || !bytes.Equal(second.contents, first.contents) {
		t.Errorf("%+v %s, before %+v %s", second.lib, second.path, first.lib, first.path)
	}
	only, err := record.NewFilter([]string{"visible"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{
		"filter":    {Plan: patch.Options{Select: only}},
		"roots":     {Plan: patch.Options{Roots: only}},
		"tracer":    {Plan: patch.Options{Tracer: patch.Function}},
		"threshold": {Plan: patch.Options{Threshold: 1000}},
		"plain":     {Plain: record.PlainAll},
		"calls":     {LibraryCalls: true},
		"policy":    {Policy: 1},
	} {
		if x := load(t, path, o); x.lib.Kept || x.path == first.path || name == "filter" && x.lib.Traced != 1 {
			t.Errorf("%s: %+v", name, x.lib)
		}
		if x := load(t, path, o); !x.lib.Kept {
			t.Errorf("%s: not kept", name)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o700); err != nil { // the same contents: nobody knows
		t.Fatal(err)
	}
	if x := load(t, path, Options{}); x.lib.Kept || !bytes.Equal(x.contents, first.contents) {
		t.Errorf("written again: %+v", x.lib)
	}
}

// Without a cache, copies are in memory, under the library's name.
func TestLibraryInMemory(t *testing.T) {
	path := someLibrary(t)
	t.Setenv("XDG_CACHE_HOME", path) // no directory
	x := load(t, path, Options{})
	if x.lib.Untraced != "" || x.path != "/memfd:libx.so.1.2 (deleted)" || len(x.contents) == 0 {
		t.Errorf("%+v, %s", x.lib, x.path)
	}
	if !strings.HasPrefix(x.log, "patched libraries are not kept: cache: ") {
		t.Errorf("%q", x.log)
	}
}

// What is no library that can be patched is left alone, and a message says which one and why.
func TestLibraryLeftAlone(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	path := someLibrary(t)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, b []byte) string {
		p := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(p, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	only, err := record.NewFilter([]string{"nosuch"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	empty := testtool.Compile(t, "libx.so", "void version(void) {}\n", "-shared", "-fPIC", "-O1", "-nostdlib", "-fcf-protection=none")
	malformed := bytes.Clone(b)
	malformed[32]++ // e_phoff
	foreign := write("libx.so", b)
	for _, tt := range []struct {
		name, path, log string
		o               Options
	}{
		{"another name", write("liby.so", b), "", Options{}},
		{"no ELF file", write("libx.so", []byte("GROUP ( /lib/libx.so.1 )")), "", Options{}},
		{"empty", write("libx.so", nil), "", Options{}},
		{"nothing selected", path, "", Options{Plan: patch.Options{Select: only}}},
		{"nothing in it", empty, "none of those that it has can be: 1 short-function", Options{}},
		{"nothing in it, kept", empty, "none of those that it has can be: 1 short-function", Options{}},
		{"nothing in it, by a pattern", empty, "", Options{Libraries: []string{"lib*"}}},
		{"malformed", write("libx.so", malformed), "libx.so: not traced: ", Options{}},
		{"another user's", foreign, "libx.so: not traced: it belongs to user 12345", Options{}},
	} {
		if tt.path == foreign && os.Chown(foreign, 12345, -1) != nil {
			continue // not root
		}
		x := load(t, tt.path, tt.o)
		if x.contents != nil || tt.log == "" && x.log != "" || !strings.Contains(x.log, tt.log) {
			t.Errorf("%s: %+v: %q", tt.name, x.lib, x.log)
		}
	}
}

// Functions of a copy have the names that the library's own file leads to, or those in the copy if that is another file.
func TestLibraryNames(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	path := someLibrary(t)
	l, err := newLibraries(nil, &Options{Libraries: []string{"libx"}}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if l.open(path, f) == nil {
		t.Fatal("left alone")
	}
	for _, replaced := range []bool{false, true} {
		if replaced {
			if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte("another"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		tab, err := l.names(trace.ImageID(l.order[0].about.Image))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for fn := range tab.Traced() {
			found = found || fn.Name == "visible" && fn.Size > 0
		}
		if !found || tab.Path != path {
			t.Errorf("replaced %t: %+v", replaced, tab)
		}
	}
	if tab, err := l.names(1); tab != nil || err != nil {
		t.Errorf("%v, %v", tab, err)
	}
}

// A library that a process loads again and again at one place is planned once, and at each other place once more.
func TestLoadedAgain(t *testing.T) {
	if !session.CanFollow() {
		t.Skip("processes are attached to on x86-64")
	}
	o := Options{Libraries: []string{"libx"}, Logf: t.Logf}
	e := newExecuted(&o)
	e.options.Running, e.options.Keep = true, true
	plan, err := e.libraries(&o, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	path := someLibrary(t)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	plans := map[*patch.Memory]bool{}
	for i := range 10 {
		plans[plan(path, f, 0x100000<<(i/5))] = true
	}
	if len(plans) != 2 || plans[nil] || len(e.loaded.files) != 2 {
		t.Errorf("%d plans of %d", len(plans), len(e.loaded.files))
	}
	if a, b := e.loaded.files[0].program, e.loaded.files[1].program; a != b {
		t.Error("what can be traced in it was found twice")
	}
}
