//go:build linux

package fentry

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
		if err == nil {
			err = os.WriteFile(list[0], append([]byte(marked), b[len(marked):]...), 0o600)
		}
		if err != nil {
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
}
