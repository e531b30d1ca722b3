package trace

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/format"
)

// goTrace writes a trace of a Go program, by two threads.
func goTrace(t *testing.T, fn func(a, b *TaskWriter)) *Trace {
	t.Helper()
	var buf bytes.Buffer
	w, err := NewWriter(&buf, Header{Counter: 1000, CounterHz: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	im := appendChunkHeader(nil, ChunkImage, TaskID{PID: 1, TID: 1, Image: testImage}, 0, 1000, 0)
	im = append(im, "path=/x\x00nsites=10\x00stacks=goroutines\x00park=10\x00"...)
	if _, err := w.WriteChunk(append(im, make([]byte, -len(im)&7)...)); err != nil {
		t.Fatal(err)
	}
	a := w.Task(TaskID{PID: 1, TID: 1, Image: testImage, Comm: "first"})
	b := w.Task(TaskID{PID: 1, TID: 2, Image: testImage, Comm: "second"})
	fn(a, b)
	for _, k := range []*TaskWriter{a, b} {
		if err := k.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	return open(t, eventsFile(t, buf.Bytes()))
}

// TestGoroutines follows a goroutine from thread to thread: its calls, and those inside, are as if there was only one.
// The first thread gets it back without having recorded anything else meanwhile, and so without a record of it.
func TestGoroutines(t *testing.T) {
	const g = format.GoroutineStack
	tr := goTrace(t, func(a, b *TaskWriter) {
		a.Enter(1001, 9) // on the thread's own stack
		a.Exit(1002, 9)
		a.Stack(1010, g|7)
		a.Enter(1011, 1)
		a.Enter(1012, 2)
		b.Stack(1020, g|8)
		b.Enter(1021, 3)
		b.Exit(1022, 3)
		b.Stack(1030, g|7)
		b.Exit(1031, 2)
		b.Enter(1032, 4)
		a.Exit(1041, 4)
		a.Enter(1042, 5)
		a.Exit(1043, 5)
		a.Exit(1044, 1)
		a.End(1050)
		b.Stack(1060, g|8)
		b.Enter(1061, 6)
		b.Exit(1063, 6)
		b.End(1070)
	})
	var got []string
	err := tr.Walk(WalkOptions{}, func(ev *Event) error {
		if ev.Kind == Exit {
			got = append(got, fmt.Sprintf("%s/%d %d depth %d: %d", ev.Task.Number(), ev.Thread, ev.Func.ID, ev.Depth, ev.Dur))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"1/0 9 depth 0: 1", "g8/2 3 depth 0: 1", "g7/2 2 depth 1: 19", "g7/1 4 depth 1: 9", "g7/1 5 depth 1: 1",
		"g7/1 1 depth 0: 33", "g8/2 6 depth 0: 2",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("ends of calls (-want +got):\n%s", d)
	}
	if k := tr.Goroutines(7); len(k) != 1 || k[0].Goroutine != 7 || k[0].PID != 1 {
		t.Errorf("goroutine 7: %v", k)
	}
	if last := tr.LastThread(); last != 2 {
		t.Errorf("the last thread that runs goroutines is %d", last)
	}
	if k := tr.TaskByTID(7); len(k) != 0 {
		t.Errorf("a goroutine is taken for a thread: %v", k)
	}
	if ok, err := tr.MakeIndex(IndexOptions{}); ok || err != nil {
		t.Errorf("an index has been made: %v, %v", ok, err)
	}
}

// TestGoroutinesMany changes between goroutines at every event, over several chunks of two threads.
func TestGoroutinesMany(t *testing.T) {
	const n, events = 500, 40000
	tr := goTrace(t, func(a, b *TaskWriter) {
		for i := range uint64(events) {
			k := a
			if i%3 == 0 {
				k = b
			}
			at := 1000 + 10*i
			k.Stack(at, format.GoroutineStack|(i%n+1))
			if i/n%2 == 0 {
				k.Enter(at+1, uint32(i%7+1))
			} else {
				k.Exit(at+1, uint32((i-n)%7+1))
			}
		}
	})
	rows, err := tr.Report(ReportOptions{PerTask: true})
	if err != nil {
		t.Fatal(err)
	}
	calls := uint64(0)
	for _, r := range rows {
		calls += r.Calls
		if r.Min != 10*n || r.Max != 10*n {
			t.Fatalf("%v: a call took %d to %d, want %d", r.Task, r.Min, r.Max, 10*n)
		}
	}
	if calls != events/2 || len(tr.Tasks) != n {
		t.Errorf("%d calls of %d goroutines, want %d of %d", calls, len(tr.Tasks), events/2, n)
	}
}

// TestGoroutinesIndex: with an index in memory, walks, reports, the slowest calls and outlines of goroutines are what they
// are without.
func TestGoroutinesIndex(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 21))
		write := func(a, b *TaskWriter) {
			const n = 9
			rng := rand.New(rand.NewPCG(seed, 22))
			var open [n + 1][]uint32
			on := [2]uint64{} // the goroutines of the threads
			at := uint64(1000)
			for range 20_000 {
				i := rng.IntN(2)
				k := []*TaskWriter{a, b}[i]
				if g := 1 + rng.Uint64N(n); on[i] == 0 || rng.IntN(20) == 0 && g != on[1-i] {
					at += rng.Uint64N(5)
					k.Stack(at, format.GoroutineStack|g)
					on[i] = g
				}
				at += 1 + rng.Uint64N(20)
				o := &open[on[i]]
				const deep = 3 // functions from this one on do not say how deep they are
				if d := len(*o); d > 0 && (rng.IntN(2) == 0 || d == 30) {
					if to := rng.IntN(d) + 1; rng.IntN(10) == 0 && (*o)[to-1] < deep {
						d = to // the others have panicked
					}
					if (*o)[d-1] < deep {
						k.record(at, format.RecDepth, uint64(d)*64|format.DepthEnd)
					}
					k.Exit(at, (*o)[d-1])
					*o = (*o)[:d-1]
				} else {
					fn := 1 + rng.Uint32N(9)
					k.Enter(at, fn)
					*o = append(*o, fn)
					if fn < deep {
						k.record(at, format.RecDepth, uint64(len(*o))*64)
					}
				}
			}
		}
		plain, indexed := goTrace(t, write), goTrace(t, write)
		if ok, err := indexed.MakeIndex(IndexOptions{File: true, Memory: true, Block: 50}); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if _, err := os.Stat(filepath.Join(indexed.Dir, IndexFile)); err == nil {
			t.Error("the index is in a file")
		}
		blocks := 0
		for _, k := range indexed.Tasks {
			if o := indexed.Outline(k, 100); o != nil {
				blocks += len(o.Borders) - 1
			}
		}
		if blocks < 50 {
			t.Errorf("%d blocks", blocks)
		}
		for _, o := range append(randomWindows(rng, plain, 12), WalkOptions{}) {
			want := seeWalk(plain, o)
			o.Tasks = inTrace(indexed, o.Tasks)
			if diff := cmp.Diff(want, seeWalk(indexed, o)); diff != "" {
				t.Fatalf("seed %d, %d to %d: %s", seed, o.From, o.To, diff)
			}
			slow, err := plain.Slowest(20, WalkOptions{From: o.From, To: o.To})
			if err != nil {
				t.Fatal(err)
			}
			have, err := indexed.Slowest(20, WalkOptions{From: o.From, To: o.To})
			if err != nil || seeCalls(slow) != seeCalls(have) {
				t.Fatalf("seed %d, the slowest: %v %s", seed, err, cmp.Diff(seeCalls(slow), seeCalls(have)))
			}
			r := ReportOptions{From: o.From, To: o.To}
			if diff := cmp.Diff(seeRows(t, plain, r), seeRows(t, indexed, r)); diff != "" {
				t.Fatalf("seed %d, the report: %s", seed, diff)
			}
			g := GraphOptions{From: o.From, To: o.To}
			if diff := cmp.Diff(seeTree(t, plain, g), seeTree(t, indexed, g)); diff != "" {
				t.Fatalf("seed %d, the graph: %s", seed, diff)
			}
			long := func(tr *Trace) string { // what a walk for long calls has besides may depend on the index
				var s strings.Builder
				c := Calls{Threshold: int64(1000 + len(o.Tasks)*20_000)}
				err := tr.Walk(WalkOptions{From: o.From, To: o.To, Calls: c}, func(ev *Event) error {
					if ev.Kind != Entry && ev.Dur >= c.Threshold {
						seeEvent(&s, ev)
					}
					return nil
				})
				return fmt.Sprint(s.String(), err)
			}
			if diff := cmp.Diff(long(plain), long(indexed)); diff != "" {
				t.Fatalf("seed %d, %+v, long calls: %s", seed, o, diff)
			}
			r.Calls = randomCalls(rng)
			g.Calls = r.Calls
			if diff := cmp.Diff(seeRows(t, plain, r)+seeTree(t, plain, g), seeRows(t, indexed, r)+seeTree(t, indexed, g)); diff != "" {
				t.Fatalf("seed %d, the report and graph of %+v: %s", seed, r, diff)
			}
		}
	}
}

// TestDepth: where a call says how deep in its stack it is, its end is its own, however many calls of the same function
// are inside that have ended without; and the end of a goroutine is that of all its calls. Without, the innermost one ends.
func TestDepth(t *testing.T) {
	const g, end = format.GoroutineStack, format.DepthEnd
	tr := goTrace(t, func(a, b *TaskWriter) {
		a.Stack(1010, g|7)
		for i := range uint64(6) {
			a.Enter(1010+i, 1)
			a.record(1010+i, format.RecDepth, 100*8*(i+1))
			a.Enter(1010+i, 2)
		}
		a.record(1020, format.RecDepth, 100*8*3|end)
		a.Exit(1020, 1)
		a.Enter(1021, 1)
		a.record(1021, format.RecDepth, 100*8*3)
		b.Stack(1022, g|7)
		b.record(1023, format.RecDepth, 100*8*2|end)
		b.Exit(1023, 1)
		b.record(1024, format.RecDepth, 100*8*9|end) // of a call that is not in the trace
		b.Exit(1024, 3)
		b.record(1030, format.RecDepth, end)
		a.Stack(1040, g|8)
		a.record(1040, format.RecDepth, end) // it calls nothing that is traced
	})
	var got []string
	err := tr.Walk(WalkOptions{}, func(ev *Event) error {
		if ev.Kind != Entry && ev.Func.ID != 2 && ev.Func.ID != 0 {
			got = append(got, fmt.Sprintf("%d %s, depth %d: %d", ev.Func.ID, ev.Kind, ev.Depth, ev.Dur))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"1 unwound, depth 10: 5", "1 unwound, depth 8: 6", "1 unwound, depth 6: 7", "1 exit, depth 4: 8",
		"1 unwound, depth 4: 2", "1 exit, depth 2: 12", "3 exit, depth 2: 0", "1 unwound, depth 0: 20",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("ends (-want +got):\n%s", d)
	}
	if len(tr.Goroutines(8)) != 0 {
		t.Error("a goroutine that calls nothing is a task")
	}
}

// TestParks divides the time of goroutines' calls into running and waiting, whichever threads they are on. What only parks
// is the runtime's, and no task.
func TestParks(t *testing.T) {
	const g, park = format.GoroutineStack, 10
	tr := goTrace(t, func(a, b *TaskWriter) {
		a.Enter(1001, 9) // on the thread's own stack
		a.Exit(1005, 9)
		a.Stack(1010, g|7)
		a.Enter(1010, 1)
		a.Enter(1012, 2)
		a.Enter(1015, park)
		a.Stack(1016, g|8)
		a.Enter(1017, park)
		b.Stack(1020, g|7)
		b.Exit(1035, park)
		b.Exit(1036, 2)
		b.Enter(1040, 2)
		b.Enter(1050, park)
		a.Stack(1060, g|9)
		a.Enter(1060, 3)
		a.Enter(1070, park)
		b.Stack(1080, g|7)
		b.Exit(1081, park)
		b.Exit(1082, 2)
		b.Exit(1090, 1)
		b.End(1100)
		a.End(1100)
	})
	for n, want := range map[uint64]int{7: 1, 8: 0, 9: 1} {
		if got := len(tr.Goroutines(n)); got != want {
			t.Errorf("%d tasks of goroutine %d, want %d", got, n, want)
		}
	}
	rows, err := tr.Report(ReportOptions{Waits: true})
	if err != nil {
		t.Fatal(err)
	}
	got := map[uint32]string{}
	for _, r := range rows {
		got[r.Func.ID] = fmt.Sprintf("%d: %d + %d, cpu %d", r.Total, r.Running, r.Waiting, r.CPU)
	}
	want := map[uint32]string{
		9: "4: 4 + 0, cpu -1", 1: "80: 29 + 51, cpu -1", 2: "66: 15 + 51, cpu -1", 3: "10: 10 + 0, cpu -1", park: "51: 0 + 51, cpu -1",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("times (-want +got):\n%s", d)
	}
	if rows, err = tr.Report(ReportOptions{}); err != nil || rows[0].Running != 0 || rows[0].Waiting != 0 {
		t.Errorf("without being asked: %+v, %v", rows[0], err)
	}
}

// TestGoroutinesStacks: what a chunk says of stacks while one goroutine runs counts for all that its thread goes on with, and
// for nobody in another thread's chunk, whose numbers are its own.
func TestGoroutinesStacks(t *testing.T) {
	const g = format.GoroutineStack
	tr := goTrace(t, func(a, b *TaskWriter) {
		for k, base := range map[*TaskWriter]uint64{a: 0x10000, b: 0x20000} {
			k.Stack(1000+base, g|8)
			k.Mapped(1001+base, MappedFile{Address: base, Size: 0x1000, Path: fmt.Sprintf("/file-%x", base)})
			k.Frames(1002+base, 1, 0, base+0x10, base+0x20)
			k.Stack(1003+base, g|7)
			k.Enter(1004+base, 1)
			k.Backtrace(1005+base, 2, format.EndOutermost, 1)
			k.Exit(1006+base, 1)
			k.Stack(1007+base, g|8)
			k.Frames(1008+base, 3, 1, base+0x30)
			k.Stack(1009+base, g|7)
			k.Enter(1010+base, 1)
			k.Backtrace(1011+base, 3, format.EndOutermost, 1)
			k.Exit(1012+base, 1)
			k.End(1013 + base)
		}
	})
	var got []string
	err := tr.Walk(WalkOptions{}, func(ev *Event) error {
		if ev.Kind != Stacktrace {
			return nil
		}
		line := ev.Task.Number() + " " + ev.Backtrace.End
		for _, f := range ev.Backtrace.Frames {
			file := "?"
			if f.File != nil {
				file = f.File.Path
			}
			line += fmt.Sprintf(" %#x:%s", f.PC, file)
		}
		got = append(got, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"g7 outermost 0x10020:/file-10000 0x10010:/file-10000", "g7 outermost 0x10030:/file-10000 0x10010:/file-10000",
		"g7 outermost 0x20020:/file-20000 0x20010:/file-20000", "g7 outermost 0x20030:/file-20000 0x20010:/file-20000",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("stacks (-want +got):\n%s", d)
	}
}
