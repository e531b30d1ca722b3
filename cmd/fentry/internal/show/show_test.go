package show

import (
	"fmt"
	"math/rand"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/trace"
)

// line is how the tests write an event: "3 T1 { f2 dur" and so on.
func line(ev *trace.Event) string {
	leaf := ""
	if ev.Flags&trace.FlagLeaf != 0 {
		leaf = " leaf"
	}
	dur := ""
	if leaf != "" || ev.Kind != trace.Entry {
		dur = fmt.Sprintf(" %d", ev.Dur)
	}
	return fmt.Sprintf("%d t%d %s f%d depth %d%s%s", ev.Time, ev.Task.TID, ev.Kind, ev.Func.ID, ev.Depth, leaf, dur)
}

// aCall is a call of the generated trace, with what the oracle thinks of it.
type aCall struct {
	task         int
	fn           uint32
	enter, leave int // positions in the events
	parent       *aCall
	calls        []*aCall
	shown        bool
	depth        int
	inside       bool
}

// generate makes the events of some tasks: each with a tree of calls.
func generate(r *rand.Rand, n int) ([]trace.Event, []*aCall) {
	tasks := make([]*trace.Task, 1+r.Intn(3))
	open := make([]*aCall, len(tasks))
	for i := range tasks {
		tasks[i] = &trace.Task{Index: i, TID: i + 1}
	}
	var evs []trace.Event
	var calls []*aCall
	now := int64(0)
	depth := func(c *aCall) int {
		d := 0
		for ; c != nil; c = c.parent {
			d++
		}
		return d
	}
	end := func(i int, kind trace.Kind) {
		c := open[i]
		c.leave = len(evs)
		open[i] = c.parent
		evs = append(evs, trace.Event{
			Time: now, Task: tasks[i], Kind: kind, Func: trace.FuncID{ID: c.fn},
			Depth: depth(c.parent), Dur: now - evs[c.enter].Time,
		})
	}
	for len(evs) < n {
		now += int64(r.Intn(4))
		i := r.Intn(len(tasks))
		switch {
		case r.Intn(40) == 0:
			evs = append(evs, trace.Event{Time: now, Task: tasks[i], Kind: trace.Mark, Depth: depth(open[i])})
		case open[i] != nil && r.Intn(2) == 0:
			kind := trace.Exit
			if r.Intn(10) == 0 {
				kind = trace.Unwound
			}
			end(i, kind)
		default:
			c := &aCall{task: i, fn: uint32(1 + r.Intn(5)), enter: len(evs), parent: open[i]}
			if c.parent != nil {
				c.parent.calls = append(c.parent.calls, c)
			}
			calls = append(calls, c)
			open[i] = c
			evs = append(evs, trace.Event{Time: now, Task: tasks[i], Kind: trace.Entry, Func: trace.FuncID{ID: c.fn}, Depth: depth(c.parent)})
		}
	}
	for i := range tasks {
		for open[i] != nil {
			end(i, trace.Unfinished)
		}
	}
	// The reader marks leaves of the whole trace.
	last := map[int]int{}
	for i := range evs {
		k := evs[i].Task.Index
		if p, ok := last[k]; ok && evs[p].Kind == trace.Entry && evs[i].Kind == trace.Exit {
			evs[p].Flags |= trace.FlagLeaf
			evs[i].Flags |= trace.FlagLeaf
			evs[p].Dur = evs[i].Dur
		}
		last[k] = i
	}
	return evs, calls
}

// oracle says what is shown of a trace it knows as a whole.
func oracle(evs []trace.Event, calls []*aCall, o Options) []string {
	at := map[int]*aCall{}
	inside := make([]bool, len(evs)) // by position: in a root, for events of no call
	for _, c := range calls {
		c.inside = o.Roots == nil || o.Roots(trace.FuncID{ID: c.fn}) || c.parent != nil && c.parent.inside
		if c.parent != nil {
			c.depth = c.parent.depth
			if c.parent.shown {
				c.depth++
			}
		}
		c.shown = c.inside && (o.Depth == 0 || c.depth < o.Depth) &&
			(o.Match == nil || o.Match(trace.FuncID{ID: c.fn})) && evs[c.leave].Dur >= o.Threshold
		at[c.enter], at[c.leave] = c, c
		if c.inside {
			for i := c.enter; i < c.leave; i++ {
				inside[i] = inside[i] || evs[i].Task.Index == c.task
			}
		}
	}
	var out []trace.Event
	last := map[int]int{}
	lastCall := map[int]*aCall{}
	for i, ev := range evs {
		c := at[i]
		if c != nil {
			if !c.shown {
				continue
			}
			ev.Depth = c.depth
		} else if o.Roots != nil && !inside[i] {
			continue
		}
		ev.Flags &^= trace.FlagLeaf
		k := ev.Task.Index
		if c != nil && ev.Kind == trace.Exit && lastCall[k] == c {
			ev.Flags |= trace.FlagLeaf
			out[last[k]].Flags |= trace.FlagLeaf
			out[last[k]].Dur = ev.Dur
		}
		lastCall[k] = nil
		if ev.Kind == trace.Entry {
			lastCall[k] = c
		}
		last[k] = len(out)
		out = append(out, ev)
	}
	lines := make([]string, len(out))
	for i := range out {
		lines[i] = line(&out[i])
	}
	return lines
}

func TestFilter(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for i := range 2000 {
		evs, calls := generate(r, 5+r.Intn(120))
		o := Options{}
		if r.Intn(2) == 0 {
			fn := uint32(1 + r.Intn(5))
			o.Match = func(f trace.FuncID) bool { return f.ID != fn }
		}
		if r.Intn(3) == 0 {
			fn := uint32(1 + r.Intn(5))
			o.Roots = func(f trace.FuncID) bool { return f.ID == fn }
		}
		if r.Intn(3) == 0 {
			o.Depth = 1 + r.Intn(4)
		}
		if r.Intn(2) == 0 {
			o.Threshold = int64(1 + r.Intn(30))
		}
		got := []string{}
		f := New(o, func(ev *trace.Event) error {
			got = append(got, line(ev))
			return nil
		})
		for k := range evs {
			ev := evs[k] // the walk reuses its event
			if err := f.Event(&ev); err != nil {
				t.Fatal(err)
			}
			ev = trace.Event{}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(oracle(evs, calls, o), got); d != "" {
			t.Fatalf("trace %d, match %t roots %t depth %d threshold %d (-want +got):\n%s",
				i, o.Match != nil, o.Roots != nil, o.Depth, o.Threshold, d)
		}
	}
}

// A call that contains millions of hidden ones must not make memory grow.
func TestFilterMemory(t *testing.T) {
	a, b := &trace.Task{TID: 1}, &trace.Task{Index: 1, TID: 2}
	f := New(Options{Threshold: 1 << 40, Match: func(f trace.FuncID) bool { return f.ID != 3 }}, func(*trace.Event) error { return nil })
	now := int64(0)
	put := func(k *trace.Task, kind trace.Kind, fn uint32, depth int, dur int64) {
		now++
		if err := f.Event(&trace.Event{Time: now, Task: k, Kind: kind, Func: trace.FuncID{ID: fn}, Depth: depth, Dur: dur}); err != nil {
			t.Fatal(err)
		}
	}
	put(a, trace.Entry, 1, 0, 0)
	put(b, trace.Entry, 1, 0, 0)
	for range 200_000 {
		put(a, trace.Entry, 2, 1, 0)
		put(b, trace.Entry, 2, 1, 0)
		put(a, trace.Entry, 3, 2, 0)
		put(a, trace.Exit, 3, 2, 1)
		put(b, trace.Exit, 2, 1, 3)
		put(a, trace.Exit, 2, 1, 5)
		if len(f.queue) > 1000 {
			t.Fatalf("%d events held back", len(f.queue))
		}
	}
}

// Ends of calls that began before the trace, or were unwound, are shown alone.
func TestFilterOrphans(t *testing.T) {
	k := &trace.Task{TID: 1}
	var got []string
	f := New(Options{Depth: 2, Threshold: 5}, func(ev *trace.Event) error {
		got = append(got, line(ev))
		return nil
	})
	for _, ev := range []trace.Event{
		{Time: 1, Kind: trace.Exit, Func: trace.FuncID{ID: 1}, Depth: 3, Flags: trace.FlagInherited, Dur: 9},
		{Time: 2, Kind: trace.Exit, Func: trace.FuncID{ID: 2}, Depth: 2, Flags: trace.FlagInherited, Dur: 4},
		{Time: 3, Kind: trace.Exit, Func: trace.FuncID{ID: 3}, Depth: 0, Flags: trace.FlagNoEntry},
		{Time: 4, Kind: trace.Entry, Func: trace.FuncID{ID: 4}, Depth: 0},
		{Time: 14, Kind: trace.Unwound, Func: trace.FuncID{ID: 4}, Depth: 0, Dur: 10},
		{Time: 24, Kind: trace.Exit, Func: trace.FuncID{ID: 4}, Depth: 0, Dur: 20, Flags: trace.FlagResumed},
	} {
		ev.Task = k
		if err := f.Event(&ev); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"1 t1 exit f1 depth 0 9",
		"3 t1 exit f3 depth 0 0",
		"4 t1 entry f4 depth 0",
		"14 t1 unwound f4 depth 0 10",
		"24 t1 exit f4 depth 0 20",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func BenchmarkFilter(b *testing.B) {
	evs, _ := generate(rand.New(rand.NewSource(1)), 10_000)
	f := New(Options{Threshold: 3, Match: func(f trace.FuncID) bool { return f.ID != 2 }}, func(*trace.Event) error { return nil })
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		ev := evs[i%len(evs)]
		if err := f.Event(&ev); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
}
