package patch_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
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
		flags []string
		o     patch.Options
	}{
		{"graph", nil, patch.Options{}},
		{"landing pads", []string{"-fcf-protection", "-O2"}, patch.Options{}},
		{"no frame pointer", []string{"-O1", "-no-pie"}, patch.Options{}},
		{"function", []string{"-O2"}, patch.Options{Tracer: patch.Function}},
		{"profile", []string{"-O1"}, patch.Options{Tracer: patch.Profile}},
		{"static", []string{"-static", "-O1"}, patch.Options{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			bin := onAMD64.compile(t, "n.c", nested, append([]string{"-g"}, c.flags...)...)
			patchPlain(t, read(t, bin), c.o, record.Options{}, bin)
			checkSteps(t, onAMD64, bin)
		})
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
	f, old := parse(t, after), parse(t, before)
	originals, err := ehframe.Read(old)
	if err != nil {
		t.Fatal(err)
	}
	i := f.SectionIndex(".fentry.frames")
	if i < 0 {
		t.Fatalf("%s: no unwind information", path)
	}
	data, err := f.SectionData(i)
	if err != nil {
		t.Fatal(err)
	}
	copies, err := ehframe.Parse(f, data, f.Sections[i].Addr)
	if err != nil {
		t.Fatal(err)
	}
	was, is := ehframe.NewIndex(originals), ehframe.NewIndex(copies)
	for k := range p.Functions {
		fn := &p.Functions[k]
		at, size := p.Moved(fn)
		if at == 0 {
			continue
		}
		a, ok := was.Find(fn.Func)
		b, ok2 := is.Find(at)
		if !ok || !ok2 || b.PC != at || b.Size != uint64(size) || b.LSDA != 0 {
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

func parse(t *testing.T, image []byte) *elfio.File {
	t.Helper()
	f, err := elfio.Parse(image)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// rowAt is what an entry says of an address.
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
	rows[k].At = 0
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

// Exceptions pass functions whose calls are displaced, are caught in them, and end where nothing may be thrown.
func TestExceptionsDisplaced(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the installed g++ is for another machine")
	}
	testtool.Need(t, "g++")
	for _, flags := range []string{"-O0", "-O1", "-O2 -fcf-protection", "-O3", "-Os -no-pie", "-O2 -static", "-O2 -static-pie -s"} {
		t.Run(flags, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			bin := filepath.Join(dir, "throwing")
			cmd := exec.Command("g++", append(strings.Fields(flags), "-x", "c++", "-o", bin, "-")...)
			cmd.Stdin = strings.NewReader(throwing)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			want := output(t, bin, dir)
			for _, o := range []patch.Options{{}, {Tracer: patch.Function}} {
				for _, find := range []record.Options{{}, {LibraryCalls: true}, {Plain: record.PlainNone, LibraryCalls: true}} {
					if find.Plain == record.PlainNone && strings.Contains(flags, "-static") {
						continue // there are no calls into libraries
					}
					patched := filepath.Join(dir, "patched")
					p := patchPlain(t, read(t, bin), o, find, patched)
					if got := output(t, patched, dir); got != want {
						t.Errorf("%v, %v, %d functions:\n%s\nwant\n%s", o.Tracer, find, p.Traced(), got, want)
					}
				}
			}
		})
	}
}

// output is what a program prints, with its status.
func output(t *testing.T, bin, dir string) string {
	t.Helper()
	cmd := exec.Command(bin)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return fmt.Sprintf("%s%v", out, err)
}
