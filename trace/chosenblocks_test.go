package trace

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// countedReads counts the bytes that are read.
type countedReads struct {
	r     io.ReaderAt
	bytes int
}

func (c *countedReads) ReadAt(b []byte, off int64) (int, error) {
	c.bytes += len(b)
	return c.r.ReadAt(b, off)
}

// readFor compares what is seen of a trace without an index and with one, and returns how many bytes of events were read
// with it.
func readFor(t *testing.T, what any, plain, indexed *Trace, see func(tr *Trace) string) int {
	t.Helper()
	want := see(plain)
	reads := &countedReads{r: indexed.file}
	indexed.file = reads
	defer func() { indexed.file = reads.r }()
	if have := see(indexed); have != want || want == "" {
		t.Errorf("%+v: %s", what, cmp.Diff(want, have))
	}
	return reads.bytes
}

// TestChosenBlocksRead: with an index, what counts is a part of a trace is found without reading the rest.
func TestChosenBlocksRead(t *testing.T) {
	const root, rare = 20, 21
	k, now, written := oneTask(t)
	for i := range 200_000 {
		now += 10
		fn := uint32(1 + i%7)
		if i == 100_000 {
			k.Enter(now, root)
			k.Enter(now+10, rare)
			k.Exit(now+100_000, rare)
			k.Exit(now+100_001, root)
			now += 100_001
		}
		k.Enter(now, fn)
		now += 10
		k.Exit(now, fn)
	}
	events := written()
	plain, indexed := withBlocks(t, events, blockSizes{1000, 0, 4, 1 << 20})
	is := func(id uint32) func(FuncID) bool { return func(fn FuncID) bool { return fn.ID == id } }
	for what, calls := range map[string]Calls{
		"a function":            {Match: is(rare)},
		"inside a function":     {Roots: is(root)},
		"from a duration on":    {Threshold: 50_000},
		"all of them, but none": {Roots: is(root), Match: is(rare), Threshold: 50_000, Without: is(30)},
	} {
		r, g := ReportOptions{Calls: calls}, GraphOptions{Calls: calls}
		see := func(tr *Trace) string { return seeRows(t, tr, r) + seeTree(t, tr, g) }
		if n := readFor(t, what, plain, indexed, see); n > len(events)/50 {
			t.Errorf("%s: %d bytes were read of %d", what, n, len(events))
		}
	}
}

// TestWalkShortRoots: a walk for long calls inside of a function decodes no blocks in which all of its calls are short, not
// even if calls say how deep in their stacks they are, as those of Go do.
func TestWalkShortRoots(t *testing.T) {
	for _, deep := range []bool{false, true} {
		t.Run(fmt.Sprint(deep), func(t *testing.T) { walkShortRoots(t, deep) })
	}
}

func walkShortRoots(t *testing.T, deep bool) {
	const root = 1
	k, now, written := oneTask(t)
	for i := range 200_000 {
		long := uint64(0)
		if i == 100_000 {
			long = 50_000
		}
		k.Enter(now, root)
		if deep {
			k.record(now, format.RecDepth, 8)
		}
		k.Enter(now+2, 2)
		k.Exit(now+4+long, 2)
		if deep {
			k.record(now+6+long, format.RecDepth, 8|format.DepthEnd)
		}
		k.Exit(now+6+long, root)
		now += 10 + long
	}
	events := written()
	_, indexed := withBlocks(t, events, blockSizes{1000, 0, 4, 1 << 20})
	reads := &countedReads{r: indexed.file}
	indexed.file = reads
	calls := 0
	o := WalkOptions{Calls: Calls{Roots: func(fn FuncID) bool { return fn.ID == root }, Threshold: 40_000}}
	if err := indexed.Walk(o, func(ev *Event) error {
		if ev.Kind == Exit && ev.Dur >= o.Calls.Threshold {
			calls++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if calls != 2 {
		t.Errorf("%d long calls, want 2", calls)
	}
	if reads.bytes > len(events)/20 {
		t.Errorf("%d bytes were read of %d", reads.bytes, len(events))
	}
}

// TestWalkLong: a walk for long calls has the ends of all of them, and all that is no call's, with an index and without;
// and no short call that has nothing inside.
func TestWalkLong(t *testing.T) {
	seeds := uint64(12)
	if testtool.Wide() {
		seeds = 1000
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 31))
		plain, indexed := withBlocks(t, wildTrace(t, seed), blockSizes{2 + rng.IntN(60), rng.IntN(4), 1 + rng.IntN(9), 1 << 20})
		for _, o := range randomWindows(rng, plain, 6) {
			least := 1 + rng.Int64N(1<<rng.IntN(12))
			o.Open = false
			see := func(tr *Trace, calls Calls) string {
				t.Helper()
				o := o
				o.Calls = calls
				if o.Tasks != nil {
					o.Tasks = inTrace(tr, o.Tasks)
				}
				var s strings.Builder
				if err := tr.Walk(o, func(ev *Event) error {
					switch ev.Kind {
					case Entry:
						if ev.Flags&FlagLeaf != 0 && ev.Dur < least && calls.Threshold > 0 && o.From == 0 {
							t.Errorf("seed %d: %+v, shorter than %d", seed, ev, least)
						}
					case Exit, Unwound, Unfinished:
						if ev.Dur >= least {
							seeEvent(&s, ev)
						}
					case Skipped:
					default:
						seeEvent(&s, ev)
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				return s.String()
			}
			want := see(plain, Calls{})
			for name, tr := range map[string]*Trace{"without an index": plain, "with one": indexed} {
				if have := see(tr, Calls{Threshold: least}); have != want {
					t.Errorf("seed %d, %s, %+v, from %d on: %s", seed, name, o, least, cmp.Diff(want, have))
				}
			}
		}
	}
}

// TestWalkOverLeaf: a short call whose end is in a block that is left out takes no other one's.
func TestWalkOverLeaf(t *testing.T) {
	k, now, written := oneTask(t)
	for range 5 {
		k.Enter(now, 1)
		k.Enter(now+10, 2)
		k.Flush()
		k.Exit(now+20, 2)
		k.Enter(now+30, 3)
		k.Exit(now+40, 3)
		k.Flush()
		k.Exit(now+900, 1)
		k.Enter(now+910, 2)
		k.Exit(now+920, 2)
		k.Flush()
		now += 1000
	}
	_, indexed := withBlocks(t, written(), blockSizes{2, 0, 4, 1 << 20})
	ends, skipped := 0, 0
	if err := indexed.Walk(WalkOptions{Calls: Calls{Threshold: 500}}, func(ev *Event) error {
		switch {
		case ev.Kind == Exit && ev.Dur >= 500:
			ends++
		case ev.Kind == Skipped:
			skipped++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if ends != 5 || skipped < 5 {
		t.Errorf("%d ends of long calls, want 5; %d times blocks were left out", ends, skipped)
	}
}
