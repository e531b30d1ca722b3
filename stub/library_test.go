package stub

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/stub/internal/build"
)

// linkFixture compiles testdata/src with -pg and what is in flags, and links it
// with the library.
func linkFixture(t *testing.T, cc, src string, flags ...string) *fixture {
	t.Helper()
	testtool.Need(t, cc)
	dir := t.TempDir()
	m := machineOf(cc, flags)
	lib, err := Library(m.elf)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "libfentry.a"), lib, 0o644); err != nil {
		t.Fatal(err)
	}
	obj, bin := filepath.Join(dir, "prog.o"), filepath.Join(dir, "prog")
	var link []string // flags for the linker, too; not -pg
	for _, f := range flags {
		if f == "-static" || f == "-no-pie" || f == "-pie" || f == "-static-pie" || strings.HasPrefix(f, "-fuse-ld") || f == clangARM64 {
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
	return &fixture{on: m, path: bin, sites: offsetNames(t, bin)}
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

// keyB has functions sign with a key for which there is no fast path.
const keyB = "-mbranch-protection=pac-ret+leaf+b-key"

type linkVariant struct {
	cc    string
	flags []string
	cpu   string // arm64: qemu's
}

func (v linkVariant) String() string {
	return strings.TrimSpace(v.cc + " " + strings.Join(v.flags, " ") + " " + v.cpu)
}

// The processors that arm64 programs are tested on: one without and one with LSE,
// pointer authentication, landing pads and SVE.
const oldCPU = "cortex-a53"

const arm64GCC, arm64GXX = "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++"

// linkVariants are the ways programs are compiled.
func linkVariants() []linkVariant {
	var vs []linkVariant
	for _, cc := range []string{"gcc", "clang"} {
		for _, entry := range []string{"", "-mfentry"} {
			for _, kind := range [][]string{{"-fPIE", "-pie"}, {"-fno-pie", "-no-pie"}, {"-fno-pie", "-static"}} {
				for _, o := range []string{"-O0", "-O2"} {
					v := linkVariant{cc: cc, flags: append(slices.Clone(kind), o)}
					if entry != "" {
						v.flags = append(v.flags, entry)
					}
					vs = append(vs, v)
				}
			}
		}
	}
	return append(vs,
		linkVariant{arm64GCC, []string{"-fPIE", "-pie", "-O2"}, oldCPU},
		linkVariant{arm64GCC, []string{"-fno-pie", "-no-pie", "-O0", "-mbranch-protection=standard"}, testtool.NewARM64},
		linkVariant{arm64GCC, []string{"-fno-pie", "-static", "-O2", "-mbranch-protection=standard"}, testtool.NewARM64},
		linkVariant{arm64GCC, []string{"-fPIE", "-static-pie", "-O0"}, testtool.NewARM64},
		linkVariant{arm64GCC, []string{"-fno-pie", "-static", "-O0", keyB}, testtool.NewARM64},
		linkVariant{"clang", []string{clangARM64, "-fPIE", "-pie", "-O2", "-mbranch-protection=standard"}, testtool.NewARM64},
		linkVariant{"clang", []string{clangARM64, "-fno-pie", "-static", "-O0"}, oldCPU},
	)
}

// TestClassic compares the calls in the trace with those the program counted,
// however it is compiled.
func TestClassic(t *testing.T) {
	for i, v := range linkVariants() {
		// Everything with every compiler, entry and kind at some point.
		all := i%5 == 1 || testtool.Wide() || v.cpu != "" && !slices.Contains(v.flags, keyB)
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			f := linkFixture(t, v.cc, "classic.c", v.flags...)
			f.cpu = v.cpu
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
		{cc: "g++", flags: []string{"-O0", "-fno-pie", "-no-pie"}},
		{cc: "g++", flags: []string{"-O2", "-fno-pie", "-no-pie", "-mfentry"}},
		{cc: "g++", flags: []string{"-O2", "-fno-pie", "-static"}},
		{cc: "g++", flags: []string{"-O2", "-fno-pie", "-static", "-mfentry"}},
		{cc: "clang++", flags: []string{"-O2", "-fno-pie", "-no-pie", "-mfentry"}},
		{cc: "clang++", flags: []string{"-O2", "-fno-pie", "-no-pie"}},
		{arm64GXX, []string{"-O2", "-fno-pie", "-no-pie"}, oldCPU},
		{arm64GXX, []string{"-O0", "-fno-pie", "-no-pie", "-mbranch-protection=standard"}, testtool.NewARM64},
		{arm64GXX, []string{"-O2", "-fno-pie", "-static", "-mbranch-protection=standard"}, testtool.NewARM64},
		{arm64GXX, []string{"-O0", "-fno-pie", "-static"}, testtool.NewARM64},
	} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			f := linkFixture(t, v.cc, "classic.cc", v.flags...)
			f.cpu = v.cpu
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

// TestClassicUnwind has callbacks look at the stack, in every way there is.
func TestClassicUnwind(t *testing.T) {
	var want strings.Builder
	for _, at := range []string{"call", "entry", "return"} {
		for _, how := range []string{"unwind", "backtrace", "records"} {
			frames := " inner middle R outer R main" // R: return_to_handler
			if at == "return" {
				frames = " R middle R outer R main"
			}
			if how == "records" {
				frames = strings.ReplaceAll(frames, "r R", "r") // ftrace_graph_ret_addr undoes them
				frames = strings.ReplaceAll(frames, "e R", "e")
			}
			fmt.Fprintf(&want, "%s %s:%s\n", at, how, frames)
		}
	}
	want.WriteString("result 4\n")
	for _, v := range []linkVariant{
		{arm64GCC, []string{"-O2", "-pg"}, oldCPU},
		{arm64GCC, []string{"-O0", "-pg", "-static", "-mbranch-protection=standard"}, testtool.NewARM64},
		{"clang", []string{clangARM64, "-O2", "-pg", "-mbranch-protection=standard"}, testtool.NewARM64},
		{arm64GCC, []string{"-O2", "-DPATCHABLE", "-DALL=0", "-fpatchable-function-entry=2"}, oldCPU},
		{arm64GCC, []string{"-O2", "-DPATCHABLE", "-DALL=1", "-fpatchable-function-entry=2", "-static", "-mbranch-protection=standard"}, testtool.NewARM64},
		{arm64GCC, []string{"-O0", "-DPATCHABLE", "-DALL=1", "-fpatchable-function-entry=2", "-fno-pie", "-no-pie"}, testtool.NewARM64},
	} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			f := linkWith(t, v.cc, append([]string{"-funwind-tables", "testdata/classic-unwind.c"}, v.flags...)...)
			f.cpu = v.cpu
			b, err := f.command(t).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, b)
			}
			if got := traced(t, f.path, string(b)); got != want.String() {
				t.Errorf("got\n%swant\n%s", got, want.String())
			}
		})
	}
}

// TestClassicDebugger asks gdb for backtraces at the same places.
func TestClassicDebugger(t *testing.T) {
	if !onARM64.emulated() {
		t.Skip("here programs are not run by qemu, whose stub gdb is to talk to")
	}
	testtool.Need(t, "gdb-multiarch", "qemu-aarch64")
	// Nothing is signed: qemu does not tell gdb which bits are the signature.
	for _, flags := range []string{"-pg", "-DPATCHABLE -DALL=0 -fpatchable-function-entry=2", "-DPATCHABLE -DALL=1 -fpatchable-function-entry=2"} {
		t.Run(flags, func(t *testing.T) {
			t.Parallel()
			f := linkWith(t, arm64GCC, append(strings.Fields(flags), "-g", "-O2", "-static", "testdata/classic-unwind.c")...)
			dir, err := os.MkdirTemp("", "gdb") // a short name: a socket's has at most 107 bytes
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			sock := filepath.Join(dir, "s")
			prog := exec.Command("qemu-aarch64", "-cpu", testtool.NewARM64, "-g", sock, f.path)
			prog.Dir = dir
			testtool.Listening(t, prog, sock)
			out, err := exec.Command("gdb-multiarch", "-nx", "-batch", "-ex", "set confirm off", "-ex", "target remote "+sock, "-ex", "break show",
				"-ex", "continue", "-ex", "bt", "-ex", "continue", "-ex", "bt", "-ex", "continue", "-ex", "bt", "-ex", "kill", f.path).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var got []string
			name := regexp.MustCompile(`^#\d+ +(?:0x[0-9a-f]+ in )?(\w+) \(`)
			for _, line := range strings.Split(string(out), "\n") {
				if m := name.FindStringSubmatch(line); m != nil && slices.Contains([]string{"show", "inner", "middle", "outer", "ftrace_return", "return_to_handler", "main"}, m[1]) {
					got = append(got, m[1])
				}
			}
			const up = "middle ftrace_return outer ftrace_return main"
			want := "show inner " + up + " show inner " + up + " show return_to_handler " + up
			if strings.Join(got, " ") != want {
				t.Errorf("got  %s\nwant %s\n%s", strings.Join(got, " "), want, out)
			}
		})
	}
}

// traced keeps of classic-unwind.c's output the frames that matter, by name.
func traced(t *testing.T, path, out string) string {
	t.Helper()
	e, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	syms, err := e.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	base := symbolAddr(t, path, "__ehdr_start")
	names := map[string]string{"inner": "inner", "middle": "middle", "outer": "outer", "main": "main", "ftrace_return": "R", "return_to_handler": "R"}
	var b strings.Builder
	for _, line := range strings.SplitAfter(out, "\n") {
		what, frames, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		if !ok {
			b.WriteString(line)
			continue
		}
		b.WriteString(what + ":")
		for _, w := range strings.Fields(frames) {
			pc, err := strconv.ParseUint(w, 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range syms {
				if n := names[s.Name]; n != "" && pc+base-s.Value < s.Size {
					b.WriteString(" " + n)
				}
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// own leaves out what tracing adds, and what changes from run to run: addresses
// of shared objects.
func own(text, handler string) string {
	w := strings.Fields(text)
	return strings.Join(slices.DeleteFunc(w, func(s string) bool {
		shared := len(s) == len("0x7fffffffffff") && strings.HasPrefix(s, "0x7") || len(s) == len("0x5500000000") && strings.HasPrefix(s, "0x55")
		return s == handler || shared
	}), " ")
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
		{cc: "gcc", flags: []string{"-O0"}},
		{cc: "gcc", flags: []string{"-O2", "-mfentry"}},
		{cc: "gcc", flags: []string{"-O2", "-fno-pie", "-static", "-mfentry"}},
		{cc: "gcc", flags: []string{"-O2", "-mavx"}},
		{cc: "clang", flags: []string{"-O2", "-fno-pie", "-no-pie"}},
		{cc: "clang", flags: []string{"-O2", "-mfentry", "-mavx"}},
		{arm64GCC, []string{"-O2"}, oldCPU},
		{arm64GCC, []string{"-O0", "-mbranch-protection=standard"}, testtool.NewARM64},
		{arm64GCC, []string{"-O2", "-fno-pie", "-static", "-mbranch-protection=standard"}, testtool.NewARM64},
		{"clang", []string{clangARM64, "-O2"}, testtool.NewARM64},
	} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			flags := v.flags
			if v.cpu != "" {
				flags = append(slices.Clone(flags), "-DROUNDS=100") // emulated
			}
			f := linkFixture(t, v.cc, "classic-hooks.c", flags...)
			f.cpu = v.cpu
			for _, what := range []string{"function", "graph", "threads", "switch", "marks", "ends"} {
				out, ev := f.run(t, what)
				if what == "switch" || what == "marks" || what == "ends" {
					expectCounts(t, out, ev)
				}
				// The last thread's end is nobody's to notice.
				if n := ev.codes[23]; what == "ends" && (n == 0 || n > 49) || what == "marks" && n != 0 {
					t.Errorf("%s: %d ends of threads", what, n)
				}
				if what == "marks" {
					expectMarks(t, ev.marks)
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

// expectMarks checks what classic-hooks.c marks: numbers and texts, padded to words.
func expectMarks(t *testing.T, marks []string) {
	t.Helper()
	word := func(v uint64) string { return string(binary.LittleEndian.AppendUint64(nil, v)) }
	want := []string{word(1), word(2), word(1<<64-1) + "eight by"}
	for i := range 100 {
		text := strings.Repeat("x", min(5000-50*i, 2032))
		want = append(want, word(uint64(1000+i))+text+strings.Repeat("\x00", -len(text)&7))
	}
	if len(marks) != len(want) {
		t.Fatalf("%d marks, want %d", len(marks), len(want))
	}
	for i := range want {
		if marks[i] != want[i] {
			t.Errorf("mark %d is %q, want %q", i, marks[i], want[i])
		}
	}
}

// TestLibrary: the archive is one that the system's tools read, the same each time.
func TestLibrary(t *testing.T) {
	if _, err := Library(elf.EM_PPC64); err == nil {
		t.Error("a library for a machine that has none")
	}
	forEach(t, testLibrary)
}

func testLibrary(t *testing.T, m *machine) {
	a, err := Library(m.elf)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := Library(m.elf); string(a) != string(b) {
		t.Error("two archives differ")
	}
	testtool.Need(t, "ar", "nm")
	dir := t.TempDir()
	path := filepath.Join(dir, "libfentry.a")
	if err := os.WriteFile(path, a, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("nm", "-s", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	names := []string{"_mcount", "ftrace_trace_function", "return_to_handler", "_mcleanup"}
	if m == onAMD64 {
		names = append(names, "mcount", "__fentry__")
	}
	for _, name := range names {
		if !strings.Contains(string(out), "\n"+name+" in fentry.o\n") {
			t.Errorf("index: no %s in\n%s", name, out)
		}
	}
	cmd := exec.Command("ar", "x", path)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	obj, err := LibraryObject(m.elf)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "fentry.o")); err != nil || string(got) != string(obj) {
		t.Errorf("member differs from the object: %v", err)
	}
}

// TestLibraryObject: what it defines for others is in fentry.h or compilers ask for
// it, it needs nothing but what linkers define, and the stack stays as it is.
func TestLibraryObject(t *testing.T) {
	forEach(t, func(t *testing.T, m *machine) {
		obj, err := LibraryObject(m.elf)
		if err != nil {
			t.Fatal(err)
		}
		f, err := elf.NewFile(strings.NewReader(string(obj)))
		if err != nil {
			t.Fatal(err)
		}
		if f.Machine != m.elf {
			t.Errorf("machine %v", f.Machine)
		}
		syms, err := f.Symbols()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range syms {
			switch {
			case elf.ST_BIND(s.Info) == elf.STB_LOCAL:
			case s.Section == elf.SHN_UNDEF:
				if s.Name != "__ehdr_start" && s.Name != "_etext" {
					t.Errorf("undefined: %s", s.Name)
				}
			case s.Name == "__monstartup" || s.Name == "_mcleanup":
				if elf.ST_BIND(s.Info) != elf.STB_WEAK {
					t.Errorf("%s is not weak", s.Name)
				}
			case !strings.Contains(string(Header()), s.Name):
				t.Errorf("%s is not in fentry.h", s.Name)
			}
		}
		if f.Section(".note.GNU-stack") == nil {
			t.Error("without .note.GNU-stack linkers make the stack executable")
		}
	})
}

// The embedded objects are what the sources give, where the same compiler is at hand.
func TestLibraryObjectIsUpToDate(t *testing.T) {
	forEach(t, func(t *testing.T, m *machine) {
		testtool.Need(t, m.target.CC)
		v, err := build.Version(m.target)
		if err != nil {
			t.Fatal(err)
		}
		if made, err := os.ReadFile(m.name + ".o.txt"); err != nil || v != strings.TrimSpace(string(made)) {
			t.Skipf("the object was made by another compiler: %s, %v", made, err)
		}
		path := filepath.Join(t.TempDir(), "classic.o")
		if err := build.ClassicLibrary(m.target, "src", path); err != nil {
			t.Fatal(err)
		}
		want, err := LibraryObject(m.elf)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != string(want) {
			t.Errorf("%s-classic.o is not what the sources give: go generate ./stub; %v", m.name, err)
		}
	})
}

// TestHeader compiles fentry.h alone, as C and as C++.
func TestHeader(t *testing.T) {
	for cc, lang := range map[string]string{"gcc": "c", "g++": "c++", arm64GCC: "c", arm64GXX: "c++"} {
		testtool.Need(t, cc)
		size := 168
		if machineOf(cc, nil) == onARM64 {
			size = 336
		}
		cmd := exec.Command(cc, "-x", lang, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-")
		cmd.Stdin = strings.NewReader(fmt.Sprintf("#include \"fentry.h\"\nchar size[sizeof(struct ftrace_regs) == %d ? MCOUNT_INSN_SIZE : -1];\n", size))
		cmd.Args = append(cmd.Args, "-Isrc")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", cc, err, out)
		}
	}
}
