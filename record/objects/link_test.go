package objects_test

import (
	"debug/elf"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/record/objects"
)

// The sources of a program that prints its table: each entry relative to a variable. The functions of one and two call
// _mcount, those of the rest do not. In C++ both have the same instances of a template.
const (
	linkCommon = `
#ifdef __cplusplus
template <class T> struct S { static T f(T x) { return x + 1; } };
template <class T> __attribute__((noinline)) T dup(T x) { return S<T>::f(x) * 2; }
#define BOTH(x) + dup(x) + dup((long)x)
extern "C" {
#else
#define BOTH(x)
#endif
`
	linkOne = linkCommon + `
int two(int);
static __attribute__((noinline)) int local_one(int x) { return two(x) * 3; }
__attribute__((weak)) int weak_one(int x) { return two(x) - 1; }
__attribute__((noinline)) int unused_one(int x) { return two(x) - 7; }
__attribute__((section(".text.other"))) int other_one(int x) { return two(x) - 9; }
int one(int x) { return local_one(x) + weak_one(x) + other_one(x) BOTH(x); }
#ifdef __cplusplus
}
#endif
`
	linkTwo = linkCommon + `
static int seen;
static __attribute__((noinline)) int local_two(int x) { return ++seen + x; }
__attribute__((noinline)) int unused_two(int x) { return local_two(x) - 7; }
int two(int x) { return local_two(x) + 1 BOTH(x); }
#ifdef __cplusplus
}
#endif
`
	linkDump = `
int printf(const char *, ...);
extern char *__start___mcount_loc[] __attribute__((visibility("hidden")));
extern char *__stop___mcount_loc[] __attribute__((visibility("hidden")));
__attribute__((visibility("hidden"))) char anchor[64] = "anchor";
int one(int);
int dump(void) {
	for (char **p = __start___mcount_loc; p < __stop___mcount_loc; p++)
		printf("%lx\n", *p ? (unsigned long)(*p - anchor) & ANCHOR_MASK : 0);
	return one(1) == 0;
}
`
	linkMain = "int dump(void); int main(void) { return dump(); }\n"
)

// linkForm is a way to link.
type linkForm struct {
	name, cflags, ldflags string
	shared                bool // the functions are in a library
	first                 bool // the objects are first linked into one
}

var linkForms = []linkForm{
	{name: "nopie", cflags: "-fno-pie", ldflags: "-no-pie"},
	{name: "pie", cflags: "-fPIE", ldflags: "-pie"},
	{name: "shared", cflags: "-fPIC", ldflags: "-pie", shared: true},
	{name: "relocatable", cflags: "-fPIE", ldflags: "-pie", first: true},
}

// linker makes and checks programs of one compiler and linker.
type linker struct {
	cc, flags string // compiler, and flags for compiling and linking
	ld        string // "" or what -fuse-ld takes
	cxx       string // compiler of one and two, if they are C++
	run       []string
	moves     bool // the linker changes the length of code
	still     bool // the program cannot be run; its table is read
}

// check links, runs the program and compares its table with what objdump sees.
func (l *linker) check(t *testing.T, form linkForm, gc, compat bool) {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	cc := l.cc
	ext := ".c"
	if l.cxx != "" {
		cc, ext = l.cxx, ".cc"
	}
	bits := "0xffffffffffffffffUL"
	if out := command(t,
		append(append([]string{l.cc}, strings.Fields(l.flags)...), "-dM", "-E", "-x", "c",
			"/dev/null")...); !strings.Contains(out, "__SIZEOF_LONG__ 8") {
		bits = "0xffffffffUL"
	}
	write(t, at("one"+ext), []byte(linkOne))
	write(t, at("two"+ext), []byte(linkTwo))
	write(t, at("dump.c"), []byte(linkDump))
	write(t, at("main.c"), []byte(linkMain))
	flags := strings.Fields(l.flags + " -O1 " + form.cflags)
	pg := []string{"-pg"}
	if gc {
		pg = append(pg, "-ffunction-sections")
	}
	var places []place
	var objs []string
	for _, name := range []string{"one", "two"} {
		obj := at(name + ".o")
		command(t, slices.Concat([]string{cc}, flags, pg, []string{"-c", at(name + ext), "-o", obj})...)
		places = append(places, truth(t, objdumpOf(l.cc), obj)...)
		write(t, obj, record(t, read(t, obj), objects.Options{Compat: compat}))
		objs = append(objs, obj)
	}
	command(t, slices.Concat([]string{l.cc}, flags,
		[]string{"-DANCHOR_MASK=" + bits, "-c", at("dump.c"), "-o", at("dump.o")})...)
	command(t, slices.Concat([]string{l.cc}, flags, []string{"-c", at("main.c"), "-o", at("main.o")})...)

	link := slices.Concat([]string{cc}, strings.Fields(l.flags))
	if l.ld != "" {
		link = append(link, "-fuse-ld="+l.ld)
	}
	if form.first {
		command(t, slices.Concat(link, []string{"-r", "-nostdlib", "-o", at("both.o")}, objs)...)
		objs = []string{at("both.o")}
		if b := read(t, at("both.o")); len(entries(t, b)) == 0 {
			t.Error("the table is lost in the object of both")
		} else if ob, err := objects.Parse(b, objects.Options{}); err != nil || len(slices.Collect(ob.Check())) > 0 {
			t.Errorf("the object of both: %v, %q", err, slices.Collect(ob.Check()))
		}
	}
	if gc {
		link = append(link, "-Wl,--gc-sections")
	}
	// Linkers disagree on whether the references to the begin and the end of a table keep it, and with it all that it
	// names. A table a section can do without; recordmcount's is dropped then.
	drops := l.ld == "lld"
	if gc && compat && drops {
		link = append(link, "-Wl,-z,nostart-stop-gc")
	}
	if gc && !compat && l.ld == "bfd" {
		link = append(link, "-Wl,-z,start-stop-gc")
		drops = true
	}
	if form.name != "nopie" && !l.still {
		// recordmcount's table is read-only: what holds addresses of a position-independent image cannot be.
		link = append(link, "-Wl,-z,"+map[bool]string{false: "text", true: "notext"}[compat])
	}
	ldflags := strings.Fields(form.ldflags)
	if l.still {
		// What the program needs of a C library is not there, and not needed.
		ldflags = []string{"-no-pie", "-static", "-nostdlib", "-Wl,-e,main", "-Wl,--unresolved-symbols=ignore-all",
			"-Wl,--defsym=_mcount=main", "-Wl,--defsym=printf=main"}
	}
	image := at("prog")
	if form.shared {
		image = at("libboth.so")
		command(t, slices.Concat(link, []string{"-shared"}, objs, []string{at("dump.o"), "-o", image})...)
		command(t, slices.Concat(link, ldflags,
			[]string{at("main.o"), "-L" + dir, "-lboth", "-Wl,-rpath," + dir, "-o", at("prog")})...)
	} else {
		command(t, slices.Concat(link, ldflags, objs, []string{at("dump.o"), at("main.o"), "-o", image})...)
	}
	functions, calls, anchor := linked(t, objdumpOf(l.cc), image)
	want := map[string]bool{}
	mask := ^uint64(0)
	if bits == "0xffffffffUL" {
		mask = 1<<32 - 1
	}
	got := l.table(t, at("prog"), anchor&mask)
	if l.moves {
		for _, c := range calls {
			want[strconv.FormatUint((c-anchor)&mask, 16)] = true
		}
	} else {
		for _, p := range places {
			if a, ok := functions[strings.TrimPrefix(p.fn, ".")]; ok {
				want[strconv.FormatUint((a+p.delta-anchor)&mask, 16)] = true
			}
		}
	}
	_, unused := functions["unused_one"]
	if gc && !compat && drops && !form.shared && !form.first && unused {
		t.Error("the table keeps a function alive that nothing uses")
	}
	got = slices.DeleteFunc(got, func(s string) bool { return s == "0" && compat }) // of functions the linker dropped
	seen := map[string]bool{}
	for _, g := range got {
		if seen[g] || !want[g] {
			t.Errorf("the entry %s is there twice or names no call", g)
		}
		seen[g] = true
	}
	if len(seen) != len(want) || len(want) < 5 {
		t.Errorf("%d entries, %d calls: %v, want %v", len(seen), len(want), got, want)
	}
}

// table runs the program for its table, or reads it.
func (l *linker) table(t *testing.T, prog string, anchor uint64) (out []string) {
	t.Helper()
	if l.still {
		f, err := elf.Open(prog)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		data, err := f.Section("__mcount_loc").Data()
		if err != nil {
			t.Fatal(err)
		}
		for ; len(data) >= 8 && f.Class == elf.ELFCLASS64; data = data[8:] {
			out = append(out, strconv.FormatUint(f.ByteOrder.Uint64(data)-anchor, 16))
		}
		for ; len(data) >= 4; data = data[4:] {
			out = append(out, strconv.FormatUint(uint64(f.ByteOrder.Uint32(data)-uint32(anchor)), 16))
		}
		return out
	}
	argv := append(slices.Clone(l.run), prog)
	b, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("running the program: %v\n%s", err, b)
	}
	return strings.Fields(string(b))
}

// linked returns what objdump says of a linked image: where functions begin, where calls of profiling functions are,
// and the address of the variable anchor.
func linked(t *testing.T, objdump, path string) (functions map[string]uint64, calls []uint64, anchor uint64) {
	t.Helper()
	out, err := exec.Command(objdump, "-d", "--no-show-raw-insn", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	functions = map[string]uint64{}
	for _, line := range strings.Split(string(out), "\n") {
		if m := dumpHeader.FindStringSubmatch(line); m != nil {
			functions[strings.TrimPrefix(m[2], ".")], _ = strconv.ParseUint(m[1], 16, 64)
		} else if m := dumpInsn.FindStringSubmatch(line); m != nil && strings.Contains(m[2], "mcount") &&
			dumpCall.MatchString(m[2]) {
			at, _ := strconv.ParseUint(m[1], 16, 64)
			calls = append(calls, at)
		}
	}
	out, err = exec.Command(objdump, "-t", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(out), "\n") {
		if w := strings.Fields(line); len(w) > 2 && w[len(w)-1] == "anchor" {
			anchor, _ = strconv.ParseUint(w[0], 16, 64)
		}
	}
	if anchor == 0 {
		t.Fatalf("%s has no symbol anchor", path)
	}
	return functions, calls, anchor
}

// TestLinkers: every linker, in every form, with and without garbage collection, both layouts; then the program prints
// its table.
func TestLinkers(t *testing.T) {
	testtool.Need(t, "g++")
	for _, ld := range []string{"bfd", "gold", "lld", "mold"} {
		for _, form := range linkForms {
			for _, gc := range []bool{false, true} {
				for _, compat := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s %s gc=%v compat=%v", ld, form.name, gc, compat), func(t *testing.T) {
						t.Parallel()
						testtool.Need(t, "ld."+ld)
						l := linker{cc: "gcc", flags: "-mfentry", cxx: "g++", ld: ld}
						l.check(t, form, gc, compat)
					})
				}
			}
		}
	}
}

// A read-only table of addresses, which recordmcount's is, cannot be in an image whose read-only parts stay as they are
// in the file. That goes for what recordmcount itself writes as well.
func TestCompatTablesAreTextRelocations(t *testing.T) {
	dir := t.TempDir()
	ours, theirs, main := filepath.Join(dir, "ours.o"), filepath.Join(dir, "theirs.o"), filepath.Join(dir, "main.o")
	b := assemble(t, "gcc", linkTwo, "-O1", "-fPIE", "-pg", "-mfentry")
	write(t, ours, record(t, b, objects.Options{Compat: true}))
	write(t, theirs, b)
	command(t, recordmcount(t), theirs)
	write(t, main, assemble(t, "gcc", "int two(int); int main(void) { return two(1); }\n", "-fPIE"))
	for _, ld := range []string{"bfd", "gold", "lld", "mold"} {
		testtool.Need(t, "ld."+ld)
		for _, obj := range []string{ours, theirs} {
			for _, z := range []string{"text", "notext"} {
				out, err := exec.Command("gcc", "-fuse-ld="+ld, "-pie", "-Wl,-z,"+z, obj, main, "-o",
					filepath.Join(dir, "prog")).CombinedOutput()
				if (err == nil) != (z == "notext") {
					t.Errorf("%s -z %s %s: %v: %s", ld, z, filepath.Base(obj), err, out)
				}
			}
		}
	}
}

// machineRuns are the machines whose programs can be linked and run here.
var machineRuns = []struct {
	cc, flags, qemu string
	moves, still    bool
}{
	{"aarch64-linux-gnu-gcc", "", "qemu-aarch64", false, false},
	{"i686-linux-gnu-gcc", "", "qemu-i386", false, false}, // not every kernel runs them
	{"arm-linux-gnueabihf-gcc", "", "qemu-arm", false, false},
	{"arm-linux-gnueabihf-gcc", "-marm", "qemu-arm", false, false},
	{"powerpc-linux-gnu-gcc", "", "qemu-ppc", false, false},
	{"powerpc64-linux-gnu-gcc", "", "qemu-ppc64", false, false},
	{"powerpc64le-linux-gnu-gcc", "", "qemu-ppc64le", false, false},
	{"s390x-linux-gnu-gcc", "", "qemu-s390x", false, false},
	{"sparc64-linux-gnu-gcc", "", "qemu-sparc64", false, false},
	{"mips-linux-gnu-gcc", "", "qemu-mips", false, false},
	{"mipsel-linux-gnu-gcc", "", "qemu-mipsel", false, false},
	{"mips64-linux-gnuabi64-gcc", "", "qemu-mips64", false, false},
	{"mips64el-linux-gnuabi64-gcc", "", "qemu-mips64el", false, false},
	{"sh4-linux-gnu-gcc", "", "", false, true}, // qemu-sh4 of Debian 12 runs no program with a C library
	{"gcc", "-mx32", "", false, true},
	{"mips64el-linux-gnuabi64-gcc", "-mabi=n32", "", false, true},
	{"arm-linux-gnueabihf-gcc", "-mbig-endian -marm", "", false, true},
	{"arm-linux-gnueabihf-gcc", "-mbig-endian", "", false, true},
	{"aarch64-linux-gnu-gcc", "-mbig-endian", "", false, true},
	{"aarch64-linux-gnu-gcc", "-mabi=ilp32", "", false, true},
	{"riscv64-linux-gnu-gcc", "", "qemu-riscv64", true, false},
	{"clang-19", "--target=loongarch64-linux-gnu", "", false, true}, // no C library
	{"riscv64-linux-gnu-gcc", "-mno-relax", "qemu-riscv64", false, false},
}

// TestLinkedOnEveryMachine links with the linker of each machine, and runs the program with an emulator.
func TestLinkedOnEveryMachine(t *testing.T) {
	for _, m := range machineRuns {
		t.Run(m.cc+" "+m.flags, func(t *testing.T) {
			testtool.Need(t, m.cc)
			prefix := strings.TrimSuffix(m.cc, "gcc")
			l := linker{cc: m.cc, flags: m.flags, moves: m.moves, still: m.still}
			if m.cc == "clang-19" {
				testtool.Need(t, "ld.lld-19")
				l.ld = "lld"
			}
			if m.qemu != "" {
				testtool.Need(t, m.qemu)
				l.run = []string{m.qemu, "-L", "/usr/" + strings.TrimSuffix(prefix, "-")}
			}
			for i, form := range linkForms {
				for _, compat := range []bool{false, true} {
					for _, gc := range []bool{false, true} {
						if l.still && (form.shared || form.name == "pie") {
							continue
						}
						if !testtool.Wide() && (gc != (i%2 == 0) || compat && i > 0) {
							continue
						}
						t.Run(fmt.Sprintf("%s gc=%v compat=%v", form.name, gc, compat), func(t *testing.T) {
							t.Parallel()
							l.check(t, form, gc, compat)
						})
					}
				}
			}
		})
	}
}
