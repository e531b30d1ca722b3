package patch_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/record/moves"
)

// ocamlPlan plans a program of OCaml's.
func ocamlPlan(t *testing.T, o patch.Options) ([]byte, *patch.Plan) {
	t.Helper()
	testtool.Need(t, "ocamlopt")
	if runtime.GOARCH != "amd64" {
		t.Skip("ocamlopt makes other code")
	}
	source, err := os.ReadFile("../e2e/testdata/ocaml/work.ml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "work.ml"), source, 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("ocamlopt", "-o", "work", "work.ml")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "work"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPlanWith(b, o, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return b, p
}

// TestOCamlFrames: at each instruction that has moved, and at each of an event, unwinders find the callers that they find at the
// original's instruction. What a patched file was made from can be had again.
func TestOCamlFrames(t *testing.T) {
	original, p := ocamlPlan(t, patch.Options{})
	image, err := p.Image()
	if err != nil {
		t.Fatal(err)
	}
	table, err := ehframe.Read(parse(t, original))
	if err != nil {
		t.Fatal(err)
	}
	old, added, patched := ehframe.NewIndex(table), framesOf(t, image), parse(t, image)
	n := 0
	for i := range p.Functions {
		fn := &p.Functions[i]
		if fn.Kind != record.KindOCaml || fn.ID == 0 {
			continue
		}
		for k := range fn.Moves.Runs {
			n += checkRun(t, fn, &fn.Moves.Runs[k], parse(t, original), patched, old, added)
		}
	}
	if t.Logf("%d instructions", n); n < 5000 {
		t.Errorf("%d instructions have moved", n)
	}
	if back, err := patch.Undo(image); err != nil || !bytes.Equal(back, original) {
		t.Errorf("undo: %v, %d bytes", err, len(back))
	}
}

// checkRun compares rows of one run of instructions, and returns how many it has.
func checkRun(t *testing.T, fn *patch.Func, r *moves.Run, original, patched *elfio.File, old, added *ehframe.Index) (n int) {
	t.Helper()
	to := jumpsTo(t, patched, r.Addr)
	if to == 0 {
		return 0 // only branches lead there
	}
	same := func(pc, at uint64, length int) {
		a, ok1 := old.Find(pc)
		b, ok2 := added.Find(at)
		if !ok1 || !ok2 {
			t.Fatalf("%s: no entry for %#x or its copy at %#x", fn.Name, pc, at)
		}
		for o := range length {
			if want, got := rowAt(t, &a, pc), rowAt(t, &b, at+uint64(o)); want != got {
				t.Fatalf("%s: %#x: %+v, and at its copy %#x: %+v", fn.Name, pc, want, at+uint64(o), got)
			}
		}
	}
	for o := 0; o < r.Len; n++ {
		pc := r.Addr + uint64(o)
		for _, e := range r.Events {
			if e.At == o {
				same(pc, to, amd64.PlaceEventLen)
				to += amd64.PlaceEventLen
			}
		}
		b, err := original.Bytes(pc, r.Len-o)
		if err != nil {
			t.Fatal(err)
		}
		in, err := amd64.Decode(b)
		if err != nil {
			t.Fatalf("%s: %#x: %v", fn.Name, pc, err)
		}
		same(pc, to, 1)
		to += uint64(amd64.RelocatedLen(in))
		o += in.Len
	}
	return n
}

// jumpsTo returns where jumps lead from an address; 0: there are none.
func jumpsTo(t *testing.T, f *elfio.File, addr uint64) uint64 {
	t.Helper()
	for first := true; ; first = false {
		b, err := f.Bytes(addr, amd64.JumpShortLen)
		if err != nil {
			t.Fatal(err)
		}
		if b[0] != 0xeb && b[0] != 0xe9 {
			if first {
				return 0
			}
			return addr
		}
		if b, err = f.Bytes(addr, map[byte]int{0xeb: amd64.JumpShortLen, 0xe9: amd64.JumpLen}[b[0]]); err != nil {
			t.Fatal(err)
		}
		in, err := amd64.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if addr = in.Target(addr); b[0] == 0xe9 {
			return addr
		}
	}
}
