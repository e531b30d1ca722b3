package trace

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// nestingTrace is a trace of some tasks whose calls nest: nearly always, if wild is set.
func nestingTrace(t *testing.T, rng *rand.Rand, events int, wild bool) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, Header{Counter: 1000, CounterHz: 3e9, ChunkSize: minChunkSize})
	if err != nil {
		t.Fatal(err)
	}
	deepest, fns := 3+rng.IntN(40), 1+rng.IntN(8)
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
	}
	return b.Bytes()
}

// TestPaths compares graphs of traces whose calls nest: with the index's sums they are what they are without.
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
			if rng.IntN(8) == 0 {
				g.Calls.Threshold = rng.Int64N(300)
			}
			if rng.IntN(3) == 0 {
				c := randomCalls(rng)
				g.Calls.Roots, g.Calls.Without = c.Roots, c.Without
			}
			g.PerTask, g.PerProcess = rng.IntN(4) == 0, rng.IntN(4) == 0
			g.Workers = 1 // which paths there is room for depends on the order of tasks
			want := seeTree(t, plain, g)
			g.Tasks = inTrace(indexed, g.Tasks)
			if have := seeTree(t, indexed, g); have != want {
				t.Fatalf("seed %d, %+v, %+v: %s", seed, sizes, g, cmp.Diff(want, have))
			}
		}
	}
}

// TestPathsRead: a graph of everything, or of a window, decodes next to nothing but the window's ends.
func TestPathsRead(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	events := nestingTrace(t, rng, 100_000, false)
	plain, indexed := withBlocks(t, events, blockSizes{1000, 0, 4, 1 << 20})
	last := int64(0)
	for _, k := range plain.Tasks {
		last = max(last, plain.Clock.Time(k.chunks[len(k.chunks)-1].counter))
	}
	for name, g := range map[string]GraphOptions{
		"all": {}, "recursion": {KeepRecursion: true}, "tasks": {PerTask: true},
		"a function": {Calls: Calls{Match: func(fn FuncID) bool { return fn.ID == 2 }}},
		"inside":     {Calls: Calls{Roots: func(fn FuncID) bool { return fn.ID == 2 }}},
		"without":    {Calls: Calls{Without: func(fn FuncID) bool { return fn.ID == 1 }}},
		"a window":   {From: last / 10, To: last - last/10},
	} {
		n := readFor(t, name, plain, indexed, func(tr *Trace) string { return seeTree(t, tr, g) })
		if n > len(events)/10 { // a block is decoded where two calls are alike, too
			t.Errorf("%s: %d bytes were read of %d", name, n, len(events))
		}
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
		p.leave(&frame{self: 5}, depth, uint64(40-10*depth), ending(depth%3))
	}
	f.Add(p.append(numbering(0), nil), true)
	f.Add(p.append(numbering(0), nil), false)
	f.Fuzz(func(t *testing.T, body []byte, keep bool) {
		o := &GraphOptions{KeepRecursion: keep, MaxDepth: 9, MaxNodes: 40}
		g := &grapher{o: o, tree: newCallTree(o, 0)}
		err := g.addPaths(body, []uint32{0}, nothingHidden{})
		if len(g.tree.nodes) > o.MaxNodes+1 || err == nil && g.tree.full {
			t.Errorf("%d nodes, %v", len(g.tree.nodes), err)
		}
		for i := range g.tree.nodes {
			if d := g.tree.nodes[i].depth; int(d) > o.MaxDepth {
				t.Errorf("depth %d", d)
			}
		}
	})
}
