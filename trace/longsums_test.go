package trace

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestLongRuns compares graphs, and reports of calls inside of others, of traces that have too many paths for their
// runs, but not for long ones.
func TestLongRuns(t *testing.T) {
	n := uint64(8)
	if testtool.Wide() {
		n = 1000
	}
	long, stretches := 0, 0
	for seed := range n {
		rng := rand.New(rand.NewPCG(seed, 37))
		sizes := blockSizes{10 + rng.IntN(50), 1, 1 + rng.IntN(3), 1 << (12 + rng.IntN(9))}
		plain, indexed := withBlocks(t, nestingCalls(t, rng, 60_000, seed%3 == 1, 2+rng.IntN(2), 1+rng.IntN(2)), sizes)
		for _, k := range indexed.Tasks {
			tb, err := indexed.blocks.states(k)
			if err != nil {
				t.Fatal(err)
			}
			runs, err := indexed.blocks.longRuns(tb)
			if err != nil {
				t.Fatal(err)
			}
			for i := range runs {
				long++
				stretches += len(runs[i].blocks)
			}
		}
		comparePaths(t, rng, plain, indexed, fmt.Sprintf("seed %d, %+v", seed, sizes))
	}
	if long < int(n)/2 || stretches <= long {
		t.Errorf("%d long runs of %d stretches of blocks", long, stretches)
	}
}

// manyPathsTrace is a trace of one task of calls in thousands of paths, in chunks of 64 KiB; of each of them some calls take
// 3 us and more. When the task was off a processor is known.
func manyPathsTrace(t *testing.T, rounds int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, Header{Counter: 1000, CounterHz: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 3))
	k, now := w.Task(TaskID{PID: 1, TID: 1, Image: testImage}), uint64(1000)
	var off []Off
	for i := range rounds {
		path := i % 3000
		for depth := range uint32(4) {
			k.Enter(now, 1+20*depth+uint32(path%20))
			now += 10
			path /= 8
		}
		if now += 50; rng.IntN(6) == 0 {
			now += 5000
		}
		if i%1000 == 0 {
			off = append(off, Off{From: now - 20, To: now - 10})
		}
		path = i % 3000
		var fns []uint32
		for depth := range uint32(4) {
			fns = append(fns, 1+20*depth+uint32(path%20))
			path /= 8
		}
		for _, fn := range slices.Backward(fns) {
			now += 10
			k.Exit(now, fn)
		}
	}
	if err := k.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteSched(k.id, 0, now+1, off); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestLongRunsRead: a graph of calls from 3 us on, and a report of calls inside of others, decode nothing, though the
// runs of the usual index have no parts of their thousands of paths.
func TestLongRunsRead(t *testing.T) {
	testtool.Long(t)
	events := manyPathsTrace(t, 1_500_000)
	plain, indexed := withBlocks(t, events, usualBlocks)
	size := indexed.blocks.r.size
	t.Logf("%d bytes of events, %d of the index", len(events), size)
	if most := int64(len(events) / 8 / 8); size > most {
		t.Errorf("the index has %d bytes, more than %d", size, most)
	}
	of := func(id uint32) func(FuncID) bool { return func(fn FuncID) bool { return fn.ID == id } }
	for name, g := range map[string]GraphOptions{
		"all": {}, "3us": {Calls: Calls{Threshold: 3000}}, "inside": {Calls: Calls{Roots: of(4)}}, "waits": {Waits: true, Calls: Calls{Threshold: 3000}},
	} {
		few := func(what string, see func(tr *Trace) string) {
			t.Helper()
			if n := readFor(t, what+" "+name, plain, indexed, see); n > len(events)/100 {
				t.Errorf("%s, %s: %d bytes were read of %d", what, name, n, len(events))
			}
		}
		few("graph", func(tr *Trace) string { return seeTree(t, tr, g) })
		few("report", func(tr *Trace) string { return seeAll(t, tr, ReportOptions{Calls: g.Calls, Waits: g.Waits}) })
	}
}

// FuzzLong: whatever an index says of a long run, its blocks are the task's, and what is counted of it stays within
// limits.
func FuzzLong(f *testing.F) {
	var l newLong
	l.reset()
	var p runPaths
	p.begin(newFollower(&orphans{}, 0, 0))
	p.enter(FuncID{ID: 1}, 0)
	p.enter(FuncID{ID: 2}, 1)
	for depth := 1; depth >= 0; depth-- {
		n := p.leave(&frame{self: 5}, depth)
		p.part(n, uint8(depth)).end(&frame{self: 5}, uint64(40-10*depth), true, endExit)
		p.duration(n, bucket(uint64(40-10*depth)), 1, 100)
	}
	l.merge(&p, 100)
	l.blocks = [][2]int{{0, 3}, {5, 9}}
	l.waits = map[offKey]offTime{{of: 2, part: 1}: {wait: 7}}
	l.paths.state = pathsGood
	f.Add(l.append(0), uint16(9))
	f.Fuzz(func(t *testing.T, body []byte, blocks uint16) {
		r, err := parseLong(body, int(blocks))
		if err != nil {
			return
		}
		at := 0
		for _, of := range r.blocks {
			if of[0] < at || of[1] <= of[0] || of[1] > int(blocks) {
				t.Fatalf("blocks %v of %d", r.blocks, blocks)
			}
			at = of[1]
		}
		for _, least := range []uint64{0, 20} {
			o := &GraphOptions{MaxDepth: 9, MaxNodes: 40}
			g := &grapher{o: o, tree: newCallTree(o, allWaits)}
			_, _ = r.addPaths(g, []uint32{0}, nothingHidden{}, least)
			rep := newReport(nil)
			_, _ = r.addPaths(rep, []uint32{0}, nothingHidden{}, least)
			if len(g.tree.nodes) > o.MaxNodes+1 || len(rep.cnts) > len(body) {
				t.Errorf("%d nodes, %d functions", len(g.tree.nodes), len(rep.cnts))
			}
		}
	})
}
