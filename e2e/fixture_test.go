package e2e

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A fixture is one C or C++ program of testdata with its directives.
type fixture struct {
	name, file string
	cpp        bool
	directives map[string][]string // key: one string a line
}

// fixtureNames are the programs that run on their own: everything in testdata but libraries and the gdb and exec partners' special cases.
func fixtureNames(t testing.TB) []string {
	t.Helper()
	all, err := filepath.Glob("testdata/*.c*")
	if err != nil || len(all) == 0 {
		t.Fatalf("testdata/*.c: %v, %d files", err, len(all))
	}
	var names []string
	for _, f := range all {
		base := filepath.Base(f)
		name := strings.TrimSuffix(base, filepath.Ext(base))
		if ext := filepath.Ext(base); ext != ".c" && ext != ".cpp" {
			continue
		}
		if !slices.Contains([]string{"origin", "earlylib", "hooks", "countcalls"}, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func loadFixture(t testing.TB, name string) *fixture {
	t.Helper()
	f := &fixture{name: name, directives: map[string][]string{}}
	for _, ext := range []string{".c", ".cpp"} {
		p, err := filepath.Abs(filepath.Join("testdata", name+ext))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(p); err == nil {
			f.file, f.cpp = p, ext == ".cpp"
		}
	}
	if f.file == "" {
		t.Fatalf("no fixture %s in testdata", name)
	}
	in, err := os.Open(f.file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for sc := bufio.NewScanner(in); sc.Scan(); {
		if rest, ok := strings.CutPrefix(sc.Text(), "//e2e:"); ok {
			key, value, _ := strings.Cut(rest, " ")
			if !slices.Contains(knownDirectives, key) {
				t.Fatalf("%s: unknown directive %q", f.file, key)
			}
			f.directives[key] = append(f.directives[key], value)
		}
	}
	return f
}

var knownDirectives = []string{"run", "args", "stdin", "cflags", "link", "libs", "compilers", "kinds", "library", "companion", "needs",
	"machines", "show", "comm", "may-lack", "may-lose", "ignore", "path"}

// words are all words of a directive's lines.
func (f *fixture) words(key string) []string {
	return strings.Fields(strings.Join(f.directives[key], " "))
}

// mayLack are the functions that need not all be in the trace with a kind of sites: those that can run before tracing can start, and with the
// kind in front those that cannot be traced with it, or with "emulated" under an emulator.
func (f *fixture) mayLack(k kind) []string {
	var out []string
	for _, w := range f.words("may-lack") {
		if of, name, ok := strings.Cut(w, ":"); !ok {
			out = append(out, w)
		} else if of == k.name || of == "emulated" && len(k.target.emulator) > 0 {
			out = append(out, name)
		}
	}
	return out
}

// runs are the argument lists to run the fixture with.
func (f *fixture) runs() [][]string {
	if r := f.directives["run"]; len(r) > 0 {
		var out [][]string
		for _, line := range r {
			out = append(out, strings.Fields(line))
		}
		return out
	}
	return [][]string{f.words("args")}
}

func (f *fixture) stdin() string {
	return strings.ReplaceAll(strings.Join(f.directives["stdin"], ""), `\n`, "\n")
}

// missing says what the fixture needs that this machine or user does not offer.
func (f *fixture) missing() string {
	for _, need := range f.words("needs") {
		switch need {
		case "root":
			if os.Getuid() != 0 {
				return "needs root"
			}
		case "avx":
			info, err := os.ReadFile("/proc/cpuinfo")
			if err != nil || !strings.Contains(string(info), " avx ") {
				return "needs a processor with AVX"
			}
		case "ptrace": // see supports
		default:
			return fmt.Sprintf("needs %q, which no test knows", need)
		}
	}
	return ""
}

// supports says whether the fixture can be built so.
func (f *fixture) supports(c config) bool {
	if cs := f.words("compilers"); len(cs) > 0 && !slices.Contains(cs, c.kind.compiler) {
		return false
	}
	if ks := f.words("kinds"); len(ks) > 0 && !slices.Contains(ks, c.kind.name) {
		return false
	}
	if ms := f.words("machines"); len(ms) > 0 && !slices.Contains(ms, c.kind.target.name()) {
		return false
	}
	if c.kind.compiler == "musl-gcc" && f.cpp {
		return false // there is no musl-g++
	}
	if slices.Contains(f.words("needs"), "ptrace") && len(c.kind.target.emulator) > 0 {
		return false // qemu-user has none
	}
	if len(f.words("companion")) > 0 && len(c.kind.target.emulator) > 0 && slices.Contains(c.kind.cflags, "-pg") {
		return false // -pg's profiling timer goes on in the shell that starts the emulator, and kills it
	}
	if len(f.words("library")) > 0 && strings.HasPrefix(c.link.name, "static") {
		return false
	}
	return true
}
