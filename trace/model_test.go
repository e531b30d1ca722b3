package trace

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/google/go-cmp/cmp"
)

// TestModel has random programs run, and compares every way to read their traces
// with what the programs know of themselves.
func TestModel(t *testing.T) {
	seeds := uint64(12)
	if testtool.Wide() {
		seeds = 500
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			var truth []interval
			var progs []*program
			dir := buildHeader(t, Header{Counter: 1000, CounterHz: 1e9, ChunkSize: minChunkSize}, func(w *Writer) {
				w.Compress = seed%2 == 1
				for i := range 1 + rng.IntN(4) {
					progs = append(progs, &program{
						k:   w.Task(TaskID{PID: 1, TID: 1 + i, Image: testImage, Comm: fmt.Sprintf("t%d", i)}),
						rng: rng, now: 1000 + rng.Uint64N(100), task: i, functions: 1 + rng.IntN(26),
					})
				}
				for range 200 {
					for _, p := range progs {
						p.run(rng.IntN(60))
					}
				}
				for _, p := range progs {
					p.finish()
					truth = append(truth, p.done...)
				}
			})
			tr := open(t, dir)
			if len(tr.Problems) > 0 {
				t.Fatal(tr.Problems)
			}
			compareWalk(t, tr, truth)
			compareReport(t, tr, truth)
			compareGraph(t, tr, truth)
		})
	}
}

// An interval is a call as the program saw it.
type interval struct {
	task       int
	fn         uint32
	start, end uint64
	self       uint64
	path       string // functions around it and its own
	unwound    bool
	unfinished bool
}

// A program calls, returns, jumps to functions and out of them, at random.
type program struct {
	k         *TaskWriter
	rng       *rand.Rand
	now       uint64
	task      int
	functions int
	captures  bool // arguments and results of the first function are captured
	stack     []interval
	done      []interval
}

func (p *program) tick() {
	d := p.rng.Uint64N(50)
	if p.rng.IntN(500) == 0 {
		d += p.rng.Uint64N(10_000_000_000)
	}
	if n := len(p.stack); n > 0 {
		p.stack[n-1].self += d
	}
	p.now += d
}

func (p *program) push() {
	fn := uint32(p.rng.IntN(p.functions) + 1)
	path := ""
	if n := len(p.stack); n > 0 {
		path = p.stack[n-1].path
	}
	p.stack = append(p.stack, interval{task: p.task, fn: fn, start: p.now, path: path + string(rune('a'+fn-1))})
	if p.captures && fn == 1 {
		p.k.EnterWith(p.now, fn, []uint64{p.now, p.rng.Uint64()})
	} else {
		p.k.Enter(p.now, fn)
	}
}

func (p *program) exit() {
	if fn := p.pop().fn; p.captures && fn == 1 {
		p.k.ExitWith(p.now, fn, []uint64{p.rng.Uint64()})
	} else {
		p.k.Exit(p.now, fn)
	}
}

func (p *program) pop() interval {
	top := p.stack[len(p.stack)-1]
	p.stack = p.stack[:len(p.stack)-1]
	top.end = p.now
	p.done = append(p.done, top)
	return top
}

func (p *program) run(events int) {
	for range events {
		p.tick()
		switch r := p.rng.IntN(100); {
		case len(p.stack) == 0 || r < 48 && len(p.stack) < 60:
			p.push()
		case r < 92:
			p.exit()
		case r < 97: // tail call
			p.exit()
			p.push()
		case r < 98:
			n := 1 + p.rng.IntN(len(p.stack))
			for range n {
				p.pop()
				p.done[len(p.done)-1].unwound = true
			}
			p.k.Resync(p.now, uint64(n))
		default:
			p.k.Mark(p.now, p.now, "now")
		}
	}
}

func (p *program) finish() {
	for len(p.stack) > 0 {
		p.pop()
		p.done[len(p.done)-1].unfinished = true
	}
	p.k.Flush()
}

// compareWalk compares the ends of calls, and checks order, depth and callers.
func compareWalk(t *testing.T, tr *Trace, truth []interval) {
	t.Helper()
	type end struct {
		task           int
		name           string
		at, dur, self  int64
		unwound, unfin bool
	}
	var want, have []end
	for _, c := range truth {
		want = append(want, end{c.task, string(rune('a' + c.fn - 1)), tr.Clock.Time(c.end), int64(c.end - c.start), int64(c.self), c.unwound, c.unfinished})
	}
	last := int64(math.MinInt64)
	open := map[*Task][]FuncID{}
	leaf := map[*Task]int64{}
	err := tr.Walk(WalkOptions{}, func(ev *Event) error {
		if ev.Time < last {
			return fmt.Errorf("time goes back from %d to %d", last, ev.Time)
		}
		last = ev.Time
		o := open[ev.Task]
		switch ev.Kind {
		case Entry:
			if ev.Flags&FlagLeaf != 0 {
				leaf[ev.Task] = ev.Dur
			}
			if ev.Depth != len(o) {
				return fmt.Errorf("entry at depth %d, %d calls are open", ev.Depth, len(o))
			}
			open[ev.Task] = append(o, ev.Func)
		case Exit, Unwound, Unfinished:
			if d, ok := leaf[ev.Task]; ok && (ev.Flags&FlagLeaf == 0 || ev.Dur != d) || !ok && ev.Flags&FlagLeaf != 0 {
				return fmt.Errorf("a leaf of %d ns ends after %d, flags %v", d, ev.Dur, ev.Flags)
			}
			delete(leaf, ev.Task)
			o = o[:len(o)-1]
			if ev.Depth != len(o) {
				return fmt.Errorf("%v at depth %d, %d calls are open around it", ev.Kind, ev.Depth, len(o))
			}
			open[ev.Task] = o
			have = append(have, end{ev.Task.TID - 1, tr.Name(ev.Func), ev.Time, ev.Dur, ev.Self, ev.Kind == Unwound, ev.Kind == Unfinished})
		default:
			return nil
		}
		caller := FuncID{}
		if len(o) > 0 {
			caller = o[len(o)-1]
		}
		if ev.Caller != caller {
			return fmt.Errorf("caller %v, want %v", ev.Caller, caller)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// Of a task, calls that end at one time end innermost first in both.
	order := func(a, b end) int {
		if a.task != b.task {
			return a.task - b.task
		}
		return int(a.at - b.at)
	}
	slices.SortStableFunc(want, order)
	slices.SortStableFunc(have, order)
	if slices.Equal(want, have) {
		return
	}
	if d := cmp.Diff(want, have, cmp.AllowUnexported(end{})); d != "" {
		t.Error("walk:", d)
	}
}

func compareReport(t *testing.T, tr *Trace, truth []interval) {
	t.Helper()
	type row struct {
		calls, unwound, unfinished uint64
		total, sum, self, min, max int64
		avg                        int64
		p99ok, stddevok            bool
		histogram                  uint64
	}
	for _, perTask := range []bool{false, true} {
		want := map[string]row{}
		durs := map[string][]int64{}
		name := func(task int, fn uint32) string {
			if !perTask {
				task = 0
			}
			return fmt.Sprintf("%c%d", 'a'+fn-1, task)
		}
		for _, c := range truth {
			n := name(c.task, c.fn)
			r, ok := want[n]
			d := int64(c.end - c.start)
			if !ok || d < r.min {
				r.min = d
			}
			r.max = max(r.max, d)
			r.calls++
			r.sum += d
			r.self += int64(c.self)
			if c.unwound {
				r.unwound++
			}
			if c.unfinished {
				r.unfinished++
			}
			want[n] = r
			durs[n] = append(durs[n], d)
		}
		for _, u := range unions(truth) {
			n := name(u.task, u.fn)
			r := want[n]
			r.total += int64(u.end - u.start)
			want[n] = r
		}
		for n, r := range want {
			r.avg = r.sum / int64(r.calls)
			r.p99ok, r.stddevok, r.histogram = true, true, r.calls
			want[n] = r
		}
		for _, workers := range []int{1, 3} {
			rows, err := tr.Report(ReportOptions{PerTask: perTask, Workers: workers})
			if err != nil {
				t.Fatal(err)
			}
			have := map[string]row{}
			for i, s := range rows {
				if i > 0 && rows[i-1].Total < s.Total {
					t.Errorf("row %d is not in order", i)
				}
				task := 0
				if perTask {
					task = s.Task.TID - 1
				}
				n := name(task, s.Func.ID)
				d := durs[n]
				slices.Sort(d)
				p99 := d[int(math.Ceil(0.99*float64(len(d))))-1]
				have[n] = row{
					s.Calls, s.Unwound, s.Unfinished, s.Total, s.Sum, s.Self, s.Min, s.Max, s.Avg,
					math.Abs(float64(s.P99-p99)) <= 0.01*float64(p99), closeTo(s.StdDev, stdDev(d)), s.Hist.Count(),
				}
			}
			if d := cmp.Diff(want, have, cmp.AllowUnexported(row{})); d != "" {
				t.Errorf("report, per task %v: %s", perTask, d)
			}
		}
	}
}

// unions are the times in which at least one call of a function is open.
func unions(truth []interval) []interval {
	calls := slices.Clone(truth)
	slices.SortFunc(calls, func(a, b interval) int {
		if a.task != b.task {
			return a.task - b.task
		}
		if a.fn != b.fn {
			return int(a.fn) - int(b.fn)
		}
		return int(int64(a.start) - int64(b.start))
	})
	var us []interval
	for _, c := range calls {
		if n := len(us); n > 0 && us[n-1].task == c.task && us[n-1].fn == c.fn && c.start <= us[n-1].end {
			us[n-1].end = max(us[n-1].end, c.end)
			continue
		}
		us = append(us, c)
	}
	return us
}

func stdDev(v []int64) float64 {
	if len(v) < 2 {
		return 0
	}
	mean := 0.0
	for _, x := range v {
		mean += float64(x)
	}
	mean /= float64(len(v))
	s := 0.0
	for _, x := range v {
		s += (float64(x) - mean) * (float64(x) - mean)
	}
	return math.Sqrt(s / float64(len(v)-1))
}

func closeTo(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Max(math.Abs(a), math.Abs(b)) }

func compareGraph(t *testing.T, tr *Trace, truth []interval) {
	t.Helper()
	type node struct {
		calls       uint64
		total, self int64
	}
	want := map[string]node{}
	for _, c := range truth {
		n := want[c.path]
		n.calls++
		n.total += int64(c.end - c.start)
		n.self += int64(c.self)
		want[c.path] = n
	}
	for _, workers := range []int{1, 3} {
		root, err := tr.Graph(GraphOptions{KeepRecursion: true, Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		have := map[string]node{}
		var visit func(n *Node, path string)
		visit = func(n *Node, path string) {
			if n.Func.ID != 0 {
				path += n.Name
				have[path] = node{n.Calls, n.Total, n.Self}
			}
			for _, c := range n.Children {
				visit(c, path)
			}
		}
		visit(root, "")
		if d := cmp.Diff(want, have, cmp.AllowUnexported(node{})); d != "" {
			t.Error("graph:", d)
		}
	}
	// Folded: nothing is lost, no path has a function twice.
	for _, o := range []GraphOptions{{}, {MaxNodes: 20}, {MaxDepth: 3}, {PerTask: true}, {PerProcess: true}, {KeepRecursion: true, MaxNodes: 5, Workers: 3}} {
		root, err := tr.Graph(o)
		if err != nil {
			t.Fatal(err)
		}
		var calls uint64
		var self int64
		nodes := 0
		var visit func(n *Node, path []FuncID)
		visit = func(n *Node, path []FuncID) {
			calls += n.Calls
			self += n.Self
			if n.Func.ID != 0 {
				nodes++
				if !o.KeepRecursion && slices.Contains(path, n.Func) {
					t.Errorf("%+v: %s inside itself", o, n.Name)
				}
				path = append(slices.Clip(path), n.Func)
				if o.MaxDepth > 0 && len(path) > o.MaxDepth {
					t.Errorf("%+v: depth %d", o, len(path))
				}
			}
			for _, c := range n.Children {
				visit(c, path)
			}
		}
		visit(root, nil)
		var wantSelf int64
		for _, c := range truth {
			wantSelf += int64(c.self)
		}
		if calls != uint64(len(truth)) || self != wantSelf {
			t.Errorf("%+v: %d calls with %d ns, want %d with %d", o, calls, self, len(truth), wantSelf)
		}
		if o.MaxNodes > 0 && nodes > o.MaxNodes {
			t.Errorf("%+v: %d nodes", o, nodes)
		}
	}
}
