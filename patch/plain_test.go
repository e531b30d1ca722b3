package patch_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/trace"
)

// plainPlan is a plan for an image no function of which a compiler has prepared.
func plainPlan(t testing.TB, image []byte, o patch.Options, find record.Options) *patch.Plan {
	t.Helper()
	p, err := newPlanWith(image, o, find)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// patchPlain patches a program, checks that the result is consistent and that undoing it gives the original, and writes
// it to a file.
func patchPlain(t testing.TB, image []byte, o patch.Options, find record.Options, to string) *patch.Plan {
	t.Helper()
	p := plainPlan(t, image, o, find)
	out, err := p.Image()
	if err != nil {
		t.Fatal(err)
	}
	if in, err := patch.Verify(out); err != nil || len(in.Sites) != p.Traced() {
		t.Fatalf("%d sites of %d: %v", len(in.Sites), p.Traced(), err)
	}
	if back, err := patch.Undo(out); err != nil || !bytes.Equal(back, image) {
		t.Fatalf("undone it is not the original: %v", err)
	}
	if err := runfile.WriteFile(to, out); err != nil {
		t.Fatal(err)
	}
	return p
}

// In functions whose own instructions are displaced, unwinders find at every instruction what they find in the original.
func TestUnwindDisplaced(t *testing.T) {
	for _, c := range []struct {
		name  string
		on    *target
		flags []string
		o     patch.Options
	}{
		{"graph", onAMD64, nil, patch.Options{}},
		{"landing pads", onAMD64, []string{"-fcf-protection", "-O2"}, patch.Options{}},
		{"no frame pointer", onAMD64, []string{"-O1", "-no-pie"}, patch.Options{}},
		{"function", onAMD64, []string{"-O2"}, patch.Options{Tracer: patch.Function}},
		{"profile", onAMD64, []string{"-O1"}, patch.Options{Tracer: patch.Profile}},
		{"static", onAMD64, []string{"-static", "-O1"}, patch.Options{}},
		{"graph", onARM64, nil, patch.Options{}},
		{"landing pads", onARM64, []string{"-mbranch-protection=bti"}, patch.Options{}},
		{"not optimized", onARM64, []string{"-O0", "-no-pie"}, patch.Options{}},
		{"function", onARM64, nil, patch.Options{Tracer: patch.Function}},
		{"static", onARM64, []string{"-static", "-O1"}, patch.Options{}},
	} {
		t.Run(c.on.name+"/"+c.name, func(t *testing.T) {
			t.Parallel()
			bin := c.on.compile(t, "n.c", nested, append([]string{"-g"}, c.flags...)...)
			patchPlain(t, read(t, bin), c.o, record.Options{}, bin)
			checkSteps(t, c.on, bin)
		})
	}
}

// Where a landing pad signs the return address and stays, what is displaced authenticates it, and signs it anew behind the
// thunk. The rows say so at each instruction; at the site it is signed, as in the original.
func TestSignedRows(t *testing.T) {
	image := read(t, onARM64.compile(t, "g.c", guarded, "-mbranch-protection=standard", "-nostdlib", "-static", "-Wl,-z,force-bti"))
	p := plainPlan(t, image, patch.Options{}, record.Options{})
	out, err := p.Image()
	if err != nil {
		t.Fatal(err)
	}
	index := framesOf(t, out)
	k := slices.IndexFunc(p.Functions, func(f patch.Func) bool { return f.Name == "mid" })
	fn := &p.Functions[k]
	at, size := p.Moved(fn)
	if fn.Ret != record.RetSignedLR || size != 20 {
		t.Fatalf("mid: return address %v, %d bytes", fn.Ret, size)
	}
	d, ok := index.Find(at)
	if !ok || d.PC != at || d.Size != uint64(size) {
		t.Fatalf("displaced at %#x: %v", at, d)
	}
	for off, signed := range []bool{true, false, false, true, true} { // autiasp; b thunk; paciasp; stp; b
		if r := rowAt(t, &d, at+4*uint64(off)); r.Signed != signed || r.Moved != (off == 4) {
			t.Errorf("%+v at %#x", r, 4*off)
		}
	}
}

// TestPlainCounts traces programs that no compiler has prepared: the functions of the C library's as well, where that is
// in them.
func TestPlainCounts(t *testing.T) {
	for _, on := range targets {
		for name, flags := range map[string][]string{
			"pie":        nil,
			"no-pie":     {"-no-pie", "-fno-pie"},
			"static":     {"-static"},
			"static-pie": {"-static-pie", "-fPIE"},
			"O0":         {"-O0"},
			"Os":         {"-Os"},
			"signed":     {"-mbranch-protection=standard"},
		} {
			if on == onAMD64 && (name == "signed" || name == "Os") { // where leaf is too short
				continue
			}
			for _, tracer := range []patch.Tracer{patch.FunctionGraph, patch.Function, patch.Profile, patch.Count} {
				t.Run(on.name+"/"+name+"/"+tracer.String(), func(t *testing.T) {
					t.Parallel()
					orig := read(t, on.compile(t, "p.c", source, flags...))
					file := filepath.Join(t.TempDir(), "p")
					p := patchPlain(t, orig, patch.Options{Tracer: tracer}, record.Options{}, file)
					want, status, _ := run(t, on, orig)
					got, st, dir := run(t, on, read(t, file))
					if got != want || st != status {
						t.Fatalf("patched: %q, status %d; original: %q, status %d", got, st, want, status)
					}
					calls := callsOf(t, dir, p)
					if calls["main"] != 1 || calls["mid"] != 2 || calls["leaf"] != 2 || calls["_start"] != 0 {
						t.Errorf("calls of main, mid, leaf: %d, %d, %d", calls["main"], calls["mid"], calls["leaf"])
					}
					if static := strings.Contains(name, "static"); static != (len(calls) > 30) {
						t.Errorf("%d functions", len(calls))
					}
				})
			}
		}
	}
}

// TestDisplacedRows compares, for all functions of installed programs, the unwind rows of displaced instructions with
// those of the originals, and the copies with what they are copies of.
func TestDisplacedRows(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the installed programs are for another machine")
	}
	seen := 0
	for _, path := range []string{"/usr/bin/git", "/usr/bin/python3.11", "/usr/bin/perl", "/usr/bin/bash", "/usr/bin/gdb"} {
		image, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for _, tracer := range []patch.Tracer{patch.FunctionGraph, patch.Function} {
			p := plainPlan(t, image, patch.Options{Tracer: tracer}, record.Options{})
			out, err := p.Image()
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			seen += compareRows(t, path, p, image, out)
		}
	}
	if seen == 0 {
		t.Skip("none of the programs is installed")
	}
}

// compareRows returns how many rows it has compared.
func compareRows(t *testing.T, path string, p *patch.Plan, before, after []byte) (n int) {
	t.Helper()
	originals, err := ehframe.Read(parse(t, before))
	if err != nil {
		t.Fatal(err)
	}
	was, is := ehframe.NewIndex(originals), framesOf(t, after)
	for k := range p.Functions {
		fn := &p.Functions[k]
		at, size := p.Moved(fn)
		if at == 0 {
			continue
		}
		a, ok := was.Find(fn.Func)
		b, ok2 := is.Find(at)
		if !ok || !ok2 || b.PC > at || b.PC+b.Size < at+uint64(size) || (b.LSDA != 0) != fn.Catches {
			t.Fatalf("%s: %#x: %v, displaced %v", path, fn.Func, a, b)
		}
		for off := 0; off <= fn.Moved; off++ {
			to, ok := amd64.DisplacedAt(fn.Bytes[:fn.Moved], off)
			if !ok || to == size {
				continue
			}
			want, got := rowAt(t, &a, fn.Addr+uint64(off)), rowAt(t, &b, at+uint64(to))
			if want != got {
				t.Fatalf("%s: %#x: %+v at +%d, displaced %+v", path, fn.Func, want, off, got)
			}
			n++
		}
	}
	return n
}

// framesOf are the entries that patching has added to an image, for its own code.
func framesOf(t *testing.T, image []byte) *ehframe.Index {
	t.Helper()
	return framesIn(t, image, ".fentry.frames")
}

// framesIn are the entries in a section of an image.
func framesIn(t *testing.T, image []byte, section string) *ehframe.Index {
	t.Helper()
	f := parse(t, image)
	i := f.SectionIndex(section)
	if i < 0 {
		t.Fatal("no unwind information")
	}
	data, err := f.SectionData(i)
	if err != nil {
		t.Fatal(err)
	}
	copies, err := ehframe.Parse(f, data, f.Sections[i].Addr)
	if err != nil {
		t.Fatal(err)
	}
	return ehframe.NewIndex(copies)
}

func parse(t *testing.T, image []byte) *elfio.File {
	t.Helper()
	f, err := elfio.Parse(image)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// rowAt is what an entry says of an address, but for where the return address is, for which there is another rule.
func rowAt(t *testing.T, d *ehframe.FDE, pc uint64) ehframe.Row {
	t.Helper()
	rows, err := d.AppendRows(nil)
	if err != nil {
		t.Fatal(err)
	}
	k := 0
	for k+1 < len(rows) && rows[k+1].At <= pc-d.PC {
		k++
	}
	rows[k].At, rows[k].Saved, rows[k].Ret = 0, false, 0
	return rows[k]
}

const throwing = `
#include <cstdio>
#include <exception>
#include <stdexcept>
#define NI __attribute__((noinline))
struct G { int n; ~G() { printf("~%d\n", n); } };
NI void deep(int n) { if (!n) throw std::runtime_error("boom"); G g{n}; deep(n - 1); }
NI int catcher(int n) { try { deep(n); } catch (std::exception &e) { printf("caught %s\n", e.what()); return 1; } return 0; }
NI void thrower() { throw 3; }
NI void passer() { thrower(); asm volatile(""); }
NI void at_once() { try { thrower(); } catch (int x) { printf("at once %d\n", x); } }
NI void nothing() noexcept { passer(); }
int main(int argc, char **) {
	int r = catcher(3);
	try { passer(); } catch (int x) { printf("%d\n", x); }
	at_once();
	std::set_terminate([] { puts("terminated"); fflush(stdout); _Exit(7); });
	if (argc == 1) nothing();
	return r;
}
`

// callsOf are the calls in the trace that a program has left in a directory.
func callsOf(t *testing.T, dir string, p *patch.Plan) map[string]uint64 {
	t.Helper()
	tr, err := trace.Open(filepath.Join(dir, "fentry.data"))
	if err != nil {
		t.Fatalf("no trace: %v", err)
	}
	defer tr.Close()
	rows, err := tr.Report(trace.ReportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	calls, byID := map[string]uint64{}, names(p)
	for _, r := range rows {
		calls[byID[r.Func.ID]] = r.Calls
	}
	return calls
}

// Exceptions pass functions whose calls are displaced, are caught in them, and end where nothing may be thrown.
func TestExceptionsDisplaced(t *testing.T) {
	for _, on := range targets {
		builds := []string{"-O0", "-O1", "-O2 -fcf-protection", "-O3", "-Os -no-pie", "-O2 -static", "-O2 -static-pie -s"}
		if on == onARM64 {
			builds = append(builds, "-mbranch-protection=standard", "-O0 -mbranch-protection=standard", "clang -O0", "clang -Oz",
				"clang -O3 -mbranch-protection=standard")
			builds[2] = "-O2 -mbranch-protection=bti"
		} else if runtime.GOARCH != "amd64" {
			continue
		}
		for _, flags := range builds {
			t.Run(on.name+"/"+flags, func(t *testing.T) {
				t.Parallel()
				bin := on.compile(t, "t.cpp", throwing, strings.Fields(flags)...)
				want := output(t, on, bin)
				for _, o := range []patch.Options{{}, {Tracer: patch.Function}} {
					for _, find := range []record.Options{{}, {LibraryCalls: true}, {Plain: record.PlainNone, LibraryCalls: true}} {
						if find.Plain == record.PlainNone && strings.Contains(flags, "-static") {
							continue // there are no calls into libraries
						}
						patched := filepath.Join(filepath.Dir(bin), "patched")
						p := patchPlain(t, read(t, bin), o, find, patched)
						if got := output(t, on, patched); got != want {
							t.Errorf("%v, %v, %d functions:\n%s\nwant\n%s", o.Tracer, find, p.Traced(), got, want)
						}
					}
				}
			})
		}
	}
}

// output is what a program prints, with its status.
func output(t *testing.T, on *target, bin string) string {
	t.Helper()
	cmd := on.command(t, bin)
	cmd.Dir = filepath.Dir(bin)
	out, err := cmd.CombinedOutput()
	return fmt.Sprintf("%s%v", out, err)
}
