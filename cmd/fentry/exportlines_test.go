package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/symbol"
	"github.com/fentry-dev/fentry/trace"
	"github.com/fentry-dev/fentry/view"
)

// linesSource has a comment at the line that each function is at, with the name that readers are to show.
const linesSource = `#include <cstdio>
namespace app {
struct Store {
	volatile int sum = 0;
	__attribute__((noinline)) void put(int key) { // app::Store::put
		sum += key;
	}
};
template <typename T>
__attribute__((noinline)) T twice(T value) { // app::twice
	return value + value;
}
}
int main() { // main
	app::Store s;
	for (int i = 0; i < 9; i++)
		s.put(app::twice(i));
	printf("%d\n", s.sum);
}
`

// TestExportLines: what programs show of pprof's and callgrind's formats, and the page, has demangled names, the files and
// lines of functions, and the program's build id.
func TestExportLines(t *testing.T) {
	testtool.Need(t, "g++", "readelf", "callgrind_annotate")
	dir := t.TempDir()
	link(t, dir)
	source := filepath.Join(dir, "lines.cc")
	if err := os.WriteFile(source, []byte(linesSource), 0o666); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
		return string(out)
	}
	run("g++", "-O2", "-g", "-pg", "-mfentry", "-Wl,--build-id=sha1", "-o", "lines", source)
	id := regexp.MustCompile(`Build ID: ([0-9a-f]+)`).FindStringSubmatch(run("readelf", "-n", "lines"))
	if id == nil {
		t.Fatal("no build id")
	}
	fentryRun(t, dir, 0, "record", "./lines")
	fentryRun(t, dir, 0, "export", "-o", "cpu.pb.gz")
	fentryRun(t, dir, 0, "export", "-o", "callgrind.out.1")
	raw := run("go", "tool", "pprof", "-raw", "cpu.pb.gz")
	if want := regexp.MustCompile(`(?m)^\d+: 0x[0-9a-f]+/0x[0-9a-f]+/0x0 \S+/lines ` + id[1] + ` `); !want.MatchString(raw) {
		t.Errorf("no mapping has build id %s:\n%s", id[1], raw)
	}
	tr, err := trace.Open(filepath.Join(dir, "fentry.data"))
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	page, err := view.New(tr)
	if err != nil {
		t.Fatal(err)
	}
	calls, err := page.Slowest(view.Scope{To: 1 << 62, Task: -1, Process: -1}, 100)
	if err != nil {
		t.Fatal(err)
	}
	// With a threshold, it prints the lines of all files that there are.
	annotated := run("callgrind_annotate", "--threshold=100", "callgrind.out.1", source)
	found := 0
	for i, line := range strings.Split(linesSource, "\n") {
		_, name, ok := strings.Cut(line, " // ")
		if !ok {
			continue
		}
		found++
		at := fmt.Sprintf(`%s\S* \S*lines\.cc:%d:0 s=%d\b`, regexp.QuoteMeta(name), i+1, i+1)
		if !regexp.MustCompile(at).MatchString(raw) {
			t.Errorf("pprof does not have %s at line %d:\n%s", name, i+1, raw)
		}
		if got, want := sourceOf(t, page, calls, name), fmt.Sprintf("%s:%d", source, i+1); got != want {
			t.Errorf("the page has %s at %q, want %s", name, got, want)
		}
		at = `\d[0-9,]* \([ 0-9.]+%\)\s+\Q` + line + `\E`
		if !regexp.MustCompile(at).MatchString(annotated) {
			t.Errorf("callgrind_annotate does not show time at line %d:\n%s", i+1, annotated)
		}
	}
	if found != 3 {
		t.Fatalf("%d functions", found)
	}
}

// sourceOf is the line that the page tells of a call of a function.
func sourceOf(t *testing.T, page *view.Viewer, calls []view.Call, name string) string {
	t.Helper()
	for _, c := range calls {
		if !strings.HasPrefix(symbol.Demangle(c.Name, symbol.Simple), name) {
			continue
		}
		s := view.Scope{From: c.Start, To: c.Start, Task: c.Task, Process: -1}
		if _, err := fmt.Sscanf(c.ID, "%d.%d", &s.Func.Image, &s.Func.ID); err != nil {
			t.Fatal(err)
		}
		d, err := page.Detail(s, c.Row)
		if err != nil {
			t.Fatal(err)
		}
		return d.Source
	}
	return ""
}
