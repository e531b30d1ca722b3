package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A shared is a program with libraries, in a directory where it finds them, and in another one where they are patched.
type shared struct {
	dir, patched string
	program      string
}

// buildShared compiles testdata/library: libused.so, plugin.so and the program.
func buildShared(t *testing.T, tg target, cc string, plugin []string, flags ...string) *shared {
	t.Helper()
	compiler := tg.compiler(t, cc)
	s := &shared{dir: t.TempDir(), patched: t.TempDir()}
	s.program = filepath.Join(s.dir, "user")
	compile := func(out, src string, args ...string) {
		t.Helper()
		argv := slices.Concat(compiler, []string{"-O2", "-pthread", "-o", filepath.Join(s.dir, out),
			filepath.Join("testdata/library", src)}, args, flags)
		run(t, command{argv: argv}).mustSucceed(t)
	}
	compile("libused.so", "used.c", "-fPIC", "-shared", "-Wl,-soname,libused.so")
	compile("plugin.so", "plugin.c", append([]string{"-fPIC", "-shared"}, plugin...)...)
	compile("user", "user.c", "-rdynamic", "-L"+s.dir, "-lused", "-ldl")
	return s
}

// patch patches one of its files into the other directory.
func (s *shared) patch(t *testing.T, name string, options ...string) string {
	t.Helper()
	out := filepath.Join(s.patched, name)
	patchFile(t, filepath.Join(s.dir, name), out, options)
	return out
}

// counts are what the program has printed of the functions of some images.
func (s *shared) counts(t *testing.T, out, images string) map[string]int64 {
	t.Helper()
	counts := map[string]int64{}
	for _, m := range regexp.MustCompile(`(?m)^(\w+)=(\d+)$`).FindAllStringSubmatch(out, -1) {
		if n, _ := strconv.ParseInt(m[2], 10, 64); strings.Contains(images, m[1][:1]) {
			counts[m[1]] = n
		}
	}
	if len(counts) == 0 {
		t.Fatalf("no counts in\n%s", out)
	}
	return counts
}

// reported is how often each function was called, as fentry report has it.
func reported(t *testing.T, data string) map[string]int64 {
	t.Helper()
	out := run(t, command{argv: []string{fentry, "report", "--json", data}}).mustSucceed(t).stdout
	counts := map[string]int64{}
	for _, m := range regexp.MustCompile(`(?m)^\{"name":"([^"]*)".*?"calls":(\d+),`).FindAllStringSubmatch(out, -1) {
		n, _ := strconv.ParseInt(m[2], 10, 64)
		counts[m[1]] += n
	}
	return counts
}

// libraryBuilds are how the program and its libraries are compiled and linked.
var libraryBuilds = []struct {
	name   string
	target target
	cc     string
	plugin []string // flags for the plugin
	flags  []string
}{
	{"glibc", target{}, "gcc", nil, nil},
	{"lld", target{}, "clang", nil, []string{"-fuse-ld=lld"}},
	// The plugin says nothing of its loader, and has an initialisation or none.
	{"now", target{}, "gcc", []string{"-nostdlib"}, []string{"-Wl,-z,now", "-fcf-protection"}},
	{"init", target{}, "gcc", []string{"-nodefaultlibs"}, nil},
	{"musl", target{}, "musl-gcc", nil, nil},
	{"arm64", arm64, "gcc", nil, nil},
	{"arm64-guarded", arm64, "gcc", []string{"-nostdlib", "-Wl,-z,force-bti"}, []string{"-Wl,-z,now", "-mbranch-protection=standard", "-mno-outline-atomics"}},
}

// TestLibraries: a program and its libraries, patched on disk or recorded, are traced by one runtime, whichever of them
// starts first: all calls are in one trace with their names, and the program behaves as before.
func TestLibraries(t *testing.T) {
	needFentry(t)
	for _, b := range libraryBuilds {
		b.target.need(t)
		s := buildShared(t, b.target, b.cc, b.plugin, b.flags...)
		s.trace(t, b.name, b.target.emulator, "function_graph")
	}
}

// TestLibraryTables is TestLibraries with the tracers that keep tables.
func TestLibraryTables(t *testing.T) {
	needFentry(t)
	for _, b := range libraryBuilds {
		switch b.name {
		case "glibc", "musl", "arm64":
		default:
			continue
		}
		b.target.need(t)
		for _, tracer := range []string{"count", "profile"} {
			s := buildShared(t, b.target, b.cc, b.plugin, b.flags...)
			s.trace(t, b.name+"-"+tracer, b.target.emulator, tracer)
		}
	}
}

// trace traces the program and the libraries by a tracer, in all ways, and compares what is in the trace with what the
// program has counted.
func (s *shared) trace(t *testing.T, name string, emulator []string, tracer string) {
	t.Helper()
	options := []string{"--tracer", tracer}
	used, plug := s.patch(t, "libused.so", options...), s.patch(t, "plugin.so", options...)
	program := s.patch(t, "user", options...)
	want := run(t, command{dir: t.TempDir(), argv: slices.Concat(emulator, []string{s.program, filepath.Join(s.dir, "plugin.so")}),
		env: []string{"LD_LIBRARY_PATH=" + s.dir}}).mustSucceed(t)
	for _, w := range []struct {
		name    string
		images  string // whose functions are traced
		program string
		record  []string // options of fentry record; nil: the program runs alone
		gs      bool
	}{
		{name: "alone", images: "mlp", program: program},
		{name: "library", images: "lp", program: s.program},
		{name: "gs", images: "mlp", program: program, gs: true},
		{name: "record", images: "mlp", program: s.program, record: []string{"--plain", "--overhead=no"}},
		{name: "record-patched", images: "mlp", program: program, record: []string{"--overhead=no"}},
		{name: "record-untraced", images: "lp", program: s.program, record: []string{"--plain=no", "--overhead=no"}},
	} {
		if w.gs && len(emulator) > 0 {
			continue // nobody else uses the control base there
		}
		if tracer != "function_graph" && strings.HasPrefix(w.name, "record-") {
			continue // a program that keeps tables has a recorder only if that has put the runtime into it
		}
		t.Run(name+"-"+w.name, func(t *testing.T) {
			t.Parallel()
			data := filepath.Join(t.TempDir(), "data")
			c := command{dir: t.TempDir(), env: []string{"LD_LIBRARY_PATH=" + s.patched, "FENTRY_DATA=" + data}}
			if w.record != nil {
				c.argv = slices.Concat([]string{fentry, "record", "-o", data}, options, w.record, []string{"--"})
			} else {
				c.argv = slices.Clone(emulator)
			}
			c.argv = append(c.argv, w.program, plug)
			if w.gs {
				c.argv = append(c.argv, "gs")
			}
			got := run(t, c)
			sameBehaviour(t, want, got)
			if got.status != "exit 0" {
				t.FailNow()
			}
			names := reported(t, data)
			traced := names
			if tracer == "function_graph" {
				traced = map[string]int64{}
				tr := decodeTrace(t, data, program, used, plug)
				if tr.lost != 0 {
					t.Errorf("%d events lost", tr.lost)
				}
				for f, n := range tr.entries {
					traced[f.name] += n
				}
			}
			for name, n := range s.counts(t, got.stdout, w.images) {
				if n == 0 || traced[name] != n || names[name] != n {
					t.Errorf("%s: called %d times, traced %d, reported %d", name, n, traced[name], names[name])
				}
			}
			for name := range s.counts(t, got.stdout, "mlp") {
				if !strings.Contains(w.images, name[:1]) && names[name] != 0 {
					t.Errorf("%s is traced, which was not patched", name)
				}
			}
		})
	}
}

// A patched library is verified, listed and undone as programs are.
func TestLibraryFile(t *testing.T) {
	needFentry(t)
	for _, tg := range []target{{}, arm64} {
		t.Run(tg.name(), func(t *testing.T) { testLibraryFile(t, tg) })
	}
}

func testLibraryFile(t *testing.T, tg target) {
	s := buildShared(t, tg, "gcc", nil)
	patched := s.patch(t, "libused.so")
	run(t, command{argv: []string{fentry, "patch", "--verify", patched}}).mustSucceed(t)
	if out := run(t, command{argv: []string{fentry, "info", patched}}).mustSucceed(t).stdout; !strings.Contains(out, "functions") {
		t.Errorf("info says\n%s", out)
	}
	undone := filepath.Join(t.TempDir(), "undone")
	run(t, command{argv: []string{fentry, "patch", "--undo", "-o", undone, patched}}).mustSucceed(t)
	want, err := os.ReadFile(filepath.Join(s.dir, "libused.so"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(undone); err != nil || string(got) != string(want) {
		t.Errorf("undone: %d bytes, %v, want %d", len(got), err, len(want))
	}
	for _, f := range []string{"-h", "-d"} {
		a := run(t, command{argv: []string{"readelf", "-W", f, patched}}).mustSucceed(t).stdout
		for _, want := range map[string][]string{"-h": {"DYN"}, "-d": {"NODELETE", "libused.so"}}[f] {
			if !strings.Contains(a, want) {
				t.Errorf("readelf %s: no %s in\n%s", f, want, a)
			}
		}
	}
	if a, b := entry(t, patched), entry(t, filepath.Join(s.dir, "libused.so")); a != b {
		t.Errorf("entry point %s, was %s", a, b)
	}
}

// entry is an image's entry point.
func entry(t *testing.T, path string) string {
	t.Helper()
	out := run(t, command{argv: []string{"readelf", "-Wh", path}}).mustSucceed(t).stdout
	_, at, ok := strings.Cut(out, "Entry point address:")
	if !ok {
		t.Fatal(fmt.Errorf("readelf -h %s: %s", path, out))
	}
	at, _, _ = strings.Cut(at, "\n")
	return strings.TrimSpace(at)
}
