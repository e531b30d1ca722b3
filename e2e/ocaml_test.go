package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestOCaml: functions of OCaml's programs are traced, C's among them, and those of the libraries that they use, while its
// collector looks up return addresses. Programs, their plug-ins, and the interpreter of its bytecode end as untraced.
func TestOCaml(t *testing.T) {
	testtool.Need(t, "ocamlopt", "ocamlc", "gcc")
	if runtime.GOARCH != "amd64" {
		t.Skip("programs without sites are traced on x86-64")
	}
	needFentry(t)
	src, err := filepath.Abs("testdata/languages")
	if err != nil {
		t.Fatal(err)
	}
	where := strings.TrimSpace(run(t, command{argv: []string{"ocamlopt", "-where"}}).stdout)
	for _, p := range []struct {
		name    string
		build   []string // commands, of which all but the first look for what the ones before have made
		argv    []string
		library bool // its C functions are in a library
		own     bool // OCaml's are traced
		plugin  bool // with libraries
	}{
		{name: "native", build: []string{"ocamlopt -o calls calls.ml"}, argv: []string{"./calls"}, own: true},
		{name: "stripped", build: []string{"ocamlopt -o calls calls.ml", "strip calls"}, argv: []string{"./calls"}, own: true},
		{
			name: "patched", build: []string{"ocamlopt -o original calls.ml", fentry + " patch -o calls original"},
			argv: []string{"./calls"}, own: true,
		},
		{
			name: "plug-in", argv: []string{"./plugins", "./calls.cmxs"}, plugin: true,
			build: []string{"ocamlopt -shared -o calls.cmxs calls.ml", "ocamlopt -o plugins dynlink.cmxa plugins.ml"},
		},
		{
			name: "shared runtime", argv: []string{"env", "LD_LIBRARY_PATH=" + where, "./calls"}, library: true,
			build: []string{"ocamlopt -output-obj -o all.o calls.ml",
				"gcc -o calls all.o -L" + where + " -lasmrun_shared -lm -ldl"},
		},
		{name: "bytecode", build: []string{"ocamlc -o calls calls.ml"}, argv: []string{"./calls"}},
		{name: "bytecode with its interpreter", build: []string{"ocamlc -custom -o calls calls.ml"}, argv: []string{"./calls"}},
	} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, b := range append([]string{"cp " + src + "/calls.ml " + src + "/plugins.ml ."}, p.build...) {
				run(t, command{dir: dir, argv: strings.Fields(b)}).mustSucceed(t)
			}
			want := run(t, command{dir: dir, argv: p.argv, env: []string{"FENTRY_OFF=1"}})
			if want.status != "exit 2" || !strings.HasSuffix(want.stdout, "\noverflow\n") {
				t.Fatalf("%s: %q, %q", want.status, want.stdout, want.stderr)
			}
			cache, data := "XDG_CACHE_HOME="+filepath.Join(dir, "cache"), filepath.Join(dir, "data")
			for _, options := range [][]string{nil, {"-L", "*"}, {"-L", "*", "--libcalls"}, {"-L", "*", "-T", "function"}} {
				argv := append([]string{"env", cache, fentry, "record", "--overhead", "no", "-o", data}, options...)
				got := run(t, command{dir: dir, argv: append(argv, p.argv...)})
				sameBehaviour(t, want, got)
				if p.name == "patched" && len(options) > 0 {
					break // what is recorded has been decided
				}
				tr := decodeTrace(t, data)
				calls := ocamlCalls(tr.entries)
				known := map[string]int64{"caml_gc_full_major": 60, "caml_call_gc": 0, "camlCalls__through": 150, "camlCalls__check": 60}
				if len(options) == 0 && p.library {
					known["caml_gc_full_major"] = 0
				}
				if !p.own && !(p.plugin && len(options) > 0) {
					known["camlCalls__through"], known["camlCalls__check"] = 0, 0
				}
				for name, n := range known {
					if calls[name] != n {
						t.Errorf("%q: %d calls of %s, want %d", options, calls[name], name, n)
					}
				}
				if tr.lost != 0 {
					t.Errorf("%q: %d events lost", options, tr.lost)
				}
			}
		})
	}
}

// ocamlNumber is what tells apart functions of one name.
var ocamlNumber = regexp.MustCompile(`_\d+$`)

// ocamlCalls are those of functions by their names without it.
func ocamlCalls(of map[function]int64) map[string]int64 {
	out := map[string]int64{}
	for f, n := range of {
		out[ocamlNumber.ReplaceAllString(f.name, "")] += n
	}
	return out
}

// ocamlProgram builds a program of testdata/ocaml.
func ocamlProgram(t *testing.T, name string) string {
	t.Helper()
	testtool.Need(t, "ocamlopt")
	if runtime.GOARCH != "amd64" {
		t.Skip("programs without sites are traced on x86-64")
	}
	needFentry(t)
	src, err := filepath.Abs("testdata/ocaml/" + name + ".ml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run(t, command{dir: dir, argv: []string{"cp", src, "."}}).mustSucceed(t)
	run(t, command{dir: dir, argv: []string{"ocamlopt", "-I", "+threads", "unix.cmxa", "threads.cmxa", "-o", name, name + ".ml"}}).mustSucceed(t)
	return filepath.Join(dir, name)
}

// TestOCamlCounts compares how often each function is called with what callgrind counts in the untraced program.
func TestOCamlCounts(t *testing.T) {
	testtool.Need(t, "valgrind")
	program, data := ocamlProgram(t, "work"), filepath.Join(t.TempDir(), "data")
	out := filepath.Join(t.TempDir(), "callgrind.out")
	under := run(t, command{argv: []string{"valgrind", "--tool=callgrind", "--callgrind-out-file=" + out, "-q", program}})
	traced := run(t, command{argv: []string{fentry, "record", "--overhead", "no", "-o", data, program}})
	sameBehaviour(t, under, traced)
	tr := decodeTrace(t, data)
	if total := sameCounts(t, tr, callgrindCounts(t, out, program)); total < 100_000 {
		t.Errorf("only %d calls", total)
	}
}

// TestOCamlThreads: a program with threads, signals, exceptions, a child, and stacks that end is what it is untraced, whatever is
// recorded.
func TestOCamlThreads(t *testing.T) {
	program := ocamlProgram(t, "threads")
	want := run(t, command{argv: []string{program}})
	want.mustSucceed(t)
	for _, options := range []string{
		"--overhead no", "--overhead no -L * --syscalls", "-T profile", "-T count", "-T function", "-T function,function_graph", "-D 4",
		"-t 2us", "--clock none", "-N camlStdlib*", "-F camlThreads*", "-G camlThreads__work*", "--flight 4M", "--libcalls", "-Z 60", "",
	} {
		data := filepath.Join(t.TempDir(), "data")
		argv := slices.Concat([]string{fentry, "record", "-o", data}, strings.Fields(options), []string{program})
		sameBehaviour(t, want, run(t, command{argv: argv}))
		if _, err := os.Stat(data); err != nil {
			t.Errorf("%s: %v", options, err)
		}
	}
}

// TestOCamlSignals: signals come between any two instructions of what records, and in its slow paths, and no call is lost or
// ends where it does not: with handlers that call, raise and collect.
func TestOCamlSignals(t *testing.T) {
	program := ocamlProgram(t, "signals")
	for _, options := range []string{"", "--clock none", "-t 1ns"} {
		data := filepath.Join(t.TempDir(), "data")
		argv := slices.Concat([]string{fentry, "record", "--overhead", "no", "-o", data}, strings.Fields(options), []string{program})
		got := run(t, command{argv: argv})
		got.mustSucceed(t)
		var sum, fib, deep int64
		if _, err := fmt.Sscan(got.stdout, &sum, &fib, &deep); err != nil || sum != 2_100_000 {
			t.Fatalf("%s: %q: %v", options, got.stdout, err)
		}
		tr := decodeTrace(t, data)
		entries, exits := ocamlCalls(tr.entries), ocamlCalls(tr.exits)
		const fibName, deepName = "camlSignals__fib", "camlSignals__deep"
		if entries[fibName] != fib || exits[fibName] != fib || entries[deepName] != deep || exits[deepName] != 0 || tr.lost != 0 {
			t.Errorf("%s: %d calls of fib, %d ends, want %d; %d of deep, %d ends, want %d and 0; %d events lost",
				options, entries[fibName], exits[fibName], fib, entries[deepName], exits[deepName], deep, tr.lost)
		}
		t.Logf("%s: %d signals", options, entries["handle_signal"])
	}
}
