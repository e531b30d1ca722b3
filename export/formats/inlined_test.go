package formats

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/sample"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/names"
	"github.com/fentry-dev/fentry/symbol"
	"github.com/fentry-dev/fentry/trace"
)

const inlinedSource = `
__attribute__((noinline)) int leaf(volatile int *x) { return *x; }
static inline __attribute__((always_inline)) int part(volatile int *x)
{
	return leaf(x) + *x; // line 5
}
__attribute__((noinline)) int outer(volatile int *x)
{
	return part(x) * 2; // line 9
}
int main(void) { volatile int x = 0; return outer(&x); }
`

// TestInlined: functions of walked stacks have their places in the source, and those that are inlined are there, in
// formats that have a place for it.
func TestInlined(t *testing.T) {
	testtool.Need(t, "gcc", "protoc")
	tr := inlinedTrace(t)
	file := exported(t, tr, "pprof")
	top := output(t, "go", "tool", "pprof", "-top", "-sample_index=stacks", file)
	if !strings.Contains(top, "part (inline)") {
		t.Errorf("pprof -top shows\n%s", top)
	}
	raw := output(t, "go", "tool", "pprof", "-raw", file)
	for _, want := range []string{
		`stacks/count`, `(?m)^\s+0\s+0\s+2: `,
		`M=2 part \S*inlined\.c:5:0 s=0(\(inlined\))?\s+outer \S*inlined\.c:9:0 s=0`,
	} {
		if !regexp.MustCompile(want).MatchString(raw) {
			t.Errorf("pprof -raw has no %s:\n%s", want, raw)
		}
	}
	out := decodeProto(t, exported(t, tr, "perfetto"))
	for _, s := range []string{`function_name: "outer"`, `function_name: "part"`, "line_number: 5", "line_number: 9"} {
		if !strings.Contains(out, s) {
			t.Errorf("Perfetto's has no %s:\n%s", s, out)
		}
	}
}

// inlinedTrace has a stack, twice, whose innermost caller is in the inlined part of a function.
func inlinedTrace(t *testing.T) *trace.Trace {
	dir := t.TempDir()
	source, prog := filepath.Join(dir, "inlined.c"), filepath.Join(dir, "inlined")
	if err := os.WriteFile(source, []byte(inlinedSource), 0o666); err != nil {
		t.Fatal(err)
	}
	output(t, "gcc", "-O2", "-g", "-no-pie", "-Wl,--build-id=sha1", "-o", prog, source)
	b, err := os.ReadFile(prog)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elfio.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	im := names.Image{BuildID: hex.EncodeToString(f.BuildID()), Paths: []string{prog}}
	frames, err := names.FindFrames(im)
	if err != nil {
		t.Fatal(err)
	}
	defer frames.Close()
	tab, err := symbol.New(f)
	if err != nil {
		t.Fatal(err)
	}
	var inside uint64
	for _, fn := range tab.Funcs() {
		for at := fn.Addr; fn.Name == "outer" && at < fn.Addr+fn.Size && inside == 0; at++ {
			if in := frames.At(at); len(in) == 2 && in[0].Line.Line == 5 {
				inside = at + 1 // as a return address
			}
		}
	}
	if inside == 0 {
		t.Fatal("no address is inside of the inlined function")
	}
	return sample.Build(t, []string{"leaf"}, func(w *trace.Writer) {
		k := w.Task(trace.TaskID{PID: 7, TID: 7, Image: sample.Image, Comm: "prog"})
		file := trace.MappedFile{Address: inside &^ 0xfff, Size: 0x1000, BuildID: im.BuildID, Path: prog}
		k.Mapped(2000, file)
		k.Frames(2000, 1, 0, inside)
		for i := range uint64(2) {
			k.Enter(2000+100*i, 1)
			k.Backtrace(2000+100*i, 1, format.EndOutermost, 1)
			k.Exit(2050+100*i, 1)
		}
		k.Flush()
	})
}
