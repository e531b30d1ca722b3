package e2e

import (
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// Packages of Debian's Python.
const (
	gevent   = "/usr/lib/python3/dist-packages/gevent/__init__.py"
	greenlet = "/usr/lib/python3/dist-packages/greenlet/__init__.py"
)

// runtimes are programs of languages whose runtimes do something of their own with stacks, code or faults: collectors that
// look at stacks, code that is made or moved while it runs, faults that become exceptions, continuations.
var runtimes = []struct {
	name  string
	tools []string
	build string // a command, in a directory with the sources; "": none
	run   string
}{
	{name: "C#", tools: []string{"mcs", "mono"}, build: "mcs runtime.cs", run: "mono runtime.exe"},
	{name: "COBOL", tools: []string{"cobc"}, build: "cobc -x -o cobol runtime.cob", run: "./cobol"},
	{name: "Crystal", tools: []string{"crystal"}, build: "crystal build -o crystal runtime.cr", run: "./crystal"},
	{name: "Emacs", tools: []string{"emacs"}, run: "emacs -Q --script runtime.el"},
	{name: "Erlang", tools: []string{"erl", "erlc"}, build: "erlc runtime.erl", run: "erl -noshell -s runtime main"},
	{name: "Forth", tools: []string{"gforth"}, run: "gforth runtime.fs"},
	{name: "Haskell", tools: []string{"ghc"}, build: "ghc -O1 -threaded -o haskell runtime.hs", run: "./haskell"},
	{name: "Lisp, CLISP", tools: []string{"clisp"}, run: "clisp -q runtime.lisp"},
	{name: "Lisp, ECL", tools: []string{"ecl"}, run: "ecl --shell runtime.lisp"},
	{name: "Lisp, GCL", tools: []string{"gcl"}, run: "gcl -batch -load runtime.lisp"},
	{name: "Lisp, SBCL", tools: []string{"sbcl"}, run: "sbcl --script runtime.lisp"},
	{name: "Lua", tools: []string{"lua5.4"}, run: "lua5.4 runtime.lua"},
	{name: "Lua, LuaJIT", tools: []string{"luajit"}, run: "luajit runtime.lua"},
	{name: "Nim", tools: []string{"nim"}, build: "nim c --hints:off --nimcache:nim.c -o:nim runtime.nim", run: "./nim"},
	{name: "Pascal", tools: []string{"fpc"}, build: "fpc -O2 -opascal runtime.pas", run: "./pascal"},
	{name: "PHP", tools: []string{"php"}, run: "php runtime.php"},
	{
		name: "PHP, compiled", tools: []string{"php"},
		run: "php -d opcache.enable_cli=1 -d opcache.jit=tracing -d opcache.jit_buffer_size=16M runtime.php",
	},
	{name: "Prolog", tools: []string{"swipl"}, run: "swipl runtime.pl"},
	{name: "Python, gevent", tools: []string{gevent}, run: "/usr/bin/python3 events.py"},
	{name: "Python, greenlet", tools: []string{greenlet}, run: "/usr/bin/python3 greenlets.py"},
	{name: "PyPy, greenlet", tools: []string{"pypy3"}, run: "pypy3 greenlets.py"},
	{name: "R", tools: []string{"Rscript"}, run: "Rscript --vanilla runtime.R"},
	{name: "Scheme, Chicken", tools: []string{"csc"}, build: "csc -o chicken runtime.scm", run: "./chicken"},
	{name: "Scheme, Chicken's interpreter", tools: []string{"csi"}, run: "csi -script runtime.scm"},
	{name: "Scheme, Gambit", tools: []string{"gsi"}, run: "gsi runtime.scm"},
	{name: "Scheme, Guile", tools: []string{"guile"}, run: "guile --no-auto-compile threads.scm"},
	{name: "Scheme, Racket", tools: []string{"racket"}, run: "racket runtime.rkt"},
	{name: "SML, New Jersey", tools: []string{"sml"}, run: "sml runtime.sml"},
	{name: "SML, Poly/ML", tools: []string{"poly"}, run: "poly -q --use runtime.sml"},
	{name: "Tcl", tools: []string{"tclsh"}, run: "tclsh runtime.tcl"},
}

// TestRuntimes records them with all libraries, calls between these, and system calls: they behave as untraced.
func TestRuntimes(t *testing.T) {
	if !testtool.Wide() {
		t.Skip("FENTRY_WIDE is not 1")
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("programs without sites are traced on x86-64")
	}
	needFentry(t)
	src, err := filepath.Abs("testdata/runtimes")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range runtimes {
		t.Run(l.name, func(t *testing.T) {
			testtool.Need(t, l.tools...)
			t.Parallel()
			dir := t.TempDir()
			run(t, command{dir: dir, argv: []string{"sh", "-c", "cp " + src + "/* ."}}).mustSucceed(t)
			if l.build != "" {
				run(t, command{dir: dir, argv: strings.Fields(l.build), timeout: 5 * time.Minute}).mustSucceed(t)
			}
			argv := strings.Fields(l.run)
			want := run(t, command{dir: dir, argv: argv})
			if want.status == "exit 0" || want.stdout == "" {
				t.Fatalf("%s: %q, %q", want.status, want.stdout, want.stderr)
			}
			for _, options := range []string{"", "-L *", "-L * --libcalls --syscalls", "-L * -T profile"} {
				record := []string{"env", "XDG_CACHE_HOME=" + filepath.Join(dir, "cache"), fentry, "record", "--overhead", "no"}
				record = append(append(record, strings.Fields(options)...), argv...)
				sameBehaviour(t, want, run(t, command{dir: dir, argv: record, timeout: 5 * time.Minute}))
			}
		})
	}
}
