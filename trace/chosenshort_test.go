package trace

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// shortAndLong is a trace of one task that has calls of 1 us and more, short calls in ever other places around and
// inside of them, and now and then what is no call.
func shortAndLong(t *testing.T, rng *rand.Rand) []byte {
	t.Helper()
	k, now, written := oneTask(t)
	var open []uint32
	for i := range 60_000 {
		now += rng.Uint64N(8)
		switch n := len(open); {
		case rng.IntN(100) == 0:
			now += rng.Uint64N(3000)
		case i%500 == 499:
			k.SysEnter(now, 3, nil)
			k.SysExit(now+2, 0)
		case i%701 == 700 && n > 1: // an exit further out
			k.Exit(now, open[n-2])
			open = open[:n-2]
		case n < 3 || n < 12 && rng.IntN(2) == 0:
			open = append(open, 1+uint32(rng.IntN(5)))
			k.Enter(now, open[n])
		default:
			k.Exit(now, open[n-1])
			open = open[:n-1]
		}
	}
	return written()
}

// TestLateCalls: where all blocks are decoded, because a threshold is none that the index knows, short calls are never
// seen by what counts; it counts the same, and runs out of room where it did.
func TestLateCalls(t *testing.T) {
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 31))
		plain, indexed := withBlocks(t, shortAndLong(t, rng), blockSizes{100, 0, 4, 1 << 20})
		full := 0
		for _, nodes := range []int{0, 5, 20, 60, 200, 1000, 5000} {
			for _, least := range []int64{33, 777, 1300} {
				g := GraphOptions{Calls: Calls{Threshold: least}, MaxNodes: nodes, Workers: 1, KeepRecursion: rng.IntN(2) == 0}
				want := seeTree(t, plain, g)
				if have := seeTree(t, indexed, g); have != want {
					t.Fatalf("seed %d, %d nodes, %d ns: %s", seed, nodes, least, cmp.Diff(want, have))
				}
				g.MaxNodes = 0
				if seeTree(t, plain, g) != want {
					full++
				}
				r := ReportOptions{Calls: g.Calls}
				rows := seeAll(t, plain, r)
				if have := seeAll(t, indexed, r); have != rows || !strings.Contains(rows, "Unwound:") {
					t.Fatalf("seed %d, %d ns: %s", seed, least, cmp.Diff(rows, have))
				}
			}
		}
		if full < 3 || full > 18 {
			t.Errorf("seed %d: %d of 21 graphs had no room", seed, full)
		}
	}
}
