package e2e

import (
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestOCaml: C functions of OCaml's programs are traced, and of the libraries that they use, while its collector looks up return
// addresses. Programs, their plug-ins, and the interpreter of its bytecode end as untraced.
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
	}{
		{name: "native", build: []string{"ocamlopt -o calls calls.ml"}, argv: []string{"./calls"}},
		{name: "stripped", build: []string{"ocamlopt -o calls calls.ml", "strip calls"}, argv: []string{"./calls"}},
		{
			name: "plug-in", argv: []string{"./plugins", "./calls.cmxs"},
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
			want := run(t, command{dir: dir, argv: p.argv})
			if want.status != "exit 2" || !strings.HasSuffix(want.stdout, "\noverflow\n") {
				t.Fatalf("%s: %q, %q", want.status, want.stdout, want.stderr)
			}
			cache, data := "XDG_CACHE_HOME="+filepath.Join(dir, "cache"), filepath.Join(dir, "data")
			for _, options := range [][]string{nil, {"-L", "*"}, {"-L", "*", "--libcalls"}, {"-L", "*", "-T", "function"}} {
				argv := append([]string{"env", cache, fentry, "record", "--overhead", "no", "-o", data}, options...)
				got := run(t, command{dir: dir, argv: append(argv, p.argv...)})
				sameBehaviour(t, want, got)
				calls, ml := int64(0), ""
				tr := decodeTrace(t, data)
				for fn, n := range tr.entries {
					if fn.name == "caml_gc_full_major" {
						calls += n
					} else if strings.HasPrefix(fn.name, "camlCalls__") || fn.name == "caml_call_gc" {
						ml = fn.name
					}
				}
				if known := int64(60); (len(options) > 0 || !p.library) && calls != known || ml != "" || tr.lost != 0 {
					t.Errorf("%q: %d calls of caml_gc_full_major, want %d; %s is recorded; %d events lost", options, calls, known, ml, tr.lost)
				}
			}
		})
	}
}
