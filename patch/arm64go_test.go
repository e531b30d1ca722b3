package patch_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
)

// TestGoOutOfReach: of a Go program for AArch64 whose code is too far away from what is added, in part, those functions are
// traced that jumps reach.
func TestGoOutOfReach(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	build := exec.Command("go", "build", "-o", path, "../testdata/gostress")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=arm64", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(path)
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
