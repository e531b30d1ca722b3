package trace

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// seeAll is a report in text, with all durations.
func seeAll(t testing.TB, tr *Trace, o ReportOptions) string {
	t.Helper()
	rows, err := tr.Report(o)
	if err != nil {
		t.Fatal(err)
	}
	s := ""
	for _, r := range rows {
		durations := ""
		if r.Hist != nil {
			r.Hist.each(func(b int, n uint64) { durations += fmt.Sprintf(" %d:%d", b, n) })
		}
		task := -1
		if r.Task != nil {
			task = r.Task.Index
		}
		r.Hist, r.Task = nil, nil
		s += fmt.Sprintf("%d %+v%s\n", task, r, durations)
	}
	return s
}

// TestSums compares reports and graphs of random windows, functions and thresholds: with the sums of an index they are what they
// are without it, and the sums are used.
func TestSums(t *testing.T) {
	seeds := []uint64{572, 756} // calls turn out to be inherited
	n := uint64(12)
	if testtool.Wide() {
		n = 3000
	}
	for seed := range n {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 21))
		sizes := blockSizes{2 + rng.IntN(300), rng.IntN(4), 1 + rng.IntN(9), 1 << (8 + rng.IntN(12))}
		plain, indexed := withBlocks(t, wildTrace(t, seed), sizes)
		for _, o := range randomWindows(rng, plain, 12) {
			r := ReportOptions{From: o.From, To: o.To, Tasks: o.Tasks, Calls: randomCalls(rng)}
			r.Calls.Roots, r.Calls.Without, r.Calls.Nest = nil, nil, false
			if rng.IntN(3) == 0 {
				r.From, r.To = 0, 0
			}
			if rng.IntN(2) == 0 {
				r.Calls = Calls{}
			}
			r.PerTask, r.PerProcess, r.Waits = rng.IntN(3) == 0, rng.IntN(3) == 0, rng.IntN(3) == 0
			want := seeAll(t, plain, r)
			g := GraphOptions{From: r.From, To: r.To, Tasks: r.Tasks, Calls: r.Calls, KeepRecursion: rng.IntN(2) == 0}
			if rng.IntN(2) == 0 {
				g.Calls = randomCalls(rng)
			}
			g.Waits = rng.IntN(2) == 0
			tree := seeTree(t, plain, g)
			g.Tasks = inTrace(indexed, g.Tasks)
			if have := seeTree(t, indexed, g); have != tree {
				t.Fatalf("seed %d, %+v, %+v: %s", seed, sizes, g, cmp.Diff(tree, have))
			}
			tasks := r.Tasks
			if r.Tasks = inTrace(indexed, tasks); r.Tasks == nil {
				tasks = plain.Tasks
				if len(indexed.Tasks) != len(tasks) {
					t.Fatal("not the same tasks")
				}
			}
			if have := seeAll(t, indexed, r); have != want {
				t.Fatalf("seed %d, %+v, %+v: %s", seed, sizes, r, cmp.Diff(want, have))
			}
			c := indexed.choose(r.From, r.To, r.Calls)
			if r.Tasks == nil {
				r.Tasks = indexed.Tasks
			}
			if _, err := indexed.countWithIndex(c, r.Tasks, r); err != nil {
				t.Fatalf("seed %d, %+v, %+v: the index was not used: %v", seed, sizes, r, err)
			}
		}
	}
}

// oneTask writes a trace of one task from counter now on, in small chunks; written returns it.
func oneTask(t *testing.T) (k *TaskWriter, now uint64, written func() []byte) {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, Header{Counter: 1000, CounterHz: 1e9, ChunkSize: minChunkSize})
	if err != nil {
		t.Fatal(err)
	}
	k = w.Task(TaskID{PID: 1, TID: 1, Image: testImage})
	return k, 1000, func() []byte {
		t.Helper()
		if err := k.Flush(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
}

// TestListsRead: long calls that cross the borders of blocks are counted without decoding anything.
func TestListsRead(t *testing.T) {
	const long, short = 20, 21
	k, now, written := oneTask(t)
	for i := range 100 {
		k.Enter(now, uint32(1+i%3))
		k.Enter(now, long)
		for range 2000 {
			k.Enter(now, short)
			k.Exit(now+1, short)
			now += 2
		}
		k.Exit(now, long)
		k.Exit(now+1, uint32(1+i%3))
		now += 5
	}
	events := written()
	plain, indexed := withBlocks(t, events, blockSizes{1000, 0, 4, 1 << 20})
	r, g := ReportOptions{Calls: Calls{Threshold: 1000}}, GraphOptions{Calls: Calls{Threshold: 1000}}
	see := func(tr *Trace) string { return seeAll(t, tr, r) + seeTree(t, tr, g) }
	if n := readFor(t, r, plain, indexed, see); n > len(events)/100 {
		t.Errorf("%d bytes were read of %d", n, len(events))
	}
}
