// Package sample makes traces for the tests of what reads them.
package sample

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/trace"
)

// Image is the id of the program image in the traces.
const Image = trace.ImageID(0xabcd)

// Build makes a trace of what fn writes. Functions have the names, from id 1 on. Counter 1000 is the trace's start, and a
// tick is a nanosecond.
func Build(t testing.TB, names []string, fn func(w *trace.Writer)) *trace.Trace {
	t.Helper()
	h := trace.Header{Counter: 1000, Monotonic: 5e9, Realtime: 17e17, CounterHz: 1e9, Closed: true}
	return BuildOf(t, h, trace.Image{ID: Image, Path: "/bin/prog", BuildID: "beef", Sites: len(names)}, names, fn)
}

// BuildOf is Build with another header, or another program image of the same id.
func BuildOf(t testing.TB, h trace.Header, im trace.Image, names []string, fn func(w *trace.Writer)) *trace.Trace {
	t.Helper()
	dir := t.TempDir()
	var b bytes.Buffer
	w, err := trace.NewWriter(&b, h)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteImage(im); err != nil {
		t.Fatal(err)
	}
	fn(w)
	var sym strings.Builder
	for i, n := range names {
		fmt.Fprintf(&sym, "%d\t%x\t20\t%x\tplain\t%s\n", i+1, 0x401000+64*i, 0x401000+64*i, n)
	}
	files := map[string][]byte{trace.EventsFile: b.Bytes(), Image.String() + trace.SymExt: []byte(sym.String())}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr
}

// Small is a trace with one of everything: recursion, a tail call, a call that is unwound, one without a beginning, one
// without an end, a mark, lost events, another stack, a forked child, a second thread.
func Small(t testing.TB) *trace.Trace {
	return Build(t, []string{"main", "fib", "g;\"h\""}, func(w *trace.Writer) {
		k := w.Task(trace.TaskID{PID: 7, TID: 7, Image: Image, Comm: "prog"})
		k.Start(1000)
		k.Exit(1005, 2)
		k.Enter(1010, 1)
		k.Enter(2020, 2)
		k.Enter(2030, 2)
		k.Exit(3040, 2)
		k.Exit(3050, 2)
		k.Enter(3050, 3) // a tail call
		k.Resync(4060, 1)
		k.Mark(4070, 3, "half\ndone")
		k.Lost(4080, 5)
		k.Stack(5090, 9)
		k.Enter(5100, 3)
		k.Stack(5110, 0)
		k.Enter(5120, 2)
		k.Stack(5130, 9)
		k.Exit(5140, 3)
		k.Stack(5150, 0)
		k.Exit(6160, 2)
		k.End(7170)
		k.Flush()
		c := w.Task(trace.TaskID{PID: 8, TID: 8, Key: 1, ParentPID: 7, ParentTID: 7, Image: Image, Comm: "child"})
		c.Fork(2025)
		c.Enter(2026, 3)
		c.Exit(2027, 3)
		c.Exit(2028, 2)
		c.Flush()
		o := w.Task(trace.TaskID{PID: 7, TID: 9, Key: 2, Image: Image, Comm: "worker \"1\""})
		o.Enter(2000, 3)
		o.Exit(2500, 3)
		o.Flush()
	})
}

// Random is a trace of a few threads that call, return and jump out of up to 12 functions at random.
func Random(t testing.TB, rng *rand.Rand, events int) *trace.Trace {
	names := strings.Fields("main a b c d e f g h i j k")
	return Build(t, names, func(w *trace.Writer) {
		for i := range 1 + rng.IntN(3) {
			k := w.Task(trace.TaskID{PID: 7, TID: 7 + i, Image: Image, Comm: "prog"})
			now := 1000 + rng.Uint64N(500)
			var open []uint32
			for range events {
				now += rng.Uint64N(3000)
				if rng.IntN(100) == 0 {
					k.Flush() // a short chunk
				}
				switch n := len(open); {
				case n > 0 && rng.IntN(200) == 0:
					cut := 1 + rng.IntN(n)
					k.Resync(now, uint64(cut))
					open = open[:n-cut]
				case n == 0 || n < 12 && rng.IntN(2) == 0:
					fn := uint32(1 + rng.IntN(len(names)))
					k.Enter(now, fn)
					open = append(open, fn)
				default:
					k.Exit(now, open[n-1])
					open = open[:n-1]
				}
			}
			k.Flush()
		}
	})
}
