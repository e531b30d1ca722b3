package stub

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// linkFixture compiles testdata/src with -pg and what is in flags, and links it
// with the library.
func linkFixture(t *testing.T, cc, src string, flags ...string) *fixture {
	t.Helper()
	need(t, cc)
	dir := t.TempDir()
	lib, err := Library(elf.EM_X86_64)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "libfentry.a"), lib, 0o644); err != nil {
		t.Fatal(err)
	}
	obj, bin := filepath.Join(dir, "prog.o"), filepath.Join(dir, "prog")
	var link []string // flags for the linker, too; not -pg
	for _, f := range flags {
		if f == "-static" || f == "-no-pie" || f == "-pie" || f == "-static-pie" || strings.HasPrefix(f, "-fuse-ld") {
			link = append(link, f)
		}
	}
	compile := append([]string{"-g", "-pthread", "-Isrc", "-c", "-o", obj, filepath.Join("testdata", src), "-pg"}, flags...)
	for _, c := range [][]string{compile, append([]string{"-pthread", "-o", bin, obj, filepath.Join(dir, "libfentry.a")}, link...)} {
		if out, err := exec.Command(cc, c...).CombinedOutput(); err != nil {
			if strings.Contains(string(out), "cannot find -lstdc++") || strings.Contains(string(out), "cannot find -lc") {
				t.Skipf("%s: no libraries for this (package libc6-dev, g++): %s", cc, out)
			}
			t.Fatalf("%s %s: %v\n%s", cc, strings.Join(c, " "), err, out)
		}
	}
	return &fixture{path: bin, sites: offsetNames(t, bin)}
}

// offsetNames is the names of functions by id, where ids are offsets.
func offsetNames(t *testing.T, bin string) []string {
	t.Helper()
	f, err := elf.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	var base, end uint64
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Off == 0 {
			base = p.Vaddr
		}
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			end = p.Vaddr + p.Memsz
		}
	}
	names := make([]string, (end-base)/4+1)
	for _, s := range syms {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC {
			continue
		}
		for a := s.Value; a < s.Value+s.Size; a++ {
			// the id of a call at a or behind it in the same word
			if i := (a - base) / 4; i < uint64(len(names)) && (a-base)%4 == 3 {
				names[i] = s.Name
			}
		}
	}
	return names
}

type linkVariant struct {
	cc    string
	flags []string
}

func (v linkVariant) String() string { return v.cc + " " + strings.Join(v.flags, " ") }

// linkVariants are the ways programs are compiled.
func linkVariants() []linkVariant {
	var vs []linkVariant
	for _, cc := range []string{"gcc", "clang"} {
		for _, entry := range []string{"", "-mfentry"} {
			for _, kind := range [][]string{{"-fPIE", "-pie"}, {"-fno-pie", "-no-pie"}, {"-fno-pie", "-static"}} {
				for _, o := range []string{"-O0", "-O2"} {
					v := linkVariant{cc, append(slices.Clone(kind), o)}
					if entry != "" {
						v.flags = append(v.flags, entry)
					}
					vs = append(vs, v)
				}
			}
		}
	}
	return vs
}

// TestClassic compares the calls in the trace with those the program counted,
// however it is compiled.
func TestClassic(t *testing.T) {
	for i, v := range linkVariants() {
		// Everything with every compiler, entry and kind at some point.
		all := i%5 == 1 || os.Getenv("FENTRY_WIDE") != ""
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			f := linkFixture(t, v.cc, "classic.c", v.flags...)
			for _, what := range []string{"calls", "jumps", "threads", "signals", "altstack", "forks", "recursion"} {
				if !all && what != "calls" && what != "jumps" {
					continue
				}
				t.Run(what, func(t *testing.T) {
					out, ev := f.run(t, what)
					expectCounts(t, out, ev)
					if what != "forks" && ev.strays != 0 {
						t.Errorf("%d exits without entry", ev.strays)
					}
					if what != "forks" && ev.open != 0 {
						t.Errorf("%d calls left open", ev.open)
					}
					if ev.lost != 0 {
						t.Errorf("%d events lost", ev.lost)
					}
					if len(ev.images) != 1 || ev.images[0]["ids"] != "offset/4" {
						t.Errorf("images %v", ev.images)
					}
				})
			}
		})
	}
}

// TestClassicExceptions compares what exceptions and backtraces do with an
// untraced run.
func TestClassicExceptions(t *testing.T) {
	for _, v := range []linkVariant{
		{"g++", []string{"-O0", "-fno-pie", "-no-pie"}},
		{"g++", []string{"-O2", "-fno-pie", "-no-pie", "-mfentry"}},
		{"g++", []string{"-O2", "-fno-pie", "-static"}},
		{"g++", []string{"-O2", "-fno-pie", "-static", "-mfentry"}},
		{"clang++", []string{"-O2", "-fno-pie", "-no-pie", "-mfentry"}},
		{"clang++", []string{"-O2", "-fno-pie", "-no-pie"}},
	} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			f := linkFixture(t, v.cc, "classic.cc", v.flags...)
			out, ev := f.run(t)
			found, counts, _ := strings.Cut(out, "COUNTS\n")
			expectCounts(t, counts, ev)
			if ev.strays != 0 || ev.lost != 0 {
				t.Errorf("%d exits without entry, %d events lost", ev.strays, ev.lost)
			}
			cmd := f.command(t)
			cmd.Env = append(cmd.Env, "FENTRY_OFF=1")
			plain, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			want, _, _ := strings.Cut(string(plain), "COUNTS\n")
			handler := fmt.Sprintf("%#x", symbolAddr(t, f.path, "return_to_handler"))
			if got, want := own(found, handler), own(want, ""); got != want {
				t.Errorf("traced:\n%s\nuntraced:\n%s", got, want)
			}
			if n := strings.Count(found, handler); n != 14 {
				t.Errorf("%d frames of return_to_handler in two backtraces, want one behind each of 7 functions", n)
			}
		})
	}
}

// own leaves out what tracing adds, and what changes from run to run: addresses
// of shared objects.
func own(text, handler string) string {
	w := strings.Fields(text)
	return strings.Join(slices.DeleteFunc(w, func(s string) bool { return s == handler || strings.HasPrefix(s, "0x7f") }), " ")
}

func symbolAddr(t *testing.T, path, name string) uint64 {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range syms {
		if s.Name == name {
			return s.Value
		}
	}
	t.Fatalf("%s: no symbol %s", path, name)
	return 0
}

// TestClassicCallbacks runs a program that has callbacks of its own, with a trace
// and without.
func TestClassicCallbacks(t *testing.T) {
	for _, v := range []linkVariant{
		{"gcc", []string{"-O0"}},
		{"gcc", []string{"-O2", "-mfentry"}},
		{"gcc", []string{"-O2", "-fno-pie", "-static", "-mfentry"}},
		{"gcc", []string{"-O2", "-mavx"}},
		{"clang", []string{"-O2", "-fno-pie", "-no-pie"}},
		{"clang", []string{"-O2", "-mfentry", "-mavx"}},
	} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			f := linkFixture(t, v.cc, "classic-hooks.c", v.flags...)
			for _, what := range []string{"function", "graph", "threads", "switch"} {
				out, ev := f.run(t, what)
				if what == "switch" {
					expectCounts(t, out, ev)
				}
				if ev.strays != 0 || ev.lost != 0 {
					t.Errorf("%s: %d exits without entry, %d events lost", what, ev.strays, ev.lost)
				}
				if want := 0; (what == "graph" || what == "threads") && len(ev.calls) != want {
					t.Errorf("%s: a trace in spite of callbacks: %v", what, ev.calls)
				}
				cmd := f.command(t, what)
				cmd.Env = append(cmd.Env, "FENTRY_OFF=1")
				if b, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("without a trace: %s: %v\n%s", what, err, b)
				}
				if _, err := os.Stat(filepath.Join(cmd.Dir, "fentry.data")); err == nil {
					t.Errorf("%s: FENTRY_OFF, and a trace", what)
				}
			}
		})
	}
}
