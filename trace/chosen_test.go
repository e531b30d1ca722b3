package trace

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// seeRows is a report in text.
func seeRows(t testing.TB, tr *Trace, o ReportOptions) string {
	t.Helper()
	rows, err := tr.Report(o)
	if err != nil {
		t.Fatal(err)
	}
	var s strings.Builder
	for _, r := range rows {
		r.Hist = nil
		if r.Task != nil {
			fmt.Fprintf(&s, "%d ", r.Task.Index)
		}
		r.Task = nil
		fmt.Fprintf(&s, "%+v\n", r)
	}
	return s.String()
}

// seeTree is a graph in text.
func seeTree(t testing.TB, tr *Trace, o GraphOptions) string {
	t.Helper()
	root, err := tr.Graph(o)
	if err != nil {
		t.Fatal(err)
	}
	var s strings.Builder
	var visit func(n *Node, depth int)
	visit = func(n *Node, depth int) {
		e := *n
		e.Children, e.Task = nil, nil
		fmt.Fprintf(&s, "%*s%+v\n", depth, "", e)
		for _, c := range n.Children {
			visit(c, depth+1)
		}
	}
	visit(root, 0)
	return s.String()
}

// randomCalls is a random choice of calls.
func randomCalls(rng *rand.Rand) (c Calls) {
	some := func() func(FuncID) bool {
		var set uint32
		for set == 0 {
			set = rng.Uint32() & rng.Uint32() & rng.Uint32()
		}
		return func(fn FuncID) bool { return set>>fn.ID&1 != 0 }
	}
	if rng.IntN(2) == 0 {
		c.Match = some()
	}
	if rng.IntN(2) == 0 {
		c.Roots = some()
	}
	if rng.IntN(2) == 0 {
		c.Threshold = rng.Int64N(1 << rng.IntN(16))
	}
	if rng.IntN(4) == 0 {
		c.Without = some()
	}
	c.Nest = rng.IntN(10) == 0
	return c
}

// TestChosenWithIndex compares reports and graphs of random windows and calls: with an
// index they are what they are without.
func TestChosenWithIndex(t *testing.T) {
	seeds := uint64(10)
	if testtool.Wide() {
		seeds = 2000
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 11))
		plain, indexed := withBlocks(t, wildTrace(t, seed), blockSizes{2 + rng.IntN(500), rng.IntN(4), 4, 1 << 20})
		for _, o := range randomWindows(rng, plain, 9) {
			if rng.IntN(3) == 0 {
				o.From, o.To = 0, 0
			}
			r := ReportOptions{From: o.From, To: o.To, Tasks: o.Tasks, Calls: randomCalls(rng), PerTask: rng.IntN(2) == 0, Waits: true}
			g := GraphOptions{From: o.From, To: o.To, Tasks: o.Tasks, Calls: r.Calls, PerTask: rng.IntN(2) == 0, KeepRecursion: rng.IntN(2) == 0, Waits: true}
			rows, tree := seeRows(t, plain, r), seeTree(t, plain, g)
			r.Tasks, g.Tasks = inTrace(indexed, r.Tasks), inTrace(indexed, g.Tasks)
			if have := seeRows(t, indexed, r); have != rows {
				t.Fatalf("seed %d, %+v: %s", seed, r, cmp.Diff(rows, have))
			}
			if have := seeTree(t, indexed, g); have != tree {
				t.Fatalf("seed %d, %+v: %s", seed, g, cmp.Diff(tree, have))
			}
		}
	}
}

// TestChosenModel compares reports of windows and of chosen calls with what the
// programs know of themselves.
func TestChosenModel(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 5))
		var truth []interval
		dir := buildHeader(t, Header{Counter: 1000, CounterHz: 1e9, ChunkSize: minChunkSize}, func(w *Writer) {
			p := &program{k: w.Task(TaskID{PID: 1, TID: 1, Image: testImage}), rng: rng, now: 1000, functions: 1 + rng.IntN(26)}
			p.run(5000)
			p.finish()
			truth = p.done
		})
		tr := open(t, dir)
		last := int64(0)
		for _, c := range truth {
			last = max(last, int64(c.end)-1000)
		}
		for range 20 {
			from := rng.Int64N(last)
			to := from + 1 + rng.Int64N(last-from)
			threshold := rng.Int64N(1 << rng.IntN(12))
			root := byte('a' + rng.IntN(26))
			o := ReportOptions{From: from, To: to, Calls: Calls{
				Threshold: threshold, Roots: func(fn FuncID) bool { return fn.ID == uint32(root-'a'+1) },
			}}
			type row struct {
				calls uint64
				sum   int64
			}
			want, have := map[uint32]row{}, map[uint32]row{}
			for _, c := range truth {
				start, end := int64(c.start)-1000, int64(c.end)-1000
				cut := min(end, to)
				if start > to || end < from || cut-start < threshold || !strings.Contains(c.path, string(root)) {
					continue
				}
				if start >= max(from, 1) {
					r := want[c.fn]
					want[c.fn] = row{r.calls + 1, r.sum + cut - start}
				}
			}
			rows, err := tr.Report(o)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rows {
				if r.Calls > 0 {
					have[r.Func.ID] = row{r.Calls, r.Sum}
				}
			}
			if d := cmp.Diff(want, have, cmp.AllowUnexported(row{})); d != "" {
				t.Fatalf("seed %d, %d to %d, inside %c, from %d on: %s", seed, from, to, root, threshold, d)
			}
		}
		// Windows that follow each other have all of it.
		whole := seeSelf(t, tr, ReportOptions{})
		parts := map[uint32][2]int64{}
		for from := int64(0); from <= last; {
			to := from + 1 + rng.Int64N(last/5)
			for fn, v := range seeSelf(t, tr, ReportOptions{From: from, To: to}) {
				p := parts[fn]
				parts[fn] = [2]int64{p[0] + v[0], p[1] + v[1]}
			}
			from = to + 1
		}
		for fn, v := range whole {
			if p := parts[fn]; p[0] != v[0] || p[1] > v[1] || p[1] < v[1]-20 {
				t.Errorf("seed %d, function %d: %v, in parts %v", seed, fn, v, p)
			}
		}
	}
}

// seeSelf returns calls and own time of functions.
func seeSelf(t testing.TB, tr *Trace, o ReportOptions) map[uint32][2]int64 {
	rows, err := tr.Report(o)
	if err != nil {
		t.Fatal(err)
	}
	m := map[uint32][2]int64{}
	for _, r := range rows {
		m[r.Func.ID] = [2]int64{int64(r.Calls), r.Self}
	}
	return m
}

// TestSlowest compares the longest calls with those of a list of all calls, with an
// index and without.
func TestSlowest(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 13))
		plain, indexed := withBlocks(t, wildTrace(t, seed), blockSizes{2 + rng.IntN(200), 0, 4, 1 << 20})
		for _, o := range randomWindows(rng, plain, 6) {
			o.Calls = randomCalls(rng)
			o.Calls.Roots, o.Calls.Without, o.Calls.Nest, o.Open = nil, nil, false, false
			n := 1 + rng.IntN(30)
			// All of them, sorted.
			all := &slowList{n: 1 << 30, calls: &o.Calls}
			walk := o
			walk.Calls = Calls{}
			if err := plain.Walk(walk, all.event); err != nil {
				t.Fatal(err)
			}
			want := all.list[:min(n, len(all.list))]
			for _, tr := range []*Trace{plain, indexed} {
				o.Tasks = inTrace(tr, o.Tasks)
				have, err := tr.Slowest(n, o)
				if err != nil {
					t.Fatal(err)
				}
				if seeCalls(want) != seeCalls(have) {
					t.Fatalf("seed %d, %d of %+v: %s", seed, n, o, cmp.Diff(seeCalls(want), seeCalls(have)))
				}
			}
		}
	}
}

func seeCalls(calls []Call) string {
	var s strings.Builder
	for _, c := range calls {
		fmt.Fprintf(&s, "%d ", c.Task.Index)
		c.Task = nil
		fmt.Fprintf(&s, "%+v\n", c)
	}
	return s.String()
}
