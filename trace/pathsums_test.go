package trace

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// nestingTrace is a trace of some tasks whose calls nest: nearly always, if wild is set. Of some it says when they
// were off a processor.
func nestingTrace(t *testing.T, rng *rand.Rand, events int, wild bool) []byte {
	t.Helper()
	return nestingCalls(t, rng, events, wild, 3+rng.IntN(40), 1+rng.IntN(8))
}

// nestingCalls is a trace as nestingTrace, of so many functions whose calls are not deeper than that.
func nestingCalls(t *testing.T, rng *rand.Rand, events int, wild bool, deepest, fns int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, Header{Counter: 1000, CounterHz: 3e9, ChunkSize: minChunkSize})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1 + rng.IntN(3) {
		k, now := w.Task(TaskID{PID: 1 + i/2, TID: 1 + i, Key: uint64(i), Image: testImage}), uint64(1000)
		var open []uint32
		for range events {
			now += rng.Uint64N(50)
			fn := uint32(1 + rng.IntN(fns))
			n := len(open)
			switch kind := rng.IntN(3000); {
			case kind < 20:
				k.Flush() // a short chunk, so that there are many blocks
			case kind < 25:
				k.Comm(now, "c")
			case kind < 45 && n > 2: // an exit further out, without a word
				k.Exit(now, open[n-3])
				open = open[:n-3]
			case kind < 60:
				k.SysEnter(now, uint64(fn), nil)
				k.SysExit(now+1, -uint64(fn&1))
			case kind < 61 && wild:
				k.Stack(now, 7)
				k.Enter(now, fn)
				k.Stack(now+1, 0)
			case kind < 63 && wild && n > 0:
				k.Resync(now, 1)
				open = open[:n-1]
			case n == 0 || n < deepest && rng.IntN(2) == 0:
				k.Enter(now, fn)
				open = append(open, fn)
			default:
				k.Exit(now, open[n-1])
				if open = open[:n-1]; rng.IntN(5) == 0 { // a tail call
					k.Enter(now, fn)
					open = append(open, fn)
				}
			}
		}
		if err := k.Flush(); err != nil {
			t.Fatal(err)
		}
		if rng.IntN(2) == 0 {
			from := 1000 + rng.Uint64N(now)
			off := []Off{{From: from, To: from + rng.Uint64N(5000), Unknown: rng.IntN(3) == 0}}
			if err := w.WriteSched(k.id, rng.Uint64N(1000), now+1, off); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b.Bytes()
}

// TestPaths compares graphs, and reports of calls inside of others, of traces whose calls nest: with the index's sums
// they are what they are without.
func TestPaths(t *testing.T) {
	seeds := []uint64{3447} // short calls take the room that there is for nodes
	n := uint64(30)
	if testtool.Wide() {
		n = 5000
	}
	for seed := range n {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 23))
		sizes := blockSizes{2 + rng.IntN(300), rng.IntN(4), 1 + rng.IntN(9), 1 << 20}
		plain, indexed := withBlocks(t, nestingTrace(t, rng, 3000, seed%2 == 1), sizes)
		comparePaths(t, rng, plain, indexed, fmt.Sprintf("seed %d, %+v", seed, sizes))
	}
}

// comparePaths compares random graphs, and reports of calls inside of others.
func comparePaths(t *testing.T, rng *rand.Rand, plain, indexed *Trace, name string) {
	t.Helper()
	for i, o := range randomWindows(rng, plain, 12) {
		g := GraphOptions{From: o.From, To: o.To, Tasks: o.Tasks, KeepRecursion: rng.IntN(2) == 0}
		if i%3 == 0 {
			g.From, g.To = 0, 0
		}
		if rng.IntN(4) == 0 {
			g.MaxDepth = 1 + rng.IntN(6)
		}
		if rng.IntN(6) == 0 {
			g.MaxNodes = 1 + rng.IntN(60)
		}
		if rng.IntN(3) == 0 {
			g.Calls = Calls{Match: randomCalls(rng).Match}
		}
		if rng.IntN(4) == 0 {
			g.Calls.Threshold = rng.Int64N(1 << rng.IntN(14))
		}
		g.Waits = rng.IntN(3) == 0
		if rng.IntN(3) == 0 {
			c := randomCalls(rng)
			g.Calls.Roots, g.Calls.Without = c.Roots, c.Without
		}
		g.PerTask, g.PerProcess = rng.IntN(4) == 0, rng.IntN(4) == 0
		g.Workers = 1 // which paths there is room for depends on the order of tasks
		want := seeTree(t, plain, g)
		g.Tasks = inTrace(indexed, g.Tasks)
		if have := seeTree(t, indexed, g); have != want {
			t.Fatalf("%s, %+v: %s", name, g, cmp.Diff(want, have))
		}
		r := ReportOptions{From: g.From, To: g.To, Tasks: o.Tasks, Calls: g.Calls, PerTask: g.PerTask, Waits: g.Waits}
		rows := seeAll(t, plain, r)
		r.Tasks = inTrace(indexed, r.Tasks)
		if have := seeAll(t, indexed, r); have != rows {
			t.Fatalf("%s, %+v: %s", name, r, cmp.Diff(rows, have))
		}
	}
}

// TestPathsRead: a graph of everything, or of a window, and a report of calls inside of others decode next to nothing
// but the window's ends.
func TestPathsRead(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	events := nestingTrace(t, rng, 100_000, false)
	plain, indexed := withBlocks(t, events, blockSizes{1000, 0, 4, 1 << 20})
	last := int64(0)
	for _, k := range plain.Tasks {
		last = max(last, plain.Clock.Time(k.chunks[len(k.chunks)-1].counter))
	}
	of := func(id uint32) func(FuncID) bool { return func(fn FuncID) bool { return fn.ID == id } }
	for name, g := range map[string]GraphOptions{
		"all": {}, "recursion": {KeepRecursion: true}, "tasks": {PerTask: true},
		"a function":  {Calls: Calls{Match: of(2)}},
		"inside":      {Calls: Calls{Roots: of(2)}},
		"without":     {Calls: Calls{Without: of(1)}},
		"a window":    {From: last / 10, To: last - last/10},
		"long":        {Calls: Calls{Threshold: 1000}},
		"long inside": {Calls: Calls{Threshold: 500, Roots: of(2)}},
	} {
		few := func(what string, see func(tr *Trace) string) {
			t.Helper()
			// A block is decoded where two calls are alike, too.
			if n := readFor(t, what+" "+name, plain, indexed, see); n > len(events)/10 {
				t.Errorf("%s, %s: %d bytes were read of %d", what, name, n, len(events))
			}
		}
		few("graph", func(tr *Trace) string { return seeTree(t, tr, g) })
		few("report", func(tr *Trace) string {
			return seeAll(t, tr, ReportOptions{From: g.From, To: g.To, Calls: g.Calls, PerTask: g.PerTask})
		})
	}
}

// FuzzPaths: whatever an index says of paths, a graph stays within its limits, and so does what is counted in it.
func FuzzPaths(f *testing.F) {
	var p runPaths
	fl := newFollower(&orphans{}, 0, 0)
	p.begin(fl)
	for depth, id := range []uint32{1, 2, 1, 3} {
		p.enter(FuncID{ID: id}, depth)
	}
	for depth := 3; depth >= 0; depth-- {
		n := p.leave(&frame{self: 5}, depth)
		p.part(n, uint8(depth/2)).end(&frame{self: 5}, uint64(40-10*depth), true, ending(depth%3))
		p.duration(n, bucket(uint64(40-10*depth)), 1, 100)
	}
	f.Add(p.append(numbering(0), true, nil), true)
	f.Add(p.append(numbering(0), false, nil), false)
	f.Fuzz(func(t *testing.T, body []byte, keep bool) {
		o := &GraphOptions{KeepRecursion: keep, MaxDepth: 9, MaxNodes: 40}
		g := &grapher{o: o, tree: newCallTree(o, 0)}
		run := sumRun{paths: body}
		_, err := run.addPaths(g, []uint32{0}, nothingHidden{}, 0)
		if len(g.tree.nodes) > o.MaxNodes+1 || err == nil && g.tree.full {
			t.Errorf("%d nodes, %v", len(g.tree.nodes), err)
		}
		for i := range g.tree.nodes {
			if d := g.tree.nodes[i].depth; int(d) > o.MaxDepth {
				t.Errorf("depth %d", d)
			}
		}
		for _, least := range []uint64{0, 20} {
			r := newReport(nil)
			_, _ = run.addPaths(r, []uint32{0}, nothingHidden{}, least)
			if len(r.cnts) > len(body) {
				t.Errorf("%d functions", len(r.cnts))
			}
		}
	})
}

// TestPathsRough: exits without entries are no path's; a report of calls inside of others has them nevertheless.
func TestPathsRough(t *testing.T) {
	k, now, written := oneTask(t)
	for i := range uint64(20_000) {
		k.Enter(now, 1)
		k.Enter(now+10, 2)
		if i%5000 == 4999 {
			k.Exit(now+15, 3)
		}
		k.Exit(now+20, 2)
		k.Exit(now+30, 1)
		now += 40
	}
	plain, indexed := withBlocks(t, written(), blockSizes{1000, 0, 4, 1 << 20})
	o := ReportOptions{Calls: Calls{Roots: func(fn FuncID) bool { return fn.ID == 1 }}}
	want := seeAll(t, plain, o)
	if !strings.Contains(want, "NoEntry:4") {
		t.Fatalf("no exits without entries: %s", want)
	}
	if have := seeAll(t, indexed, o); have != want {
		t.Error(cmp.Diff(want, have))
	}
}
