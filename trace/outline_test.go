package trace

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// An outlined call is what an outline says of a call, without places in lists.
type outlined struct {
	fn         FuncID
	start, end int64
	stack      uint64
	depth      int
	kind       Kind
}

// TestOutline compares outlines of random traces with their events: an outline has only calls that there are, has each
// that was open at a border of blocks, and says which were open there.
func TestOutline(t *testing.T) {
	seeds := uint64(60)
	if testtool.Wide() {
		seeds = 5000
	}
	crossed, none, late := 0, 0, 0
	list := []uint64{
		262, 729, 958, // calls whose entries are older than their block, and end in it
		483, 1849, // calls that were inherited from a recursion, and put aside
	}
	for seed := range seeds {
		list = append(list, seed)
	}
	for _, seed := range list {
		rng := rand.New(rand.NewPCG(seed, 77))
		sizes := blockSizes{2 + rng.IntN(300), rng.IntN(4), 1 + rng.IntN(9), 1 << (8 + rng.IntN(12))}
		plain, indexed := withBlocks(t, wildTrace(t, seed), sizes)
		depth := 1 + rng.IntN(40)
		twice := map[outlined]int{} // calls by function and beginning: where there are two, it is not known which did what
		calls, back := make([]map[outlined]int, len(plain.Tasks)), make([]map[outlined]bool, len(plain.Tasks))
		for i := range calls {
			calls[i], back[i] = map[outlined]int{}, map[outlined]bool{}
		}
		if err := plain.Walk(WalkOptions{}, func(ev *Event) error {
			switch ev.Kind {
			case Exit, Unwound, Unfinished:
				c := outlined{ev.Func, ev.Time - ev.Dur, ev.Time, ev.Stack, ev.Depth, ev.Kind}
				twice[outlined{fn: ev.Func, start: c.start}]++
				switch {
				case ev.Flags&FlagNoEntry != 0:
				case ev.Flags&(FlagResumed|FlagInherited) != 0: // maybe elsewhere, and not as deep
					c.depth, c.stack = 0, 0
					back[ev.Task.Index][c] = true
				case ev.Depth < depth:
					calls[ev.Task.Index][c]++
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, k := range indexed.Tasks {
			o := indexed.Outline(k, depth)
			if o == nil {
				if len(k.chunks) > 0 {
					none++
				}
				continue
			}
			have := map[outlined]int{}
			for i, c := range o.Calls {
				if c.Parent >= int32(i) {
					t.Fatalf("seed %d, task %d: call %d is inside of call %d", seed, k.Index, i, c.Parent)
				}
				if c.End < c.Start && c.Func != (FuncID{}) {
					t.Fatalf("seed %d, task %d: call %+v ends before it begins", seed, k.Index, c)
				}
				call := outlined{c.Func, c.Start, c.End, c.Stack, int(c.Depth), c.Kind}
				returned := call
				returned.stack, returned.depth = 0, 0
				if c.Func != (FuncID{}) && twice[outlined{fn: c.Func, start: c.Start}] == 1 && calls[k.Index][call] == 0 && !back[k.Index][returned] {
					t.Fatalf("seed %d, task %d: there is no call %+v", seed, k.Index, call)
				}
				call.end, call.kind = 0, 0 // of a call that returned nevertheless either end will do
				have[call]++
			}
			least := make([]int64, len(o.Borders)) // of the events from a border on
			now := int64(math.MaxInt64)
			for i := len(o.Borders) - 1; i >= 0; i-- {
				b := &o.Borders[i]
				now = min(now, b.First)
				least[i] = now
				if b.First > b.Time || b.Time > b.Last || i > 0 && (b.Time < o.Borders[i-1].Time || b.Last < o.Borders[i-1].Last) {
					t.Fatalf("seed %d, task %d: border %d is %+v", seed, k.Index, i, *b)
				}
				if b.First < b.Time {
					late++
				}
			}
			for c, n := range calls[k.Index] {
				for i := 1; i < len(o.Borders)-1; i++ {
					if c.start < least[i] && c.end > o.Borders[i-1].Last {
						crossed++
						c.end, c.kind = 0, 0
						if have[c] < n && twice[outlined{fn: c.fn, start: c.start}] == 1 {
							t.Fatalf("seed %d, task %d: call %+v is open at border %d and not in the outline", seed, k.Index, c, i)
						}
						break
					}
				}
			}
		}
	}
	if crossed < 1000 || none > 0 || late == 0 {
		t.Errorf("%d calls crossed borders, %d tasks had no outline, %d blocks have events older than their border", crossed, none, late)
	}
}
