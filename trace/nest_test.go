package trace

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// A nestPair writes the same calls twice: with tail calls as the runtime records them, and with each one as a call
// inside the function that jumped to it, as a program does that was compiled without them.
type nestPair struct {
	side, nest *TaskWriter
	rnd        *rand.Rand
	now        uint64
}

// call makes a call and what is inside it. It returns how many frames a longjmp takes away, of those that there are and
// of all, with those that were left by jumps.
func (p *nestPair) call(depth int) (real, all int) {
	fn := uint32(1 + p.rnd.IntN(6))
	p.now += 1 + p.rnd.Uint64N(50)
	p.side.Enter(p.now, fn)
	p.nest.Enter(p.now, fn)
	return p.body(fn, depth, 0)
}

// body is a function from its entry on, which jumps others had led to.
func (p *nestPair) body(fn uint32, depth, jumps int) (real, all int) {
	for range p.rnd.IntN(4) {
		if depth == 0 {
			break
		}
		if real, all = p.call(depth - 1); real > 0 {
			if p.rnd.IntN(2) == 0 {
				return real + 1, all + 1 // it goes on here too
			}
			p.now += 1 + p.rnd.Uint64N(50)
			p.side.Resync(p.now, uint64(real))
			p.nest.Resync(p.now, uint64(all))
		}
	}
	p.now += 1 + p.rnd.Uint64N(50)
	if depth > 0 && p.rnd.IntN(8) == 0 {
		return 1, 1 // longjmp
	}
	if jumps < 5 && p.rnd.IntN(3) == 0 {
		to := uint32(1 + p.rnd.IntN(6))
		p.side.Exit(p.now, fn)
		p.side.Enter(p.now, to)
		p.nest.Enter(p.now, to)
		if real, all = p.body(to, depth, jumps+1); real > 0 {
			return real, all + 1
		}
		p.nest.Exit(p.now, fn)
		return 0, 0
	}
	p.side.Exit(p.now, fn)
	p.nest.Exit(p.now, fn)
	return 0, 0
}

// With Nest, reports and graphs are those of a program without tail calls.
func TestNestedTailCalls(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 10))
		var out [2]bytes.Buffer
		var pair nestPair
		for i, k := range []**TaskWriter{&pair.side, &pair.nest} {
			w, err := NewWriter(&out[i], Header{Counter: 1, CounterHz: 1e9})
			if err != nil {
				t.Fatal(err)
			}
			*k = w.Task(TaskID{PID: 1, TID: 1, Key: 1, Image: 7})
		}
		pair.rnd, pair.now = rnd, 100
		for range 20 {
			if real, all := pair.call(5); real > 0 {
				pair.now++
				pair.side.Resync(pair.now, uint64(real))
				pair.nest.Resync(pair.now, uint64(all))
			}
		}
		var traces [2]*Trace
		for i, k := range []*TaskWriter{pair.side, pair.nest} {
			if err := k.Flush(); err != nil {
				t.Fatal(err)
			}
			traces[i] = with(t, out[i].Bytes(), nil)
		}
		rows := func(tr *Trace, c Calls) []FuncStat {
			t.Helper()
			r, err := tr.Report(ReportOptions{Calls: c})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		ignore := cmpopts.IgnoreFields(FuncStat{}, "Hist")
		if d := cmp.Diff(rows(traces[1], Calls{}), rows(traces[0], Calls{Nest: true}), ignore); d != "" {
			t.Fatalf("seed %d: report: -without tail calls +nested\n%s", seed, d)
		}
		without := func(f FuncID) bool { return f.ID == 3 }
		want := rows(traces[1], Calls{Without: without})
		if d := cmp.Diff(want, rows(traces[0], Calls{Nest: true, Without: without}), ignore); d != "" {
			t.Fatalf("seed %d: report without one: -without tail calls +nested\n%s", seed, d)
		}
		for _, s := range want {
			if s.Func.ID == 3 {
				t.Fatalf("seed %d: it is there", seed)
			}
		}
		graph := func(tr *Trace, c Calls) *Node {
			t.Helper()
			n, err := tr.Graph(GraphOptions{Calls: c})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if d := cmp.Diff(graph(traces[1], Calls{}), graph(traces[0], Calls{Nest: true})); d != "" {
			t.Fatalf("seed %d: graph: -without tail calls +nested\n%s", seed, d)
		}
	}
}

// A loop by tail calls has no end: so many levels are nested, and no more.
func TestEndlessTailCalls(t *testing.T) {
	var out bytes.Buffer
	w, err := NewWriter(&out, Header{Counter: 1, CounterHz: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	k := w.Task(TaskID{PID: 1, TID: 1, Key: 1, Image: 7})
	k.Enter(10, 1)
	const loops = 10_000
	for i := range uint64(loops) {
		k.Exit(11+i, 1)
		k.Enter(11+i, 1)
	}
	k.Exit(20+loops, 1)
	if err := k.Flush(); err != nil {
		t.Fatal(err)
	}
	tr := with(t, out.Bytes(), nil)
	root, err := tr.Graph(GraphOptions{KeepRecursion: true, Calls: Calls{Nest: true}})
	if err != nil {
		t.Fatal(err)
	}
	depth, calls := 0, uint64(0)
	for n := root; len(n.Children) > 0; n = n.Children[0] {
		depth++
		calls += n.Children[0].Calls
	}
	if depth != maxJumped+1 || calls != loops+1 {
		t.Errorf("%d levels, %d calls; want %d, %d", depth, calls, maxJumped+1, loops+1)
	}
}
