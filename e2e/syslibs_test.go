package e2e

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// systemLibraries are libraries of the system that many programs have: with code written by hand, ifuncs, unwinders,
// exceptions, threads, and functions that look at their return address.
var systemLibraries = []string{
	"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6", "libz.so.1", "libcrypto.so.3", "libssl.so.3", "libsqlite3.so.0",
	"libpcre2-8.so.0", "libreadline.so.8", "libtinfo.so.6", "libselinux.so.1", "liblzma.so.5", "libexpat.so.1", "libgmp.so.10",
	"libpython3.11.so.1.0",
}

// librariesOf is where Debian has the libraries of this machine, and of arm64 those of its cross compilers.
const librariesOf = "/usr/lib/x86_64-linux-gnu"

func (tg target) libraries() string {
	if tg.triple == "" {
		return librariesOf
	}
	return "/usr/" + tg.triple + "/lib"
}

// patchLibraries patches those that are installed into a directory.
func patchLibraries(t *testing.T, tg target, names []string) (dir string, patched []string) {
	t.Helper()
	if tg.triple == "" && runtime.GOARCH != "amd64" {
		t.Skip("the libraries of x86-64 are not here")
	}
	needFentry(t)
	from := tg.libraries()
	dir = t.TempDir()
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(from, name)); err == nil {
			out := filepath.Join(dir, name)
			patchFile(t, filepath.Join(from, name), out, nil)
			patched = append(patched, out)
		}
	}
	if len(patched) == 0 {
		t.Skip("no library is installed in " + from)
	}
	return dir, patched
}

// underLibraries compares a program's untraced runs with one that finds patched libraries, and says how many events that
// has made.
func (in *invocation) underLibraries(t *testing.T, file, dir string, patched []string, must bool) (events int64) {
	t.Helper()
	in.name = file
	data := filepath.Join(t.TempDir(), "data")
	in.env = []string{"LD_LIBRARY_PATH=" + dir, "FENTRY_OFF=1"}
	want, again := in.run(t, file), in.run(t, file)
	if want.stdout != again.stdout || want.stderr != again.stderr || want.status != again.status || want.err != nil {
		if must {
			t.Fatalf("two untraced runs differ: %s, %s\n%s\n%s", want.status, again.status, clip(want.stdout), clip(again.stdout))
		}
		return 0
	}
	in.env = []string{"LD_LIBRARY_PATH=" + t.TempDir()}
	sameBehaviour(t, want, in.run(t, file))
	in.env = []string{"LD_LIBRARY_PATH=" + dir, "FENTRY_DATA=" + data}
	sameBehaviour(t, want, in.run(t, file))
	d, err := decode(data, patched...)
	if err != nil && must {
		t.Errorf("trace: %v", err)
	}
	if err != nil {
		return 0
	}
	if d.lost != 0 {
		t.Errorf("%d events lost", d.lost)
	}
	return d.events
}

// TestSystemLibraries runs programs that nobody has patched with patched libraries: all of a process's are traced by one
// of them, and the program behaves as before.
func TestSystemLibraries(t *testing.T) {
	dir, patched := patchLibraries(t, target{}, systemLibraries)
	few := []string{"python3.11", "perl", "bash", "git", "cc1plus", "sqlite3", "xz", "make"}
	for _, in := range installed() {
		if !testtool.Wide() && !slices.Contains(few, in.argv[0]) {
			continue
		}
		t.Run(in.argv[0], func(t *testing.T) {
			t.Parallel()
			file := needProgram(t, in.argv[0])
			if n := in.underLibraries(t, file, dir, patched, true); n == 0 {
				t.Error("no events")
			}
		})
	}
}

// TestSystemLibrariesWide does the same with many programs of the system and what they say of themselves.
func TestSystemLibrariesWide(t *testing.T) {
	if !testtool.Wide() {
		t.Skip("FENTRY_WIDE is not 1")
	}
	dir, patched := patchLibraries(t, target{}, systemLibraries)
	for _, file := range systemPrograms(400) {
		if strings.HasPrefix(filepath.Base(file), "ld-linux") {
			continue // it says where it looks for libraries
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			for _, args := range [][]string{{"--version"}, {"--help"}, {}} {
				in := invocation{argv: append([]string{filepath.Base(file)}, args...), timeout: 20 * time.Second}
				in.underLibraries(t, file, dir, patched, false)
			}
		})
	}
}

// TestLibraryCounts compares how often functions of libz are called with what callgrind counts in the original: in a
// program that is traced with it, and alone.
func TestLibraryCounts(t *testing.T) {
	testtool.Need(t, "gcc")
	testtool.Need(t, "valgrind")
	dir, patched := patchLibraries(t, target{}, []string{"libz.so.1"})
	program := filepath.Join(t.TempDir(), "deflates")
	run(t, command{argv: []string{"gcc", "-O2", "-o", program, "testdata/library/deflates.c",
		filepath.Join(librariesOf, "libz.so.1")}}).mustSucceed(t)
	out := filepath.Join(t.TempDir(), "callgrind.out")
	under := run(t, command{argv: []string{"valgrind", "--tool=callgrind", "--compress-strings=yes", "--callgrind-out-file=" + out,
		"-q", program}}).mustSucceed(t)
	library, err := filepath.EvalSymlinks(filepath.Join(librariesOf, "libz.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	want := callgrindCounts(t, out, library)
	if len(want) == 0 { // the directory has two names
		want = callgrindCounts(t, out, strings.TrimPrefix(library, "/usr"))
	}
	for _, way := range []string{"alone", "record"} {
		t.Run(way, func(t *testing.T) {
			data := filepath.Join(t.TempDir(), "data")
			c := command{argv: []string{program}, env: []string{"LD_LIBRARY_PATH=" + dir, "FENTRY_DATA=" + data}}
			if way == "record" {
				c.argv = []string{fentry, "record", "--overhead=no", "--plain", "-q", "-o", data, program}
			}
			if got := run(t, c).mustSucceed(t); got.stdout != under.stdout {
				t.Fatalf("prints %q, under callgrind %q", got.stdout, under.stdout)
			}
			if tr := decodeTrace(t, data, patched...); tr.lost != 0 {
				t.Errorf("%d events lost", tr.lost)
			}
			got, compared := reported(t, data), 0
			for name, n := range want {
				if !strings.HasPrefix(name, "0x") && !strings.HasPrefix(name, "_") { // stripped: others have no names
					compared++
					if got[name] != n {
						t.Errorf("%s: traced %d calls, callgrind counts %d", name, got[name], n)
					}
				}
			}
			if compared < 8 {
				t.Errorf("only %d functions were called: %v", compared, want)
			}
			if (got["m_checks"] != 0) != (way == "record") {
				t.Errorf("%d calls of the program's function", got["m_checks"])
			}
		})
	}
}

// TestThroughLibraries: exceptions, cancellation, backtraces and signals pass through frames of patched libraries, whose
// unwinders are patched, too.
func TestThroughLibraries(t *testing.T) {
	for _, k := range []kind{kindNamed(t, "plain"), {name: "arm64-plain", compiler: "gcc", plain: true, target: arm64}} {
		k.target.need(t)
		dir, _ := patchLibraries(t, k.target, []string{"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6"})
		for _, name := range []string{"exceptions", "cothrow", "terminate", "backtrace", "cancel", "signals", "threads", "jumps", "coroutines", "fork", "vfork"} {
			t.Run(k.target.name()+"-"+name, func(t *testing.T) {
				t.Parallel()
				f := loadFixture(t, name)
				if m := f.missing(); m != "" {
					t.Skip(m)
				}
				testThroughLibraries(t, f, k, dir)
			})
		}
	}
}

func testThroughLibraries(t *testing.T, f *fixture, k kind, dir string) {
	c := config{kind: k, link: links[0], opt: "-O2"}
	if !f.supports(c) {
		return
	}
	p := build(t, f, c)
	for _, args := range f.runs() {
		want := p.untraced(t, args)
		data := filepath.Join(t.TempDir(), "data")
		got := run(t, command{dir: p.dir, argv: k.command(append([]string{"./" + f.name}, args...)...), stdin: f.stdin(),
			env: []string{"FIXTURE_COUNTS=" + p.counts(), "LD_LIBRARY_PATH=" + dir, "FENTRY_DATA=" + data}})
		p.show(t, p.dir, got)
		if err := os.Remove(p.counts()); err != nil {
			t.Error(err)
		}
		sameBehaviour(t, want, got)
		if out := run(t, command{argv: []string{fentry, "info", data}}).mustSucceed(t).stdout; !strings.Contains(out, "libc.so.6") {
			t.Errorf("libc is not among the images\n%s", out)
		}
	}
}
