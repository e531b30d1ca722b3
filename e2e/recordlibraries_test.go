package e2e

import (
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestRecordLibraries traces installed programs with all of their libraries, those that they load later too, and compares
// with the untraced run. Nearly all programs have libc.so.6, whose functions are then in the trace.
func TestRecordLibraries(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("programs without sites are traced on x86-64")
	}
	needFentry(t)
	cache := "XDG_CACHE_HOME=" + t.TempDir()
	java := invocation{argv: []string{"java", "--version"}} // finds its libraries where it is only, so is no program for others
	for _, in := range append(installed(), java) {
		t.Run(in.argv[0], func(t *testing.T) {
			t.Parallel()
			file := needProgram(t, in.argv[0])
			in.name = file
			want := in.run(t, file)
			data := filepath.Join(t.TempDir(), "data")
			// The first time copies are made, the second time they are there.
			for range 2 {
				got := in.run(t, file, "env", cache, fentry, "record", "-q", "-L", "*", "-o", data)
				sameBehaviour(t, want, got)
				if strings.Contains(got.stderr, "libraries") {
					t.Errorf("%s", got.stderr)
				}
			}
			if d, err := decode(data); err != nil {
				t.Errorf("trace: %v", err)
			} else if d.events == 0 || d.lost != 0 {
				t.Errorf("%d events, %d lost", d.events, d.lost)
			}
			info := run(t, command{argv: []string{fentry, "info", "-i", data}})
			if !strings.Contains(info.stdout, "libc.so.6\n") {
				t.Errorf("no libc.so.6:\n%s%s", info.stdout, info.stderr)
			}
		})
	}
}

// TestRecordLibrariesWide compares what programs of the system say of themselves untraced with what they say when they
// are traced with all of their libraries. Part of them are run by -run TestRecordLibrariesWide/^a.
func TestRecordLibrariesWide(t *testing.T) {
	if !testtool.Wide() {
		t.Skip("FENTRY_WIDE is not 1")
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("programs without sites are traced on x86-64")
	}
	needFentry(t)
	cache := "XDG_CACHE_HOME=" + t.TempDir()
	for _, file := range systemPrograms(1000) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			same := 0
			for _, args := range [][]string{{"--version"}, {"--help"}, {}} {
				in := invocation{argv: append([]string{file}, args...), name: file, timeout: 20 * time.Second}
				want, again := in.run(t, file), in.run(t, file)
				if want.stdout != again.stdout || want.stderr != again.stderr || want.status != again.status || want.err != nil {
					continue
				}
				same++
				in.timeout = 2 * time.Minute // finding the functions of more than 100 MB takes seconds on an idle machine
				data := filepath.Join(t.TempDir(), "data")
				sameBehaviour(t, want, in.run(t, file, "env", cache, fentry, "record", "-q", "-L", "*", "-o", data))
				if d, err := decode(data); err == nil && d.lost != 0 {
					t.Errorf("%q: %d events lost", args, d.lost)
				}
			}
			t.Logf("%d invocations compared", same)
			if same == 0 {
				t.Skip("its runs differ untraced")
			}
		})
	}
}

// TestRecordLater counts the calls of a library that is loaded, called and unloaded again and again, in threads and a
// child, and throws exceptions through the C++ library into the program.
func TestRecordLater(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("programs without sites are traced on x86-64")
	}
	testtool.Need(t, "g++")
	needFentry(t)
	dir := t.TempDir()
	so, exe := filepath.Join(dir, "libwork.so.3"), filepath.Join(dir, "program")
	for _, argv := range [][]string{
		{"g++", "-O2", "-shared", "-fPIC", "-o", so, "testdata/library/work.cc"},
		{"g++", "-O2", "-o", exe, "testdata/library/works.cc", "-pthread"},
	} {
		if r := run(t, command{argv: argv}); r.status != "exit 0" && r.err != nil {
			t.Fatalf("%v: %s", argv, r.stderr)
		}
	}
	want := run(t, command{argv: []string{exe, so}})
	data := filepath.Join(dir, "data")
	for _, which := range [][2]string{{"libwork", "function_graph"}, {"*", "function_graph"}, {"libwork", "count"}, {"*", "profile"}} {
		options := []string{"-q", "-L", which[0], "--tracer", which[1], "-o", data}
		if which[1] == "function_graph" {
			options = append(options, "--overhead", "no")
		}
		got := run(t, command{argv: slices.Concat([]string{fentry, "record"}, options, []string{exe, so}),
			env: []string{"XDG_CACHE_HOME=" + dir}})
		sameBehaviour(t, want, got)
		checkWork(t, data)
	}
}

// checkWork: all calls of the library of testdata/library/works.cc are in the trace.
func checkWork(t *testing.T, data string) {
	t.Helper()
	report := run(t, command{argv: []string{fentry, "report", "-i", data, "-f", "calls", "-F", "libwork*:work", "-s", "name"}})
	if calls := strings.Join(strings.Fields(report.stdout), " "); calls != "CALLS FUNCTION 128 work" {
		t.Errorf("%q, %s", calls, report.stderr)
	}
}

// TestRecordLibrariesEmulated: libraries that are loaded with a program under an emulator are traced with it or without
// it, the C and C++ libraries too, but not the dynamic loader, which the emulator opens as it does them; calls are exact,
// and exceptions pass from image to image.
func TestRecordLibrariesEmulated(t *testing.T) {
	needFentry(t)
	arm64.need(t)
	cache := "XDG_CACHE_HOME=" + t.TempDir()
	s := buildShared(t, arm64, "gcc", nil)
	plugin := filepath.Join(s.dir, "plugin.so")
	path := "LD_LIBRARY_PATH=" + s.dir
	want := run(t, command{dir: t.TempDir(), argv: slices.Concat(arm64.emulator, []string{s.program, plugin}),
		env: []string{path}}).mustSucceed(t)
	for _, w := range []struct {
		name, images string
		options      []string
	}{
		{"both", "ml", []string{"--plain", "-L", "libused"}},
		{"all", "ml", []string{"--plain", "-L", "*"}},
		{"library", "l", []string{"--plain", "-F", "libused*:*", "-L", "*"}},
		{"count", "ml", []string{"--plain", "-L", "*", "--tracer", "count"}},
		{"syscalls", "m", []string{"--plain", "--syscalls"}},
	} {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			data := filepath.Join(t.TempDir(), "data")
			got := run(t, command{dir: t.TempDir(), env: []string{path, cache},
				argv: slices.Concat([]string{fentry, "record", "-q", "--overhead=no", "-o", data}, w.options, []string{s.program, plugin})})
			sameBehaviour(t, want, got)
			names := reported(t, data)
			for name, n := range s.counts(t, want.stdout, "ml") {
				if !strings.Contains(w.images, name[:1]) {
					n = 0
				}
				if names[name] != n {
					t.Errorf("%s: called %d times, reported %d", name, n, names[name])
				}
			}
			if w.name == "syscalls" && names["sys_getpid"] == 0 {
				t.Error("no system call of the C library is recorded")
			}
		})
	}
	t.Run("exceptions", func(t *testing.T) {
		t.Parallel()
		exe := filepath.Join(t.TempDir(), "exceptions")
		run(t, command{argv: slices.Concat(arm64.compiler(t, "g++"),
			[]string{"-O2", "-Itestdata", "-o", exe, "testdata/exceptions.cpp", "-pthread"})}).mustSucceed(t)
		want := run(t, command{dir: t.TempDir(), argv: slices.Concat(arm64.emulator, []string{exe})})
		data := filepath.Join(t.TempDir(), "data")
		sameBehaviour(t, want, run(t, command{dir: t.TempDir(), env: []string{cache},
			argv: []string{fentry, "record", "-q", "--overhead=no", "--plain", "-L", "*", "-o", data, exe}}))
		names := reported(t, data)
		if names["__cxa_throw"] == 0 || names["thrower(int)"]+names["thrower"] == 0 {
			t.Errorf("%d calls of __cxa_throw, %d of thrower", names["__cxa_throw"], names["thrower"])
		}
	})
}

// TestUnload: libraries that are closed are unloaded, run their destructors, and leave neither mappings nor memory
// behind, however often, where they were before or where another one was; those that cannot be loaded leave nothing that
// is touched when tracing pauses and goes on, and calls are exact.
func TestUnload(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("libraries that are loaded later are traced on x86-64")
	}
	testtool.Need(t, "gcc")
	needFentry(t)
	dir := t.TempDir()
	compile := func(out, src string, flags ...string) string {
		path := filepath.Join(dir, out)
		run(t, command{argv: slices.Concat([]string{"gcc", "-O2", "-pthread", "-o", path,
			filepath.Join("testdata/library", src)}, flags)}).mustSucceed(t)
		return path
	}
	for _, name := range []string{"one", "two", "needed"} {
		compile("lib"+name+".so", "closed.c", "-shared", "-fPIC", "-DNAME="+name)
	}
	// Its library is relocated before it fails itself.
	compile("libfails.so", "closed.c", "-shared", "-fPIC", "-DNAME=fails", "-DFAILS", "-Wl,--no-as-needed", "-L"+dir, "-lneeded", "-Wl,-rpath,"+dir)
	exe := compile("closes", "closes.c", "-rdynamic", "-ldl")
	want := run(t, command{dir: dir, argv: []string{exe}}).mustSucceed(t)
	for _, w := range []struct {
		name    string
		options []string
	}{
		{"all", []string{"-L", "*"}},
		{"own", []string{"-L", "lib*.so", "--trigger", "stop@traceoff", "--trigger", "go_on@traceon"}},
		{"stacks", []string{"-L", "*", "--stack", "one_leaf"}},
		{"untraced-program", []string{"-L", "lib*.so", "--plain", "-F", "lib*:*"}},
	} {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			data := filepath.Join(t.TempDir(), "data")
			got := run(t, command{dir: dir, timeout: 3 * time.Minute, env: []string{"XDG_CACHE_HOME=" + t.TempDir()},
				argv: slices.Concat([]string{fentry, "record", "-q", "--overhead", "no", "-o", data}, w.options, []string{exe})})
			sameBehaviour(t, want, got)
			names := reported(t, data)
			for _, f := range []string{"one_begin", "one_end", "one_leaf", "two_begin", "two_end", "two_leaf"} {
				n := int64(closings)
				if strings.HasSuffix(f, "leaf") {
					n *= 3
				}
				if w.name == "own" {
					n -= n / 10 // every tenth time tracing pauses
				}
				if names[f] != n {
					t.Errorf("%s: %d calls, want %d", f, names[f], n)
				}
			}
		})
	}
}

// closings is how often closes.c loads and closes each library.
const closings = 1200
