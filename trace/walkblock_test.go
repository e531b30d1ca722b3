package trace

import (
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestWalkBlock: the blocks of a task, gone to in any order, have one after the other the events of the task, from
// whatever mark they are reached.
func TestWalkBlock(t *testing.T) {
	seeds := uint64(20)
	if testtool.Wide() {
		seeds = 3000
	}
	list := []uint64{26} // has an event that is older than where its block begins
	for seed := range seeds {
		list = append(list, seed)
	}
	marked := 0
	for _, seed := range list {
		rng := rand.New(rand.NewPCG(seed, 78))
		sizes := blockSizes{2 + rng.IntN(60), rng.IntN(4), 1 + rng.IntN(9), 1 << (8 + rng.IntN(12))}
		plain, indexed := withBlocks(t, wildTrace(t, seed), sizes)
		indexed.blocks.kept = make([]atomic.Pointer[taskBlocks], len(indexed.Tasks))
		for i, k := range indexed.Tasks {
			if len(k.chunks) == 0 {
				continue
			}
			tb, err := indexed.blocks.states(k)
			if err != nil {
				t.Fatal(err)
			}
			tb.marks.every = 1 + rng.IntN(5)
			texts := make([]strings.Builder, len(tb.blocks))
			borders := indexed.Outline(indexed.Tasks[i], 1).Borders
			for _, n := range rng.Perm(len(texts)) {
				if err := indexed.WalkBlock(k, n, func(ev *Event) error {
					if b := &borders[n]; ev.Time < b.First || ev.Time > b.Last {
						t.Fatalf("seed %d, task %d, block %d: an event at %d, but the border is %+v", seed, i, n, ev.Time, *b)
					}
					seeEvent(&texts[n], ev)
					return nil
				}); err != nil {
					t.Fatalf("seed %d, task %d, block %d: %v", seed, i, n, err)
				}
			}
			all := ""
			for n := range texts {
				all += texts[n].String()
			}
			if diff := cmp.Diff(seeWalk(plain, WalkOptions{Tasks: plain.Tasks[i : i+1]}), all); diff != "" {
				t.Fatalf("seed %d, task %d (-all +block by block):\n%s", seed, i, diff)
			}
			marked += len(tb.marks.list)
			if err := indexed.WalkBlock(k, len(tb.blocks), nil); err == nil {
				t.Error("a block behind the last one is no error")
			}
		}
	}
	if marked == 0 {
		t.Error("no state was marked")
	}
}
