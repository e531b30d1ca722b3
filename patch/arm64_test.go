package patch_test

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
)

// guarded has every landing pad there can be, and no C library, which Debian has
// none for: its pages are guarded (BTI).
const guarded = `
__attribute__((noinline)) int leaf(int x) { __asm__ volatile(""); return x + 1; }
__attribute__((noinline)) int mid(int x) { int r = leaf(x); __asm__ volatile(""); return r * 2; }
int (*volatile pointer)(int) = mid;
__attribute__((patchable_function_entry(0))) void _start(void)
{
	register long x0 __asm__("x0") = pointer(4) + mid(3);
	register long x8 __asm__("x8") = 94;
	__asm__ volatile("svc 0" : : "r"(x8), "r"(x0));
	for (;;)
		;
}
`

func TestGuardedPages(t *testing.T) {
	for _, tracer := range []patch.Tracer{patch.FunctionGraph, patch.Function, patch.Profile, patch.Count} {
		for name, flag := range map[string]string{"patchable": "-fpatchable-function-entry=2", "plain": "-DPLAIN"} {
			t.Run(name+"/"+tracer.String(), func(t *testing.T) { testGuarded(t, tracer, flag) })
		}
	}
}

func testGuarded(t *testing.T, tracer patch.Tracer, flag string) {
	t.Parallel()
	orig := read(t, onARM64.compile(t, "g.c", guarded, flag, "-mbranch-protection=standard",
		"-nostdlib", "-static", "-no-pie", "-fno-pie", "-Wl,-z,force-bti"))
	// Without its landing pads the program dies: the pages are guarded.
	f, err := elfio.Parse(orig)
	if err != nil {
		t.Fatal(err)
	}
	sites, err := record.Find(f, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	broken := bytes.Clone(orig)
	for _, s := range sites {
		if s.Name == "mid" {
			off, _ := f.Offset(s.Func)
			copy(broken[off:], "\x1f\x20\x03\xd5")
		}
	}
	if _, status, _ := run(t, onARM64, broken); status == 18 {
		t.Fatal("the pages are not guarded")
	}
	file := filepath.Join(t.TempDir(), "g")
	p := patchPlain(t, orig, patch.Options{Tracer: tracer}, record.Options{}, file)
	_, status, dir := run(t, onARM64, read(t, file))
	if status != 18 {
		t.Errorf("status %d, want 18", status)
	}
	calls := callsOf(t, dir, p)
	if want := map[string]uint64{"mid": 2, "leaf": 2}; !maps.Equal(calls, want) {
		t.Errorf("calls %v, want %v", calls, want)
	}
}

// eventBytes is the size of the trace in a directory.
func eventBytes(t *testing.T, dir string) int64 {
	t.Helper()
	fi, err := os.Stat(filepath.Join(dir, "fentry.data", "events"))
	if err != nil {
		t.Fatal(err)
	}
	return fi.Size()
}

// A return address that is signed before mcount is called must not be replaced:
// such functions are traced by the function tracer only.
func TestSignedReturn(t *testing.T) {
	orig := read(t, onARM64.compile(t, "p.c", source, "-pg", "-mbranch-protection=standard"))
	_, err := newPlan(orig, patch.Options{})
	if !errors.Is(err, patch.ErrNoSites) || !strings.Contains(err.Error(), string(record.ReasonSignedReturn)) {
		t.Errorf("function_graph: error %v, want ErrNoSites and the reason", err)
	}
	p := plan(t, orig, patch.Options{Tracer: patch.Function})
	out, err := p.Image()
	if err != nil {
		t.Fatal(err)
	}
	want, status, _ := run(t, onARM64, orig)
	got, st, _ := run(t, onARM64, out)
	if p.Traced() != 3 || got != want || st != status {
		t.Errorf("%d traced, patched: %q, status %d; original: %q, status %d", p.Traced(), got, st, want, status)
	}
}

// threads has thread-local memory in the executable and in a library's threads;
// the runtime's own comes behind it.
const threads = `
#include <pthread.h>
#include <stdio.h>
static __thread int first = 5;
static __thread char odd[3];
static __thread long last;
__attribute__((noinline)) int work(int n) { odd[2]++; last += n; return first + odd[2] + (int)last; }
static void *run(void *p) { int r = 0; for (int i = 0; i < 1000; i++) r = work(i & 3); first = 1; return (void *)(long)r; }
int main(void)
{
	pthread_t t[4];
	void *r;
	long sum = (long)run(0);
	for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, run, 0);
	for (int i = 0; i < 4; i++) { pthread_join(t[i], &r); sum += (long)r; }
	printf("%ld %d %d %ld\n", sum, first, odd[2], last);
	return 0;
}
`

// What strip, objcopy and their kin make of a patched program traces as before,
// with thread-local memory and without.
func TestRewritten(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		flags      []string
	}{
		{"tls", threads, []string{"-fpatchable-function-entry=2"}},
		{"tls-static", threads, []string{"-fpatchable-function-entry=2", "-static"}},
		{"tls-first", threads, []string{"-fpatchable-function-entry=2", "-no-pie", "-fno-pie", "-Wl,-z,norelro"}},
		{"no-tls", source, []string{"-fpatchable-function-entry=2"}},
		{"no-tls-nopie", source, []string{"-fpatchable-function-entry=2", "-no-pie", "-fno-pie", "-Wl,-z,norelro"}},
		{"no-tls-4K", source, []string{"-pg", "-Wl,-z,max-page-size=4096"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			orig := read(t, onARM64.compile(t, "p.c", tt.text, append(tt.flags, "-pthread")...))
			want, status, _ := run(t, onARM64, orig)
			out, err := plan(t, orig, patch.Options{}).Image()
			if err != nil {
				t.Fatal(err)
			}
			in, to := filepath.Join(t.TempDir(), "in"), filepath.Join(t.TempDir(), "out")
			if err := runfile.WriteFile(in, out); err != nil {
				t.Fatal(err)
			}
			for _, c := range [][]string{
				nil,
				{"aarch64-linux-gnu-strip", "-o", to, in},
				{"aarch64-linux-gnu-objcopy", in, to},
				{"eu-strip", "-o", to, in},
				{"llvm-strip", "-o", to, in},
			} {
				name, image := "nothing", out
				if c != nil {
					name = c[0]
					if name == "llvm-strip" && strings.HasSuffix(tt.name, "static") {
						continue // refuses any static program: .rela.plt refers to .symtab
					}
					if !testtool.Have(t, name) {
						continue
					}
					if b, err := exec.Command(name, c[1:]...).CombinedOutput(); err != nil {
						t.Errorf("%v: %v\n%s", c, err, b)
						continue
					}
					image = read(t, to)
				}
				got, st, dir := run(t, onARM64, image)
				if got != want || st != status {
					t.Errorf("%s: %q, status %d; original: %q, status %d", name, got, st, want, status)
				}
				if eventBytes(t, dir) <= 4096 {
					t.Errorf("%s: no events", name)
				}
			}
		})
	}
}

// Checkers find nothing in a patched program that they do not find in the original,
// but that elfutils knows no R_AARCH64_IRELATIVE in programs, of linkers either.
func TestCheckers(t *testing.T) {
	lint := testtool.Path(t, "eu-elflint")
	readelf := testtool.Path(t, "aarch64-linux-gnu-readelf")
	objdump := testtool.Path(t, "aarch64-linux-gnu-objdump")
	for name, flags := range onARM64.kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			orig := onARM64.compile(t, "p.c", threads, append(flags, "-pthread")...)
			out, err := plan(t, read(t, orig), patch.Options{}).Image()
			if err != nil {
				t.Fatal(err)
			}
			patched := filepath.Join(t.TempDir(), "p")
			if err := runfile.WriteFile(patched, out); err != nil {
				t.Fatal(err)
			}
			complaints := func(image string) (list []string) {
				b, _ := exec.Command(lint, "--gnu-ld", image).CombinedOutput()
				for line := range strings.Lines(string(b)) {
					_, what, _ := strings.Cut(strings.TrimSpace(line), "]") // sections have other numbers
					if i := strings.Index(what, "symbol "); i >= 0 {
						_, what, _ = strings.Cut(what[i:], "(") // so have symbols
					}
					if what != "" && !strings.Contains(what, "invalid type") {
						list = append(list, what)
					}
				}
				return list
			}
			before := complaints(orig)
			for _, c := range complaints(patched) {
				if !slices.Contains(before, c) {
					t.Errorf("eu-elflint:%s", c)
				}
			}
			if b, err := exec.Command(readelf, "-aW", patched).CombinedOutput(); err != nil || bytes.Contains(b, []byte("Warning")) || bytes.Contains(b, []byte("Error")) {
				for line := range strings.Lines(string(b)) {
					if strings.Contains(line, "Warning") || strings.Contains(line, "Error") {
						t.Errorf("readelf: %s", line)
					}
				}
			}
			b, err := exec.Command(objdump, "-d", "--no-show-raw-insn", patched).CombinedOutput()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(b, []byte("<fentry:work>:")) || !bytes.Contains(b, []byte("<fentry:work>\n")) {
				t.Error("objdump shows no thunk, or nothing that goes there")
			}
		})
	}
}

// Exceptions, backtraces and cancellation find their way through traced frames,
// whether return addresses are signed or not and whoever has the unwinder.
func TestUnwinders(t *testing.T) {
	patchable := []string{"-fpatchable-function-entry=2"}
	for _, source := range []string{"exceptions.cpp", "cothrow.cpp", "backtrace.c", "cancel.c"} {
		for name, flags := range map[string][]string{
			"dynamic":    patchable,
			"signed":     append(patchable[:1:1], "-mbranch-protection=standard"),
			"static":     append(patchable[:1:1], "-static"),
			"static-pie": append(patchable[:1:1], "-static-pie", "-fPIE", "-mbranch-protection=standard"),
			"mcount":     {"-pg"},
		} {
			t.Run(source+"/"+name, func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join("..", "e2e", "testdata")
				orig := read(t, onARM64.compile(t, source, string(read(t, filepath.Join(dir, source))), append(flags, "-w", "-pthread", "-I", dir)...))
				want, status, _ := run(t, onARM64, orig)
				out, err := plan(t, orig, patch.Options{}).Image()
				if err != nil {
					t.Fatal(err)
				}
				got, st, where := run(t, onARM64, out)
				if got != want || st != status || want == "" {
					t.Errorf("patched: status %d\n%s\noriginal: status %d\n%s", st, got, status, want)
				}
				if eventBytes(t, where) <= 4096 {
					t.Error("no events")
				}
			})
		}
	}
}
