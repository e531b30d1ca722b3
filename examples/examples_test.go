// Package examples runs the examples as their README files tell, so that they
// stay true.
package examples

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// bin is a directory with fentry and the library example.
var bin string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "fentry-examples-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		bin = dir
		cmd := exec.Command("go", "build", "-o", dir+"/", "../cmd/fentry", "./03-go-library")
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v: %v\n%s", cmd.Args, err, out)
			return 1
		}
		os.Setenv("PATH", dir+":"+os.Getenv("PATH"))
		return testtool.Main(m)
	}())
}

// need skips a test where programs cannot be traced or tools are missing.
func need(t *testing.T, tools ...string) {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("needs Linux on x86-64")
	}
	testtool.Need(t, tools...)
}

// run runs a command in dir with fentry in PATH and returns its standard output.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "FENTRY_OPTS=", "NO_COLOR=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args, " "), err, out, stderr.String())
	}
	return string(out)
}

// copied is a copy of an example, because examples leave files behind.
func copied(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.CopyFS(dir, os.DirFS(name)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// calls finds the number of calls of a function in a report.
func calls(t *testing.T, report, name string) string {
	t.Helper()
	for _, l := range strings.Split(report, "\n") {
		if f := strings.Fields(l); len(f) > 1 && f[len(f)-1] == name {
			return f[0]
		}
	}
	t.Fatalf("no function %s in the report:\n%s", name, report)
	return ""
}

// words counts the words of a file as the example's program does.
func words(t *testing.T, path string) int {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return len(strings.Fields(string(b)))
}

func TestMakefileBuildStep(t *testing.T) {
	need(t, "gcc", "make")
	dir := copied(t, "01-makefile-build-step")
	run(t, dir, "make")
	list := run(t, dir, "fentry", "list", "words")
	for _, fn := range []string{"read_word", "count_word", "count_words", "print_counts", "main"} {
		if !strings.Contains(list, fn+"\n") {
			t.Errorf("fentry list words: no %s in\n%s", fn, list)
		}
	}
	if table := run(t, dir, "fentry", "list", "--json", "-F", "main", "words"); !strings.Contains(table, `"table":"__mcount_loc"`) {
		t.Errorf("fentry mcount made no table: %s", table)
	}
	report := run(t, dir, "make", "trace")
	n := words(t, filepath.Join(dir, "words.c"))
	if got := calls(t, report, "count_word"); got != fmt.Sprint(n) {
		t.Errorf("%s calls of count_word, words.c has %d words", got, n)
	}
	if got := calls(t, report, "read_word"); got != fmt.Sprint(n+1) {
		t.Errorf("%s calls of read_word, words.c has %d words and an end", got, n)
	}
	if _, err := os.Stat(filepath.Join(dir, "gmon.out")); err == nil {
		t.Error("the program was linked with -pg: it wrote gmon.out")
	}
	plain := run(t, dir, "sh", "-c", "./words < words.c")
	self := run(t, dir, "make", "-s", "trace-self")
	if !strings.HasPrefix(self, plain) {
		t.Errorf("plain:\n%s\ntraces itself:\n%s", plain, self)
	}
	if got := calls(t, self, "count_word"); got != fmt.Sprint(n) {
		t.Errorf("linked with libfentry.a: %s calls of count_word, words.c has %d words", got, n)
	}
	run(t, dir, "make", "clean")
}

// The program that traces itself, for arm64.
func TestMakefileARM64(t *testing.T) {
	need(t, "aarch64-linux-gnu-gcc", "make", "qemu-aarch64")
	dir := copied(t, "01-makefile-build-step")
	cross := []string{"CC=aarch64-linux-gnu-gcc", "RUN=qemu-aarch64 -L /usr/aarch64-linux-gnu"}
	self := run(t, dir, "make", append(cross, "-s", "trace-self")...)
	if got, n := calls(t, self, "count_word"), words(t, filepath.Join(dir, "words.c")); got != fmt.Sprint(n) {
		t.Errorf("%s calls of count_word, words.c has %d words", got, n)
	}
}

func TestOfflinePatch(t *testing.T) {
	need(t, "gcc", "cmp")
	script, err := filepath.Abs("02-offline-patch/run.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	out := run(t, ".", script, dir)
	n := words(t, "01-makefile-build-step/words.c")
	_, report, _ := strings.Cut(out, "CALLS ")
	if got := calls(t, report, "count_word"); got != fmt.Sprint(n) {
		t.Errorf("%s calls of count_word, words.c has %d words", got, n)
	}
	for _, want := range []string{"# tracer: function_graph", "count_words() {", "letters: "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestGoLibrary(t *testing.T) {
	need(t, "gcc", "make")
	dir := copied(t, "01-makefile-build-step")
	run(t, dir, "make")
	out := run(t, dir, filepath.Join(bin, "03-go-library"), "./words", "count_*", "./words.traced")
	for _, want := range []string{"fentry-call    5\n", "trace count_word at 0x", "trace count_words at 0x"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	plain := run(t, dir, "sh", "-c", "./words < words.c")
	traced := run(t, dir, "sh", "-c", "./words.traced < words.c")
	if plain != traced {
		t.Errorf("untraced:\n%s\ntraced:\n%s", plain, traced)
	}
	report := run(t, dir, "fentry", "report")
	if got, n := calls(t, report, "count_word"), words(t, filepath.Join(dir, "words.c")); got != fmt.Sprint(n) {
		t.Errorf("%s calls of count_word, words.c has %d words", got, n)
	}
}

// Every example says what it is.
func TestReadmes(t *testing.T) {
	dirs, err := filepath.Glob("[0-9]*")
	if err != nil || len(dirs) == 0 {
		t.Fatal(dirs, err)
	}
	for _, d := range dirs {
		if _, err := os.Stat(filepath.Join(d, "README.md")); err != nil {
			t.Error(err)
		}
	}
}
