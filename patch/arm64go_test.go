package patch_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
)

// goProgram builds a Go program for a machine, and finds what can be traced of it.
func goProgram(t *testing.T, machine, source string) (*elfio.File, []record.Site) {
	t.Helper()
	b, err := os.ReadFile(testtool.Go(t, machine, source))
	if err != nil {
		t.Fatal(err)
	}
	f, err := elfio.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	sites, err := record.Find(f, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return f, sites
}

// TestGoManyReturns: what is added to a Go program grows with a function's returns, not with their square, and on AArch64
// a function that is too large for its own branches is left alone.
func TestGoManyReturns(t *testing.T) {
	const returns = 12000
	var b strings.Builder
	b.WriteString("package main\n\nfunc main() { println(many(len(\"abc\")), few(1)) }\n\n" +
		"//go:noinline\nfunc few(n int) int { return n + 1 }\n\n//go:noinline\nfunc many(n int) int {\n")
	for i := range returns {
		fmt.Fprintf(&b, "\tif n == %d {\n\t\treturn few(n * %d)\n\t}\n", i, i)
	}
	b.WriteString("\treturn n\n}\n")
	source := filepath.Join(t.TempDir(), "many.go")
	if err := os.WriteFile(source, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	for machine, reason := range map[string]record.Reason{"amd64": "", "arm64": record.ReasonOutOfReach} {
		t.Run(machine, func(t *testing.T) {
			f, sites := goProgram(t, machine, source)
			p, err := patch.New(f, sites, patch.Options{})
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(p.Functions, func(fn patch.Func) bool { return fn.Name == "main.many" })
			if i < 0 || p.Functions[i].Reason != reason {
				t.Fatalf("main.many is %d of the functions: %v", i, p.Functions[i].Reason)
			}
			out, err := p.Image()
			if err != nil {
				t.Fatal(err)
			}
			var size uint64
			for _, prog := range f.Progs {
				size += prog.Filesz
			}
			const each = 1 << 10 // bytes a return, and the program's other functions
			if most := 3*int(size) + returns*each; len(out) > most {
				t.Errorf("%d bytes become %d", size, len(out))
			}
		})
	}
}

// TestGoOutOfReach: of a Go program for AArch64 whose code is too far away from what is added, in part, those functions are
// traced that jumps reach.
func TestGoOutOfReach(t *testing.T) {
	f, sites := goProgram(t, "arm64", "../testdata/gostress")
	all, err := patch.New(f, sites, patch.Options{Target: patch.Process})
	if err != nil {
		t.Fatal(err)
	}
	var funcs []uint64 // that can be traced
	for i := range all.Functions {
		if fn := &all.Functions[i]; fn.ID != 0 {
			funcs = append(funcs, fn.Func)
		}
	}
	const reach = 128 << 20
	var p *patch.Plan
	at := funcs[len(funcs)-1] + reach
	for err = patch.ErrNoSites; errors.Is(err, patch.ErrNoSites); at -= 1 << 16 { // from where nothing is in reach on
		p, err = patch.New(f, sites, patch.Options{Target: patch.Process, At: at})
	}
	if err != nil {
		t.Fatal(err)
	}
	far := 0
	for i := range p.Functions {
		switch fn := &p.Functions[i]; {
		case fn.Reason == record.ReasonOutOfReach:
			far++
		case fn.ID != 0 && !arm64.Reaches(fn.Func, at+1<<16):
			t.Errorf("%s at %#x is traced", fn.Name, fn.Func)
		}
	}
	if far == 0 || p.Traced() == 0 || far+p.Traced() != len(funcs) {
		t.Errorf("%d functions are traced and %d out of reach, of %d", p.Traced(), far, len(funcs))
	}
}
