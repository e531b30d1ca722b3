package ftrace

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/trace"
)

const testImage = trace.ImageID(0xabcd)

// build makes a trace whose functions have the given names, ids from 1. One
// tick is one ns; the trace starts at counter 1000 and CLOCK_MONOTONIC 12 s.
func build(t testing.TB, names string, fn func(w *trace.Writer)) *trace.Trace {
	t.Helper()
	dir := t.TempDir()
	var b bytes.Buffer
	w, err := trace.NewWriter(&b, trace.Header{Counter: 1000, Monotonic: 12e9, CounterHz: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteImage(trace.Image{ID: testImage, Path: "/bin/worker"}); err != nil {
		t.Fatal(err)
	}
	fn(w)
	if err := os.WriteFile(filepath.Join(dir, trace.EventsFile), b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	var sym strings.Builder
	for i, n := range strings.Fields(names) {
		fmt.Fprintf(&sym, "%d\t%x\t20\t%x\tfentry-call\t%s\n", i+1, 0x401000+64*i, 0x401004+64*i, n)
	}
	if err := os.WriteFile(filepath.Join(dir, testImage.String()+trace.SymExt), []byte(sym.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	if len(tr.Problems) > 0 {
		t.Fatal(tr.Problems)
	}
	return tr
}

func graphText(t testing.TB, tr *trace.Trace, o GraphOptions) string {
	t.Helper()
	var b bytes.Buffer
	g := NewGraph(&b, tr, o)
	if err := tr.Walk(trace.WalkOptions{}, g.Event); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func check(t *testing.T, have, want string) {
	t.Helper()
	want = strings.TrimPrefix(want, "\n")
	if d := cmp.Diff(strings.Split(want, "\n"), strings.Split(have, "\n")); d != "" {
		t.Error(d)
	}
}

// worker is one task with one id per function: main_loop 1, read_block 2.
var worker = trace.TaskID{PID: 4711, TID: 4711, Image: testImage, Comm: "worker"}

// TestGraph is the example of the kernel's documentation of the format.
func TestGraph(t *testing.T) {
	tr := build(t, "main_loop read_block", func(w *trace.Writer) {
		k := w.Task(worker)
		k.Enter(1000, 1)
		k.Enter(2000, 2)
		k.Exit(4047, 2)
		k.Exit(154809, 1)
		k.Flush()
	})
	check(t, graphText(t, tr, GraphOptions{}), `
# tracer: function_graph
#
# CPU  DURATION                  FUNCTION CALLS
# |     |   |                     |   |   |   |
 0)               |  main_loop() {
 0)   2.047 us    |    read_block();
 0) ! 153.809 us  |  }
`)
}

// TestNumbers covers every digit boundary of the duration column.
func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		ns   int64
		want string // mark, number, unit and filling
	}{
		{0, "  0.000 us    |  "},
		{1, "  0.001 us    |  "},
		{208, "  0.208 us    |  "},
		{999, "  0.999 us    |  "},
		{1_000, "  1.000 us    |  "},
		{9_999, "  9.999 us    |  "},
		{10_000, "  10.000 us   |  "},
		{10_001, "+ 10.001 us   |  "},
		{99_999, "+ 99.999 us   |  "},
		{100_000, "+ 100.000 us  |  "},
		{100_001, "! 100.001 us  |  "},
		{999_999, "! 999.999 us  |  "},
		{1_000_000, "! 1000.000 us |  "},
		{1_000_001, "# 1000.001 us |  "},
		{1_250_017, "# 1250.017 us |  "},
		{9_999_999, "# 9999.999 us |  "},
		{10_000_000, "# 10000.00 us |  "},
		{10_000_001, "* 10000.00 us |  "},
		{20_481_339, "* 20481.33 us |  "},
		{99_999_999, "* 99999.99 us |  "},
		{100_000_000, "* 100000.0 us |  "},
		{100_000_001, "@ 100000.0 us |  "},
		{204_800_799, "@ 204800.7 us |  "},
		{999_999_999, "@ 999999.9 us |  "},
		{1_000_000_000, "@ 1000000 us |  "},
		{1_000_000_001, "$ 1000000 us |  "},
		{2_048_003_999, "$ 2048003 us |  "},
		{99_999_999_999, "$ 99999999 us |  "},
		{100_000_000_000, "$ 100000000 us |  "},
	} {
		g := &Graph{}
		if have := string(g.duration(nil, c.ns)); have != fill(c.want) {
			t.Errorf("%d ns: %q, want %q", c.ns, have, fill(c.want))
		}
	}
}

// fill is the rule that number and unit take 12 columns where they can.
func fill(s string) string {
	i := strings.Index(s, " us ")
	num := s[2:i]
	return s[:2] + num + " us " + strings.Repeat(" ", max(0, 8-len(num))) + "|  "
}
