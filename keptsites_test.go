//go:build linux

package fentry

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/record"
)

// staticProgram compiles a program that is large enough for its sites to be kept.
func staticProgram(t *testing.T) (source, path string) {
	t.Helper()
	dir := t.TempDir()
	source, path = filepath.Join(dir, "p.c"), filepath.Join(dir, "p")
	if err := os.WriteFile(source, []byte("#include <stdio.h>\nint main(void) { return puts(\"\") < 0; }\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(testtool.Path(t, "gcc"), "-static", "-o", path, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return source, path
}

// What an earlier run has found of a program that a traced one executes is used, too.
func TestKeptSitesExecuted(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	_, path := staticProgram(t)
	for i, kept := range []bool{false, true} {
		e := newExecuted(&Options{Syscalls: true, Preparing: func(string) {}})
		if e == nil {
			t.Skip("programs that are executed are not followed here")
		}
		exe, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		made, err := e.make(path, exe, 0)
		exe.Close()
		if err != nil {
			t.Fatal(err)
		}
		p, plan := made.program, made.plan
		if p.Kept != kept || p.prepared == kept || plan.Traced() < 500 || len(p.Syscalls) < 20 {
			t.Errorf("run %d: kept %v, %d functions traced, %d system calls", i+1, p.Kept, plan.Traced(), len(p.Syscalls))
		}
		p.Close()
	}
}

// What an earlier run has found is used as long as nothing has changed: the file, the options, the entry of the cache.
func TestKeptSites(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	source, path := staticProgram(t)
	find := func(step string, o record.Options, kept bool) {
		t.Helper()
		p, err := open(&Program{Path: path, keeps: true}, o)
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		defer p.Close()
		if p.Kept != kept {
			t.Errorf("%s: kept: %v", step, p.Kept)
		}
		fresh, err := record.Find(p.File, record.Options{Plain: o.Plain})
		if err != nil || len(fresh) < 500 || !reflect.DeepEqual(p.Sites, fresh) {
			t.Errorf("%s: %d sites, want %d (%v)", step, len(p.Sites), len(fresh), err)
		}
	}
	entry := func() string {
		t.Helper()
		list, err := filepath.Glob(filepath.Join(cache, "fentry", sitesKind, "*", "sites"))
		if err != nil || len(list) != 1 {
			t.Fatalf("%d entries: %v", len(list), err)
		}
		return list[0]
	}
	find("first", record.Options{}, false)
	find("second", record.Options{}, true)
	kept, err := os.ReadFile(entry())
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{
		"damaged": append([]byte{kept[0] ^ 1}, kept[1:]...), "cut off": kept[:len(kept)/2], "empty": nil,
	} {
		if err := os.WriteFile(entry(), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		find(name, record.Options{}, false)
		find(name+", again", record.Options{}, true)
	}
	find("other options", record.Options{Plain: record.PlainNone}, false)

	// The contents and the time of writing are the same, but somebody may have put other contents there meanwhile.
	image, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := runfile.WriteFile(path, image); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, st.ModTime(), st.ModTime()); err != nil {
		t.Fatal(err)
	}
	find("written again", record.Options{}, false)

	t.Setenv("XDG_CACHE_HOME", source) // no directory
	find("without a cache", record.Options{}, false)
}

// System calls are kept as functions are, apart from them. What is looked for anew is said.
func TestKeptSyscalls(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	_, path := staticProgram(t)
	find := func(step string, calls, kept bool) {
		t.Helper()
		var said []string
		p, err := open(&Program{Path: path, keeps: true, prepare: func(file string) { said = append(said, file) }},
			record.Options{Syscalls: calls})
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		defer p.Close()
		want := []string{path, ""}
		if kept {
			want = nil
		}
		if !slices.Equal(said, want) {
			t.Errorf("%s: prepared: %q, want %q", step, said, want)
		}
		if !calls {
			return
		}
		fresh, err := record.Syscalls(p.File, p.table)
		if err != nil || len(fresh) < 20 || !reflect.DeepEqual(p.Syscalls, fresh) {
			t.Errorf("%s: %d system calls, want %d (%v)", step, len(p.Syscalls), len(fresh), err)
		}
	}
	find("functions", false, false)
	find("system calls", true, false)
	find("both", true, true)
	list, err := filepath.Glob(filepath.Join(cache, "fentry", syscallsKind, "*", syscallsKind))
	if err != nil || len(list) != 1 {
		t.Fatalf("%d entries: %v", len(list), err)
	}
	if err := os.Truncate(list[0], 100); err != nil {
		t.Fatal(err)
	}
	find("damaged", true, false)
	find("damaged, again", true, true)
	t.Setenv("XDG_CACHE_HOME", path) // no directory
	find("without a cache", true, false)
}

// Patterns that choose functions find what an earlier run has found, whatever it chose, unless compilers have prepared some: then
// those that are named are sites, too.
func TestKeptSitesNamed(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	filter := func(patterns ...string) *record.Filter {
		f, err := record.NewFilter(patterns, nil)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	source, plain := staticProgram(t)
	prepared := plain + ".prepared"
	out, err := exec.Command(testtool.Path(t, "gcc"), "-pg", "-mfentry", "-static", "-o", prepared, source).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, tt := range []struct {
		name, path string
		named      *record.Filter
		kept       bool
	}{
		{"plain", plain, nil, false},
		{"plain, a name", plain, filter("puts"), true},
		{"plain, a glob", plain, filter("put*"), true},
		{"plain, calls", plain, filter("puts@plt"), false},
		{"plain, other calls", plain, filter("printf@plt"), true},
		{"prepared, a name", prepared, filter("puts"), false},
		{"prepared, another name", prepared, filter("main", "printf"), false},
		{"prepared", prepared, nil, false},
		{"prepared, a glob", prepared, filter("put*"), true},
		{"prepared, a name, again", prepared, filter("puts"), true},
		{"prepared, another name, again", prepared, filter("main", "printf"), true},
		{"prepared, again", prepared, nil, true},
		{"prepared, a third name", prepared, filter("strlen"), false},
	} {
		p, err := open(&Program{Path: tt.path, keeps: true}, record.Options{Named: tt.named})
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if p.Kept != tt.kept {
			t.Errorf("%s: kept %v", tt.name, p.Kept)
		}
		fresh, err := record.Find(p.File, record.Options{Named: tt.named})
		if err != nil || len(fresh) < 500 || !reflect.DeepEqual(p.Sites, fresh) {
			t.Errorf("%s: %d sites, want %d (%v)", tt.name, len(p.Sites), len(fresh), err)
		}
		p.Close()
	}
}
