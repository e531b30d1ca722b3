package trace

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// nestedTrace is a trace of nested calls, in which only rarely something else happens. Times are often the same, and chunks
// end anywhere: between calls that jump to others, and in leaves.
func nestedTrace(t testing.TB, rng *rand.Rand) []byte {
	var b bytes.Buffer
	w, err := NewWriter(&b, Header{Counter: 1000, Monotonic: 9, Realtime: 8, CounterHz: 1e9, ChunkSize: minChunkSize})
	if err != nil {
		t.Fatal(err)
	}
	w.WriteImage(Image{ID: testImage, Path: "/bin/prog", Sites: 20})
	for i := range 1 + rng.IntN(3) {
		k := w.Task(TaskID{PID: 1, TID: 1 + i, Image: testImage, Stack: 0, Comm: "c"})
		now, calls, deep := 1000+rng.Uint64N(500), []uint32{}, 3+rng.IntN(20)
		for range 1500 {
			switch rng.IntN(300) {
			case 0:
				now += 500 + rng.Uint64N(3000)
			case 1:
				now += 100
			}
			if rng.IntN(3) > 0 {
				now += rng.Uint64N(20)
			}
			switch r := rng.IntN(2000); {
			case r == 0:
				k.Mark(now, 1, "m")
			case r == 1:
				k.Comm(now, fmt.Sprint("c", rng.IntN(9)))
			case r == 2 && len(calls) > 1:
				k.Resync(now, 1)
				calls = calls[:len(calls)-1]
			case r == 3:
				k.Lost(now, 2)
			case r < 7: // it was held back
				k.Enter(now-rng.Uint64N(100), 1)
				calls = append(calls, 1)
			case len(calls) == 0 || len(calls) < deep && rng.IntN(2) == 0:
				fn := uint32(1 + rng.IntN(19))
				k.Enter(now, fn)
				calls = append(calls, fn)
			default:
				k.Exit(now, calls[len(calls)-1])
				calls = calls[:len(calls)-1]
				if rng.IntN(9) == 0 {
					fn := uint32(1 + rng.IntN(19))
					k.Enter(now, fn) // a tail call
					calls = append(calls, fn)
				}
			}
			if rng.IntN(15) == 0 {
				k.Flush()
			}
		}
		k.Flush()
	}
	return b.Bytes()
}

// seeChosen is what a walk shows of calls, in text: those that are asked for, with both ends, and what is no call's.
func seeChosen(tr *Trace, o WalkOptions, calls Calls) (text string, n int, early string) {
	type place struct {
		k     *Task
		stack uint64
	}
	type shown struct {
		text string
		ok   bool
	}
	var all []*shown
	open := map[place][]*shown{}
	over := int64(0)
	match := func(fn FuncID) bool { return calls.Match == nil || calls.Match(fn) }
	err := tr.Walk(o, func(ev *Event) error {
		n++
		var text strings.Builder
		seeEvent(&text, ev)
		s := &shown{text: text.String()}
		at := place{ev.Task, ev.Stack}
		fs := open[at]
		fs = fs[:min(len(fs), ev.Depth)]
		switch ev.Kind {
		case Entry:
			for len(fs) < ev.Depth {
				fs = append(fs, &shown{}) // it has begun unseen
			}
			all = append(all, s)
			open[at] = append(fs, s)
		case Exit, Unwound, Unfinished:
			if ev.Kind == Exit && ev.Time < over {
				early = fmt.Sprintf("skipped at %d, too early", over)
			}
			entry := &shown{}
			if ev.Flags&(FlagNoEntry|FlagResumed) == 0 && ev.Depth < len(open[at]) {
				entry = open[at][ev.Depth]
			}
			open[at] = fs
			if s.ok = match(ev.Func) && (ev.Dur >= calls.Threshold || ev.Flags&FlagNoEntry != 0); s.ok {
				entry.ok = true
				all = append(all, s)
			}
		case Skipped:
			open[at], over = fs, ev.Time
		default:
			s.ok = true
			all = append(all, s)
		}
		return nil
	})
	if err != nil {
		return err.Error(), 0, ""
	}
	var out strings.Builder
	for _, s := range all {
		if s.ok {
			out.WriteString(s.text)
		}
	}
	return out.String(), n, early
}

// TestGists compares what walks show of long calls in random traces: with an index, which has the gists of blocks, it is
// what it is without.
func TestGists(t *testing.T) {
	// The chunk behind a block has another name; a leaf that crosses a border was entered late; a system call ends that
	// has not begun.
	seeds := []uint64{13, 15, 108}
	n := uint64(10)
	if testtool.Wide() {
		n = 3000
	}
	for seed := range n {
		seeds = append(seeds, seed)
	}
	blocks, gists, some, every := 0, 0, 0, 0
	for _, seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 23))
		var events []byte
		wild := seed%4 == 0
		if wild {
			events = wildTrace(t, seed)
		} else {
			events = nestedTrace(t, rng)
		}
		plain, indexed := withBlocks(t, events, blockSizes{2 + rng.IntN(60), rng.IntN(3), 1 + rng.IntN(5), 1 << 20})
		for _, k := range indexed.Tasks {
			tb, err := indexed.blocks.states(k)
			if err != nil {
				t.Fatal(err)
			}
			for i := range tb.blocks {
				if blocks++; tb.blocks[i].flags&format.BlockGist != 0 {
					gists++
				}
			}
		}
		for _, o := range randomWindows(rng, plain, 12) {
			if rng.IntN(3) == 0 {
				o.From, o.To = 0, 0
			}
			o.Open = false
			if rng.IntN(3) == 0 {
				fn := 1 + rng.Uint32N(19)
				o.Calls.Match = func(f FuncID) bool { return f.ID == fn || f.ID == fn/2 }
			}
			if o.Calls.Match == nil || rng.IntN(4) > 0 {
				o.Calls.Threshold = 1 + rng.Int64N(1<<rng.IntN(13))
			}
			calls := o.Calls
			o.Calls = Calls{}
			want, n, _ := seeChosen(plain, o, calls)
			o.Tasks, o.Calls = inTrace(indexed, o.Tasks), calls
			have, m, early := seeChosen(indexed, o, calls)
			if !wild { // where times of events go back, that of skipped ones can be later
				have += early
			}
			if have != want {
				t.Fatalf("seed %d, %+v: %s", seed, o, cmp.Diff(want, have))
			}
			some, every = some+m, every+n
		}
	}
	if gists < blocks/3 {
		t.Errorf("%d of %d blocks have gists", gists, blocks)
	}
	t.Logf("%d of %d blocks have gists; %d of %d events were visited", gists, blocks, some, every)
}
