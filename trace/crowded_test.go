package trace

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestCrowdedGraphs compares graphs with room for few nodes, of random windows, calls, processes and tasks: with an index
// they are what they are without.
func TestCrowdedGraphs(t *testing.T) {
	seeds := []uint64{
		676, // a tree without room, of a task behind one that had ended before the window
		785, // more folded calls than the edges that are remembered
	}
	n := uint64(10)
	if testtool.Wide() {
		n = 3000
	}
	for seed := range n {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 29))
		sizes := blockSizes{2 + rng.IntN(300), rng.IntN(4), 1 + rng.IntN(9), 1 << 20}
		plain, indexed := withBlocks(t, wildTrace(t, seed), sizes)
		for _, o := range randomWindows(rng, plain, 20) {
			g := GraphOptions{
				From: o.From, To: o.To, Tasks: o.Tasks, KeepRecursion: rng.IntN(2) == 0, MaxNodes: 1 + rng.IntN(1<<rng.IntN(8)),
				PerTask: rng.IntN(4) == 0, PerProcess: rng.IntN(2) == 0, Waits: rng.IntN(2) == 0,
				Workers: 1, // which paths there is room for depends on the order of tasks
			}
			if rng.IntN(3) == 0 {
				g.From, g.To = 0, 0
			}
			if rng.IntN(2) == 0 {
				g.Calls = randomCalls(rng)
			}
			want := seeTree(t, plain, g)
			g.Tasks = inTrace(indexed, g.Tasks)
			if have := seeTree(t, indexed, g); have != want {
				t.Errorf("seed %d, %+v, %+v: %s", seed, sizes, g, cmp.Diff(want, have))
				break
			}
		}
	}
}
