//go:build linux

package fentry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/symbol"
	"github.com/fentry-dev/fentry/trace"
)

// The symbol file of a library is what an earlier run has written, until there are better names.
func TestKeptNames(t *testing.T) {
	cache, dirs := t.TempDir(), t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	text := "__attribute__((noinline, noclone)) static int hidden(int i) { return i + 1; }\n" +
		"int visible(int i) { return hidden(i) + 1; }\nint main(void) { return visible(41); }\n"
	path := testtool.Compile(t, "libx.so.1.2", text, "-g", "-pie", "-fPIE", "-fpatchable-function-entry=5", "-Wl,--build-id")
	debug := path + ".debug"
	objcopy := testtool.Path(t, "objcopy")
	for _, args := range [][]string{{"--only-keep-debug", path, debug}, {"--strip-all", path}} {
		if out, err := exec.Command(objcopy, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	symbols := symbol.Options{DebugDirs: []string{dirs}}
	write := func() string {
		t.Helper()
		l, err := newLibraries(nil, &Options{Libraries: []string{"libx"}, Symbols: symbols}, false)
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
		var out bytes.Buffer
		if done, err := l.writeNames(trace.ImageID(l.order[0].about.Image), &out); !done || err != nil {
			t.Fatalf("%t, %v", done, err)
		}
		if done, err := l.writeNames(1, io.Discard); done || err != nil {
			t.Errorf("of another image: %t, %v", done, err)
		}
		return out.String()
	}
	// mark changes what is kept, which shows whether it is used.
	const marked = "# marked\n"
	mark := func() {
		t.Helper()
		list, err := filepath.Glob(filepath.Join(cache, "fentry", namesKind, "*", "names"))
		if err != nil || len(list) != 1 {
			t.Fatalf("%d entries: %v", len(list), err)
		}
		b, err := os.ReadFile(list[0])
		if err != nil {
			t.Fatal(err)
		}
		sum := namesSum(b)
		copy(b, marked)
		note := filepath.Join(filepath.Dir(list[0]), ".info")
		about, noteErr := os.ReadFile(note)
		about = bytes.ReplaceAll(about, fmt.Append(nil, sum), fmt.Append(nil, namesSum(b))) // the cache has it, too
		if err := errors.Join(noteErr, os.WriteFile(list[0], b, 0o600), os.WriteFile(note, about, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	used := func(step string, kept, named bool) {
		t.Helper()
		out := write()
		if strings.HasPrefix(out, marked) != kept || strings.Contains(out, "\thidden\n") != named || !kept && !strings.Contains(out, path) {
			t.Errorf("%s: want kept %t, with names %t:\n%s", step, kept, named, out)
		}
	}
	used("first", false, false)
	mark()
	used("second", true, false)

	symbols.Fetch = func([]byte) (string, error) { return "", errors.New("none") }
	used("somebody may have names", false, false)
	symbols.Fetch = func([]byte) (string, error) { return debug, nil }
	used("somebody has names", false, true)
	mark()
	symbols.Fetch = nil
	at := filepath.Join(dirs, "libx")
	if err := errors.Join(os.MkdirAll(at, 0o777), os.Rename(debug, filepath.Join(at, "file"))); err != nil {
		t.Fatal(err)
	}
	used("nobody has names any more", false, false)
	mark()

	tab, err := symbol.Open(path, symbols)
	if err != nil {
		t.Fatal(err)
	}
	looked, found := tab.Looked()
	tab.Close()
	if len(looked) == 0 || found {
		t.Fatalf("%q, %t", looked, found)
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(looked[0]), 0o777), os.Rename(filepath.Join(at, "file"), looked[0])); err != nil {
		t.Fatal(err)
	}
	used("names are installed", false, true)
	mark()
	used("names are kept", true, true)
	damageNames(t, cache)
	used("what is kept is damaged", false, true)
	mark()
	used("and was made anew", true, true)
}

// damageNames writes zeros over the symbol files that are kept.
func damageNames(t *testing.T, cache string) {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(cache, "fentry", namesKind, "*", "names"))
	if err != nil || len(list) == 0 {
		t.Fatalf("%d entries: %v", len(list), err)
	}
	for _, file := range list {
		st, err := os.Stat(file)
		if err == nil {
			err = os.WriteFile(file, make([]byte, st.Size()), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Where the symbol file that is kept with a program's plan is damaged, a run writes another one, and the next run keeps both.
func TestKeptNamesDamaged(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	_, path := staticProgram(t)
	aged(t, path)
	o := Options{Dir: filepath.Join(t.TempDir(), "fentry.data"), Overhead: -1}
	for i := range 4 {
		if i == 1 {
			damageNames(t, cache)
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		plans := newPlans(&o, nil)
		if got, want := plans.get(path, &st) != nil, i == 1 || i == 3; got != want {
			t.Errorf("run %d: a plan is kept: %t", i+1, got)
		}
		plans.close()
		if _, err := Run(context.Background(), exec.Command(path), o); err != nil {
			t.Fatal(err)
		}
		tr, err := trace.Open(o.Dir)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for fn := range tr.Functions() {
			found = found || fn.Name == "main"
		}
		if tr.Close(); !found {
			t.Errorf("run %d: no main", i+1)
		}
	}
}
