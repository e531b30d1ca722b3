package show

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/trace"
)

// longTrace writes a trace of several tasks that is long enough for an index to have
// many blocks. Functions 1 to 8 are called often; those above are rare, and so are
// marks, losses, jumps and changes of stack.
func longTrace(t *testing.T, rng *rand.Rand) string {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, trace.EventsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	bw := bufio.NewWriter(f)
	w, err := trace.NewWriter(bw, trace.Header{Counter: 1000, Realtime: 7, CounterHz: 1e9, Closed: true})
	if err != nil {
		t.Fatal(err)
	}
	w.WriteImage(trace.Image{ID: 1, Path: "/bin/prog", Sites: 40})
	type player struct {
		k     *trace.TaskWriter
		now   uint64
		stack uint64
		calls map[uint64][]uint32
		floor int // so many calls stay open, over several blocks
	}
	var players []*player
	for i := range 1 + rng.IntN(3) {
		players = append(players, &player{
			k:   w.Task(trace.TaskID{PID: 1, TID: 1 + i, Image: 1, Comm: "p"}),
			now: 1000 + rng.Uint64N(500), calls: map[uint64][]uint32{},
		})
	}
	odd := rng.IntN(2) == 0
	step := func(p *player) {
		p.now += 1 + rng.Uint64N(60)
		cur := p.calls[p.stack]
		r := rng.IntN(1_000_000)
		if rng.IntN(50_000) == 0 {
			p.floor = rng.IntN(8)
		}
		switch {
		case r < 3:
			p.k.Mark(p.now, 1, "m")
		case r < 6:
			p.k.Comm(p.now, fmt.Sprint("c", r))
		case odd && r < 8:
			p.k.Lost(p.now, 3)
		case odd && r < 30 && len(cur) > 1:
			n := 1 + rng.IntN(len(cur))
			p.k.Resync(p.now, uint64(n))
			if rng.IntN(2) == 0 {
				p.k.Exit(p.now+1, cur[len(cur)-1])
			}
			p.calls[p.stack] = cur[:len(cur)-n]
		case odd && r < 34:
			p.stack = rng.Uint64N(3)
			p.k.Stack(p.now, p.stack)
		case len(cur) <= p.floor || len(cur) < 15 && rng.IntN(40) < 21:
			fn := uint32(1 + rng.IntN(8))
			if rng.IntN(20000) == 0 || len(cur) < p.floor && rng.IntN(2) == 0 {
				fn = uint32(9 + rng.IntN(8))
			}
			p.k.Enter(p.now, fn)
			p.calls[p.stack] = append(cur, fn)
		default:
			if rng.IntN(30000) == 0 {
				p.now += rng.Uint64N(1_000_000)
			}
			p.k.Exit(p.now, cur[len(cur)-1])
			p.calls[p.stack] = cur[:len(cur)-1]
		}
	}
	for range 400 {
		p := players[rng.IntN(len(players))]
		for range rng.IntN(1500) {
			step(p)
		}
	}
	for _, p := range players {
		p.k.End(p.now + 5)
		err = errors.Join(err, p.k.Flush())
	}
	if err := errors.Join(err, bw.Flush()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestFilterWithIndex compares what is shown of random traces, by random filters, of all events, of those that a walk
// leaves, and of those that one with an index leaves.
func TestFilterWithIndex(t *testing.T) {
	visited, all := 0, 0
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 1))
		dir := longTrace(t, rng)
		plain, err := trace.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer plain.Close()
		indexed, err := trace.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer indexed.Close()
		if ok, err := indexed.MakeIndex(trace.IndexOptions{Memory: true}); !ok || err != nil {
			t.Fatal(ok, err)
		}
		for range 8 {
			var o Options
			var walk trace.WalkOptions
			some := func() func(trace.FuncID) bool {
				set := uint64(1) << (9 + rng.IntN(8))
				if rng.IntN(3) == 0 {
					set |= 1 << rng.IntN(17)
				}
				return func(fn trace.FuncID) bool { return set>>fn.ID&1 != 0 }
			}
			switch rng.IntN(10) {
			case 9: // the gists of blocks are enough
				o.Threshold = 15_000 + rng.Int64N(300_000)
			case 7:
				o.Threshold = 1 + rng.Int64N(300)
			case 8:
				o.Roots, o.Threshold = some(), 1+rng.Int64N(5000)
			case 4:
				o.Roots, o.Match = some(), func(fn trace.FuncID) bool { return fn.ID < 3 }
			case 5:
				o.Roots, o.Threshold = some(), 300_000+rng.Int64N(500_000)
			case 6:
				o.Match, o.Without, o.Nest = some(), some(), rng.IntN(2) == 0
			case 0:
				o.Match = some()
			case 1:
				o.Roots = some()
			case 2:
				o.Match = func(fn trace.FuncID) bool { return fn.ID < 5 }
				o.Threshold = 200_000 + rng.Int64N(1_000_000)
			case 3:
				o.Threshold = 500_000
			}
			if rng.IntN(3) == 0 {
				o.Depth = 1 + rng.IntN(3)
			}
			if rng.IntN(2) == 0 {
				walk.From = rng.Int64N(5_000_000)
				walk.To = walk.From + 1 + rng.Int64N(5_000_000)
				walk.Open, o.End = true, walk.To
			}
			walk.Calls = trace.Calls{Match: o.Match, Roots: o.Roots, Without: o.Without, Nest: o.Nest, Threshold: o.Threshold}
			see := func(tr *trace.Trace, walk trace.WalkOptions) (string, int) {
				var s strings.Builder
				f := New(o, func(ev *trace.Event) error {
					fmt.Fprintf(&s, "%s stack %d self %d %q flags %d\n", line(ev), ev.Stack, ev.Self, ev.Text, ev.Flags)
					return nil
				})
				n := 0
				err := tr.Walk(walk, func(ev *trace.Event) error { n++; return f.Event(ev) })
				if err := errors.Join(err, f.Close()); err != nil {
					t.Fatal(err)
				}
				return s.String(), n
			}
			every := walk
			every.Calls = trace.Calls{}
			want, n := see(plain, every)
			have, _ := see(plain, walk)
			if want != have {
				t.Fatalf("seed %d, without an index, %+v, %+v: %s", seed, walk, o, cmp.Diff(want, have))
			}
			have, m := see(indexed, walk)
			if want != have {
				t.Fatalf("seed %d, %+v, %+v: %s", seed, walk, o, cmp.Diff(want, have))
			}
			all, visited = all+n, visited+m
		}
	}
	if visited > all*3/4 {
		t.Errorf("%d of %d events were visited", visited, all)
	}
	t.Logf("%d of %d events were visited", visited, all)
}
