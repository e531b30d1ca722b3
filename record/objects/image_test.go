package objects_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
	finder "github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/record/objects"
)

// A program whose table is not in order, because compilers put cold functions elsewhere, and has an entry of a weak
// function that another definition has replaced. It counts the calls of the profiling function itself.
const (
	imageOne = `
int two(int);
__attribute__((weak)) int over(int x) { return two(x) - 1; }
__attribute__((cold, noinline)) int chilly(int x) { return two(x) - 7; }
int one(int x) { return over(x) + chilly(x); }
`
	imageTwo = `
__attribute__((cold, noinline)) int frosty(int x) { return x * 3; }
int over(int x) { return x + 100; }
int two(int x) { return frosty(x) + 1; }
`
	imageMain = `
int printf(const char *, ...);
extern char *__start___mcount_loc[] __attribute__((visibility("hidden")));
extern char *__stop___mcount_loc[] __attribute__((visibility("hidden")));
__attribute__((visibility("hidden"))) char anchor[64] = "anchor";
__attribute__((visibility("hidden"))) int calls;
#ifdef __x86_64__
__asm__(".text\n.globl mcount\n.hidden mcount\n.type mcount, @function\nmcount: incl calls(%rip)\n ret\n.size mcount, .-mcount\n");
#else
__attribute__((visibility("hidden"))) void _mcount(void) { calls++; }
#endif
int one(int);
int main(void) {
	int r = one(1);
	printf("%d %d\n", r, calls);
	for (char **p = __start___mcount_loc; p < __stop___mcount_loc; p++)
		printf("%ld\n", *p ? (long)(*p - anchor) : 0);
	return 0;
}
`
)

// TestImages sorts the tables of linked programs, and turns their calls into nops, and runs them.
func TestImages(t *testing.T) {
	type variant struct {
		cc, ld, qemu   string
		cflags, lflags string
		compat         bool
	}
	var variants []variant
	for _, cc := range []string{"gcc", "aarch64-linux-gnu-gcc"} {
		qemu := map[string]string{"aarch64-linux-gnu-gcc": "qemu-aarch64"}[cc]
		variants = append(variants,
			variant{cc, "bfd", qemu, "-fno-pie", "-no-pie", false},
			variant{cc, "bfd", qemu, "-fno-pie", "-no-pie", true},
			variant{cc, "bfd", qemu, "-fPIE", "-pie -Wl,-z,text", false},
			variant{cc, "bfd", qemu, "-fPIE", "-pie -Wl,-z,notext", true},
			variant{cc, "lld", qemu, "-fPIE", "-pie -B/usr/bin", false},
			variant{cc, "gold", qemu, "-fPIE", "-pie", false})
	}
	variants = append(variants,
		variant{"gcc", "mold", "", "-fPIE", "-pie", false},
		variant{"gcc", "bfd", "", "-fPIE", "-pie -Wl,-z,pack-relative-relocs", false},
		variant{"gcc", "bfd", "", "-fPIE", "-pie -Wl,-z,pack-relative-relocs,-z,notext", true})
	for _, v := range variants {
		t.Run(fmt.Sprintf("%s %s %s compat=%v", v.cc, v.ld, v.lflags, v.compat), func(t *testing.T) {
			t.Parallel()
			testtool.Need(t, v.cc)
			if v.qemu != "" {
				testtool.Need(t, v.qemu)
			}
			if v.ld != "bfd" && !(v.ld == "gold" && v.qemu != "") {
				testtool.Need(t, "ld."+v.ld)
			}
			dir := t.TempDir()
			flags := append(strings.Fields(v.cflags), "-O2", "-fno-ipa-icf")
			var objs []string
			for name, src := range map[string]string{"1": imageOne, "2": imageTwo} {
				obj := filepath.Join(dir, name+".o")
				write(t, obj, record(t, assemble(t, v.cc, src, append(flags, "-pg")...), objects.Options{Compat: v.compat}))
				objs = append(objs, obj)
			}
			slices.Sort(objs)
			main := filepath.Join(dir, "main.o")
			write(t, main, assemble(t, v.cc, imageMain, flags...))
			prog := filepath.Join(dir, "prog")
			command(t, slices.Concat([]string{v.cc, "-fuse-ld=" + v.ld}, strings.Fields(v.lflags), objs,
				[]string{main, "-o", prog})...)

			result, calls, entries := runImage(t, v.qemu, prog)
			// Linkers put tables a section in the order of the sections, but for gold.
			if calls != 5 || len(entries) != 6 || slices.Contains(entries, 0) ||
				slices.IsSorted(entries) != (!v.compat && v.ld != "gold") {
				t.Fatalf("before: %d calls, entries %v", calls, entries)
			}
			change(t, prog, objects.SortImage)
			r, n, sorted := runImage(t, v.qemu, prog)
			if r != result || n != calls || len(sorted) != 6 || sorted[0] != 0 || !slices.IsSorted(sorted[1:]) {
				t.Errorf("sorted: result %d, want %d; %d calls, want %d; entries %v of %v", r, result, n, calls, sorted, entries)
			}
			for _, e := range sorted[1:] {
				if !slices.Contains(entries, e) {
					t.Errorf("entry %d was not there before: %v", e, entries)
				}
			}
			if again := apply(t, prog, objects.SortImage); again.Output != nil {
				t.Error("sorting a second time changes the program again")
			}
			if res := change(t, prog, nopImage); res.Changed < 5 {
				t.Errorf("%d calls became nops", res.Changed)
			}
			r, n, same := runImage(t, v.qemu, prog)
			if r != result || n != 0 || !slices.Equal(same, sorted) {
				t.Errorf("with nops: result %d, want %d; %d calls; entries %v", r, result, n, same)
			}
		})
	}
}

// runImage returns what a program has computed, how many calls of the profiling function it has counted, and its table.
func runImage(t *testing.T, qemu, prog string) (result, calls int, entries []int64) {
	t.Helper()
	cmd := exec.Command(prog)
	if qemu != "" {
		cmd = exec.Command(qemu, "-L", "/usr/aarch64-linux-gnu", prog)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Fields(string(out))
	result, _ = strconv.Atoi(lines[0])
	calls, _ = strconv.Atoi(lines[1])
	for _, l := range lines[2:] {
		n, err := strconv.ParseInt(l, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, n)
	}
	return result, calls, entries
}

// apply plans a change of a linked program.
func apply(t *testing.T, path string, plan func(*elfio.File) (objects.ImageResult, error)) objects.ImageResult {
	t.Helper()
	f, err := elfio.Parse(read(t, path))
	if err != nil {
		t.Fatal(err)
	}
	res, err := plan(f)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// change changes a linked program.
func change(t *testing.T, path string, plan func(*elfio.File) (objects.ImageResult, error)) objects.ImageResult {
	t.Helper()
	res := apply(t, path, plan)
	if res.Output == nil {
		t.Fatal("nothing to change")
	}
	if err := runfile.WriteFile(path, res.Output.Bytes()); err != nil {
		t.Fatal(err)
	}
	return res
}

// nopImage turns the calls that package record finds into nops, as fentry mcount does.
func nopImage(f *elfio.File) (objects.ImageResult, error) {
	return objects.NopImage(f, func(f *elfio.File) ([]objects.Call, error) {
		found, err := finder.Find(f, finder.Options{})
		var calls []objects.Call
		for _, s := range found {
			if s.Len > 0 && (s.Kind == finder.KindFentryCall || s.Kind == finder.KindMcountCall) {
				calls = append(calls, objects.Call{Addr: s.Addr, Bytes: s.Bytes})
			}
		}
		return calls, err
	})
}
