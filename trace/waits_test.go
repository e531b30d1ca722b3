package trace

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// randomOffs returns times off a processor between two moments, in order.
func randomOffs(rng *rand.Rand, from, to uint64) (offs []Off) {
	for at := from; len(offs) < 700; {
		scale := []uint64{1, 1, 1, 1_000_000}[rng.IntN(4)] // the program sleeps now and then
		o := Off{From: at + rng.Uint64N(2000)*scale}
		o.To, o.Unknown = o.From+rng.Uint64N(1000)*scale, rng.IntN(10) == 0
		if at = o.To; o.To > to {
			return offs
		}
		offs = append(offs, o)
	}
	return offs
}

// A during is what a thread did in a time, for the test to count one by one.
type during struct {
	Off
	none bool // no chunk tells of it
}

// TestWaits compares the parts of totals with those that are added up interval by interval, for random programs whose
// threads are off a processor at random, with recursion, unwound calls, and times of which no chunk tells.
func TestWaits(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 11))
		var truth []interval
		var tasks [][]during
		dir := buildHeader(t, Header{Counter: 1000, CounterHz: 1e9, ChunkSize: minChunkSize}, func(w *Writer) {
			for i := range 2 {
				id := TaskID{PID: 1, TID: 1 + i, Image: testImage, Comm: "t"}
				p := &program{k: w.Task(id), rng: rng, now: 1000, task: i, functions: 3 + rng.IntN(9)}
				for range 30 {
					p.run(rng.IntN(400))
				}
				p.finish()
				truth = append(truth, p.done...)
				var offs []during
				at := uint64(0)
				for range 6 {
					from := at + rng.Uint64N(3000)
					part := randomOffs(rng, from, from+rng.Uint64N(50_000_000_000))
					to := from + rng.Uint64N(1000)
					if len(part) > 0 {
						to = part[len(part)-1].To
					}
					if err := w.WriteSched(id, from, to, part); err != nil {
						t.Fatal(err)
					}
					offs = append(offs, during{Off{at, from, true}, true})
					for _, o := range part {
						offs = append(offs, during{o, false})
					}
					at = to
				}
				tasks = append(tasks, append(offs, during{Off{at, 1 << 62, true}, true}))
			}
		})
		tr := open(t, dir)
		for _, window := range [][2]int64{{0, 0}, {5_000_000_000, 90_000_000_000}} {
			checkWaits(t, fmt.Sprintf("seed %d, %v", seed, window), tr, truth, tasks, window)
		}
	}
}

// checkWaits compares reports and graphs with what calls and offs say.
func checkWaits(t *testing.T, what string, tr *Trace, truth []interval, offs [][]during, window [2]int64) {
	t.Helper()
	from, to := uint64(0), uint64(1<<62)
	if window[1] != 0 {
		from, to = uint64(window[0])+1000, uint64(window[1])+1000
	}
	type parts struct{ wait, unknown int64 }
	want := map[FuncID]parts{}
	for _, u := range unions(truth) {
		p := want[FuncID{0, u.fn}]
		for _, o := range offs[u.task] {
			lo, hi := max(u.start, o.From, from), min(u.end, o.To, to)
			switch {
			case lo >= hi:
			case o.Unknown:
				p.unknown += int64(hi - lo)
			default:
				p.wait += int64(hi - lo)
			}
		}
		want[FuncID{0, u.fn}] = p
	}
	rows, err := tr.Report(ReportOptions{Waits: true, From: window[0], To: window[1]})
	if err != nil {
		t.Fatal(err)
	}
	some := false
	for _, s := range rows {
		w := want[s.Func]
		if s.CPU+s.Wait+s.Unknown != s.Total || s.CPU < 0 || s.Wait != w.wait || s.Unknown != w.unknown {
			t.Fatalf("%s: %s: %d on a processor, %d off it, %d unknown of %d; want %+v",
				what, s.Name, s.CPU, s.Wait, s.Unknown, s.Total, w)
		}
		some = some || s.Wait > 0 && s.Unknown > 0 && s.CPU > 0
	}
	if !some {
		t.Errorf("%s: no function has all three parts", what)
	}
	root, err := tr.Graph(GraphOptions{Waits: true, KeepRecursion: true, From: window[0], To: window[1]})
	if err != nil {
		t.Fatal(err)
	}
	var check func(n *Node)
	check = func(n *Node) {
		var wait, unknown int64
		for _, k := range n.Children {
			check(k)
			wait, unknown = wait+k.Wait, unknown+k.Unknown
		}
		if n.CPU+n.Wait+n.Unknown != n.Total || n.CPU < 0 || wait > n.Wait || unknown > n.Unknown {
			t.Fatalf("%s: graph: %s: %d, %d, %d of %d, inside %d, %d", what, n.Name, n.CPU, n.Wait,
				n.Unknown, n.Total, wait, unknown)
		}
	}
	check(root)
}

// Chunks that lie one over the other, and entries that are not in order, give numbers that add up, and no endless loop.
func TestDamagedSched(t *testing.T) {
	id := TaskID{PID: 1, TID: 1, Image: testImage}
	dir := buildHeader(t, Header{Counter: 1000, CounterHz: 1e9}, func(w *Writer) {
		k := w.Task(id)
		k.Enter(2000, 1)
		k.Enter(3000, 2)
		k.Exit(4000, 2)
		k.Exit(90000, 1)
		k.Flush()
		for _, offs := range [][]Off{
			{{From: 5000, To: 1}, {From: 1, To: 1 << 63}, {From: 10, To: 20}},
			{{From: 2500, To: 3500}, {From: 2500, To: 3600}},
			{},
		} {
			for _, of := range [][2]uint64{{1000, 80000}, {1000, 3000}, {2999, 1 << 63}, {9, 8}, {0, 0}, {1 << 63, 1<<64 - 1}} {
				if err := w.WriteSched(id, of[0], of[1], offs); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	tr := open(t, dir)
	rows, err := tr.Report(ReportOptions{Waits: true})
	if err != nil || len(rows) != 2 {
		t.Fatal(rows, err)
	}
	for _, s := range rows {
		if s.CPU < 0 || s.Wait < 0 || s.Unknown < 0 || s.CPU+s.Wait+s.Unknown != s.Total {
			t.Errorf("%+v", s)
		}
	}
	if i := slices.IndexFunc(tr.Tasks, func(k *Task) bool { return len(k.sched) == 0 }); i >= 0 {
		t.Errorf("task %d has no chunks", i)
	}
}

// TestWaitsOfRoots: roots of graphs say of waiting what their children do, and without any the same as with some.
func TestWaitsOfRoots(t *testing.T) {
	k, now, written := oneTask(t)
	k.Enter(now, 1)
	k.Exit(now+50, 1)
	unknown, known := &Trace{}, &Trace{}
	events := written()
	for tr, b := range map[*Trace][]byte{unknown: events, known: wildTrace(t, 1)} {
		if err := tr.load(bytes.NewReader(b), int64(len(b)), noNames); err != nil {
			t.Fatal(err)
		}
	}
	nothing := Calls{Match: func(FuncID) bool { return false }}
	for _, o := range []GraphOptions{{}, {PerProcess: true}, {PerTask: true}, {Calls: nothing}, {From: 1 << 60, PerTask: true}, {From: 1 << 60}} {
		o.Waits = true
		root, err := unknown.Graph(o)
		if err != nil {
			t.Fatal(err)
		}
		if root.CPU != -1 || root.Wait != -1 || root.Unknown != -1 {
			t.Errorf("%+v: %d, %d and %d, where nothing is known", o, root.CPU, root.Wait, root.Unknown)
		}
		if root, err = known.Graph(o); err != nil {
			t.Fatal(err)
		}
		var sum Node
		for _, c := range root.Children {
			sum.Total, sum.CPU, sum.Wait, sum.Unknown = sum.Total+c.Total, sum.CPU+c.CPU, sum.Wait+c.Wait, sum.Unknown+c.Unknown
		}
		if sum.Total != root.Total || sum.CPU != root.CPU || sum.Wait != root.Wait || sum.Unknown != root.Unknown {
			t.Errorf("%+v: the root has %+v, its children %+v", o, root, sum)
		}
	}
}
