package hot

import (
	"math"
	"testing"

	"github.com/fentry-dev/fentry/trace"
)

// play has a Counter see events of one thread: entries and exits of functions by time.
func play(c *Counter, k *trace.Task, events ...trace.Event) {
	for i := range events {
		events[i].Task = k
		c.Event(&events[i])
	}
}

func enter(at int64, fn uint32, depth int) trace.Event {
	return trace.Event{Kind: trace.Entry, Time: at, Func: trace.FuncID{ID: fn}, Depth: depth}
}

func exit(at int64, fn uint32, depth int, dur int64) trace.Event {
	return trace.Event{Kind: trace.Exit, Time: at, Func: trace.FuncID{ID: fn}, Depth: depth, Dur: dur}
}

// check compares a row.
func check(t *testing.T, rows []Row, fn uint32, want Row) {
	t.Helper()
	for _, r := range rows {
		if r.Func.ID != fn {
			continue
		}
		for _, v := range [][2]float64{{r.Calls, want.Calls}, {r.Total, want.Total}, {r.Self, want.Self}, {r.Avg, want.Avg}} {
			if math.Abs(v[0]-v[1]) > 1e-9*math.Max(1, math.Abs(v[1])) {
				t.Errorf("function %d: %+v, want %+v", fn, r, want)
				return
			}
		}
		return
	}
	t.Errorf("function %d has no row", fn)
}

func TestIntervals(t *testing.T) {
	var c Counter
	k := &trace.Task{PID: 1, TID: 1}
	c.Begin(0)
	// 1 calls 2 twice, the second time recursively, and has not ended when the interval has.
	play(&c, k, enter(100, 1, 0), enter(200, 2, 1), exit(300, 2, 1, 100), enter(400, 2, 1), enter(500, 2, 2),
		exit(600, 2, 2, 100), exit(700, 2, 1, 300))
	rows := c.Rows(1000)
	check(t, rows, 1, Row{Calls: 1e6, Total: 0.9, Self: 0.5, Avg: -1})
	check(t, rows, 2, Row{Calls: 3e6, Total: 0.4, Self: 0.4, Avg: 500. / 3})
	// It goes on through an interval without an event, and ends in a third.
	c.Begin(1000)
	check(t, c.Rows(2000), 1, Row{Total: 1, Self: 1, Avg: -1})
	c.Begin(2000)
	play(&c, k, exit(2500, 1, 0, 2400))
	check(t, c.Rows(3000), 1, Row{Total: 0.5, Self: 0.5, Avg: 2400})
	c.Begin(3000)
	if rows := c.Rows(4000); len(rows) != 0 {
		t.Error(rows)
	}
}

// TestBefore: calls of before the interval, of which the first look tells, took nothing of it.
func TestBefore(t *testing.T) {
	var c Counter
	k := &trace.Task{PID: 1, TID: 1}
	c.Begin(1000)
	play(&c, k, enter(100, 1, 0), exit(200, 1, 0, 100), enter(300, 1, 0), exit(400, 1, 0, 100), enter(500, 1, 0))
	check(t, c.Rows(2000), 1, Row{Calls: 3e6, Total: 1, Self: 1, Avg: 100})
	c = Counter{}
	c.Begin(1000)
	play(&c, k, enter(100, 1, 0), exit(200, 1, 0, 100), enter(1200, 1, 0), exit(1300, 1, 0, 100))
	check(t, c.Rows(2000), 1, Row{Calls: 2e6, Total: 0.1, Self: 0.1, Avg: 100})
}

// TestGap: of half of the time nothing is known, so there is twice as much.
func TestGap(t *testing.T) {
	var c Counter
	k := &trace.Task{PID: 1, TID: 1}
	c.Begin(0)
	play(&c, k, enter(0, 1, 0), enter(100, 2, 1), exit(500, 2, 1, 400),
		trace.Event{Kind: trace.Lost, Time: 1000})
	rows := c.Rows(1000)
	check(t, rows, 2, Row{Calls: 2e6, Total: 0.8, Self: 0.8, Avg: 400})
	check(t, rows, 1, Row{Calls: 2e6, Total: 1, Self: 0.2, Avg: -1})
	if c.Gaps != 500 {
		t.Error(c.Gaps)
	}
}

// TestThreads: what threads do is added up, and stacks of one do not mix.
func TestThreads(t *testing.T) {
	var c Counter
	c.Begin(0)
	for tid := range 2 {
		k := &trace.Task{PID: 1, TID: 1 + tid}
		other := enter(200, 2, 0)
		other.Stack = 7
		play(&c, k, enter(0, 1, 0), other)
	}
	rows := c.Rows(1000)
	check(t, rows, 1, Row{Calls: 2e6, Total: 2, Self: 0.4, Avg: -1})
	check(t, rows, 2, Row{Calls: 2e6, Total: 1.6, Self: 1.6, Avg: -1})
	if c.Threads() != 2 {
		t.Error(c.Threads())
	}
}
