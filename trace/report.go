package trace

import (
	"errors"
	"math"
	"math/big"
	"slices"
	"sync"

	"github.com/fentry-dev/fentry/internal/parallel"
)

// ReportOptions say what [Trace.Report] counts. The zero value counts all tasks, with one row per function.
type ReportOptions struct {
	Tasks []*Task // nil: all
	// PerTask makes a row for each function and task, PerProcess for each function and process.
	PerTask, PerProcess bool
	// From and To bound the time, as in WalkOptions. Of calls that reach out of it, the part inside counts; those that
	// began before From do not count as calls.
	From, To int64
	// Calls are those that count.
	Calls Calls
	// Waits asks for CPU, Wait, Unknown, Running and Waiting.
	Waits bool
	// Workers is the number of tasks read in parallel; 0: one per processor.
	Workers int
}

// A FuncStat is a row of a report. Times are in ns, -1 if unknown: the function tracer gives none, the profile tracer
// no Min, StdDev and P99.
type FuncStat struct {
	Func FuncID
	Name string
	Task *Task // ReportOptions.PerTask: whose calls these are; PerProcess: the process's first task; else nil
	// Calls is the number of entries.
	Calls uint64
	// Total is the time from entry to exit; of recursive calls only the outermost counts, so it never exceeds the
	// tasks' time.
	Total int64
	// Sum counts every call in full, recursive ones too: Sum/Calls is the
	// average call.
	Sum  int64
	Self int64 // time in the function itself
	// CPU, Wait and Unknown are parts of Total, and together all of it: time on a processor, time off it, and time of
	// which it is not known which of both it was. -1: nothing is known at all; 0 unless ReportOptions.Waits.
	CPU, Wait, Unknown int64
	// Running and Waiting are parts of Total of calls in a Go program, and together all of it: Waiting is how long their
	// goroutines were parked, up to when they ran again. -1: it is not known; 0 unless ReportOptions.Waits.
	Running, Waiting int64
	// Min, Avg, Max, StdDev and P99 are those of single calls.
	Min, Avg, Max, P99 int64
	StdDev             float64
	// Unwound calls ended by longjmp or an exception; Unfinished ones were open
	// at the end of the trace or the thread. Both count, up to that point.
	Unwound, Unfinished uint64
	// NoEntry is the number of exits whose entry is not in the trace; they are not counted as calls.
	NoEntry uint64
	// Errors is the number of system calls that ended with an error.
	Errors uint64
	// Hist holds the calls' durations, nil if they are unknown.
	Hist *Histogram
}

// Report counts calls and times of every function that was called, sorted by
// Total, longest first. Memory does not depend on the trace's length.
func (t *Trace) Report(o ReportOptions) ([]FuncStat, error) {
	tasks := o.Tasks
	if tasks == nil {
		tasks = t.Tasks
	}
	c := t.choose(o.From, o.To, o.Calls)
	rows, err := t.countWithIndex(c, tasks, o)
	if errors.Is(err, errBlocks) {
		rows, err = t.countCalls(c, nil, false, tasks, o)
	}
	if err != nil {
		return nil, err
	}
	if c != nil {
		rows = slices.DeleteFunc(rows, func(s FuncStat) bool {
			return s.Calls == 0 && s.NoEntry == 0 && s.Total <= 0 && s.Self <= 0
		})
	}
	for i := range rows {
		rows[i].Name = t.Name(rows[i].Func)
	}
	slices.SortFunc(rows, compareRows)
	return rows, nil
}

// countWithIndex is countCalls with the index, as far as there is one and it helps.
func (t *Trace) countWithIndex(c *choice, tasks []*Task, o ReportOptions) ([]FuncStat, error) {
	if t.blocks == nil || !c.nests() {
		return t.countCalls(c, t.indexFor(c, o.Tasks), false, tasks, o)
	}
	if c == nil {
		c = &choice{to: math.MaxUint64, whole: true}
	}
	return t.countCalls(c, t.blocks, true, tasks, o)
}

// countCalls returns the rows of a report without names, in no order: with the index x, if it is not nil, and its sums.
func (t *Trace) countCalls(c *choice, x *blockIndex, sums bool, tasks []*Task, o ReportOptions) ([]FuncStat, error) {
	var mu sync.Mutex
	var rows []FuncStat
	total, waits := newReport(t), t.waitsWanted(o.Waits)
	total.waits = waits
	processes := map[*Process]*report{}
	err := t.eachTask(c, x, tasks, o.Workers, func() taskSink {
		r := newReport(t)
		r.waits = waits
		s := c.chosen(t, x, r)
		if sums {
			s.(*chosenSink).sums = &blockSums{paths: !c.alone(), least: t.least(c)}
		}
		return s
	}, func(s taskSink, k *Task) {
		r := counting(s).(*report)
		if o.PerTask {
			part := r.rows(k)
			r.reset()
			mu.Lock()
			rows = append(rows, part...)
			mu.Unlock()
		} else if o.PerProcess {
			mu.Lock()
			if processes[k.Process] == nil {
				processes[k.Process] = newReport(t)
				processes[k.Process].waits = waits
			}
			processes[k.Process].merge(r)
			mu.Unlock()
			r.reset()
		}
	}, func(s taskSink) {
		mu.Lock()
		total.merge(counting(s).(*report))
		mu.Unlock()
	})
	switch {
	case err != nil || o.PerTask:
	case o.PerProcess:
		for p, r := range processes {
			rows = append(rows, r.rows(p.Tasks[0])...)
		}
	default:
		rows = total.rows(nil)
	}
	return rows, err
}

func compareRows(a, b FuncStat) int {
	sign := func(a, b int64) int {
		switch {
		case a < b:
			return -1
		case a > b:
			return 1
		}
		return 0
	}
	for _, d := range []int{
		sign(b.Total, a.Total), sign(b.Self, a.Self), sign(int64(b.Calls), int64(a.Calls)),
		sign(int64(a.Func.Image), int64(b.Func.Image)), sign(int64(a.Func.ID), int64(b.Func.ID)),
	} {
		if d != 0 {
			return d
		}
	}
	if a.Task != nil && b.Task != nil {
		return a.Task.Index - b.Task.Index
	}
	return 0
}

// A counter holds the counts of one function, in ticks. What every call touches comes first.
type counter struct {
	active   int32 // open calls in the current task
	profiled bool  // counts of the profile tracer are among them
	sums
	hist  Histogram // of ticks
	fn    FuncID
	off   offTime // of total
	marks offMarks
}

// report is the sink that counts.
type report struct {
	t    *Trace
	fl   *follower
	tab  funcTable
	cnts []counter

	waits wants // counter.off
}

func newReport(t *Trace) *report { return &report{t: t} }

func (r *report) reset() { r.tab, r.cnts = funcTable{}, nil }

// counter returns a function's counter, good until the next call, and its number.
func (r *report) counter(fn FuncID) (*counter, int32) {
	p := r.tab.slot(fn)
	if *p == 0 {
		r.cnts = append(r.cnts, counter{fn: fn, sums: sums{min: math.MaxUint64}})
		*p = int32(len(r.cnts))
	}
	return &r.cnts[*p-1], *p - 1
}

func (r *report) begin(fl *follower) { r.fl = fl }

func (r *report) asksForWaits() bool { return r.waits.marked() }

func (r *report) enter(f *frame) {
	c, ref := r.counter(f.fn)
	f.ref = ref
	if c.active == 0 {
		f.flags |= frameOutermost
		if r.waits.marked() {
			c.marks.mark(r.fl, f)
		}
	}
	c.active++
	if f.flags&frameInherited == 0 {
		c.calls++
	}
}

func (r *report) call(fn FuncID) {
	c, _ := r.counter(fn)
	c.calls++
	c.flat = true
}

func (r *report) forget(f *frame) {
	c := &r.cnts[f.ref]
	r.unmark(c, f)
	c.active--
	c.self = addTicks(c.self, f.self)
}

// unmark takes back what enter has noted for a call that is none, or does not count.
func (r *report) unmark(c *counter, f *frame) {
	if f.flags&frameOutermost != 0 && r.waits.marked() {
		c.marks.take(r.fl, f)
	}
}

// remark notes what enter does, of a call that was taken for an outermost one and is none, or the other way round.
func (r *report) remark(f *frame) {
	c := &r.cnts[f.ref]
	switch {
	case !r.waits.marked():
	case f.flags&frameOutermost != 0:
		c.marks.mark(r.fl, f)
	default:
		c.marks.take(r.fl, f)
	}
}

func (r *report) drop(f *frame) {
	c := &r.cnts[f.ref]
	r.unmark(c, f)
	if f.flags&frameSuspended == 0 {
		c.active--
	}
	if f.flags&frameInherited == 0 {
		c.calls--
	}
}

func (r *report) suspend(f *frame) { r.cnts[f.ref].active-- }

func (r *report) leave(f *frame, end uint64, how ending) {
	c := &r.cnts[f.ref]
	if f.flags&frameSuspended == 0 {
		c.active--
	}
	var dur uint64
	if end > f.start {
		dur = end - f.start
	}
	outermost := f.flags&frameOutermost != 0
	c.end(f, dur, outermost, how)
	if f.flags&frameInherited == 0 {
		c.hist.Add(int64(min(dur, math.MaxInt64)))
	}
	if outermost && r.waits.marked() {
		c.off.add(c.marks.since(r.fl, f, end, dur))
	}
}

func (r *report) orphan(fn FuncID) {
	c, _ := r.counter(fn)
	c.noEntry++
}

func addSat(a, b int64) int64 {
	if s := a + b; s >= a {
		return s
	}
	return math.MaxInt64
}

func (r *report) merge(o *report) {
	for i := range o.cnts {
		oc := &o.cnts[i]
		c, _ := r.counter(oc.fn)
		c.profiled = c.profiled || oc.profiled
		c.merge(&oc.sums)
		c.off.add(oc.off)
		c.hist.Merge(&oc.hist)
	}
}

func (r *report) rows(k *Task) []FuncStat {
	rows := make([]FuncStat, 0, len(r.cnts))
	clock := &r.t.Clock
	for i := range r.cnts {
		c := &r.cnts[i]
		// A coroutine's call can seem to be inside another one of the function, on a stack close by, and outlive
		// it. What it did by itself then belongs to no outermost call.
		total := max(c.total, c.self)
		s := FuncStat{
			Func: c.fn, Task: k, Calls: c.calls, Total: clock.Span(total), Sum: clock.Span(c.sum), Self: clock.Span(c.self),
			Max: clock.Span(c.max), Unwound: c.unwound, Unfinished: c.unfinished, NoEntry: c.noEntry,
			Errors: c.errors,
		}
		c.off.unknown += total - c.total
		s.CPU, s.Wait, s.Unknown = c.off.parts(s.Total, clock, r.waits)
		s.Running, s.Waiting = r.t.parked(&c.off, s.Total, r.waits)
		if c.ended > 0 {
			s.Min = clock.Span(c.min)
			s.Avg = int64(uint64(s.Sum) / c.ended)
			s.StdDev = c.sq.stdDev(c.sum, c.ended) * 1e9 / clock.Hz
			// The bucket's middle can lie beyond the longest call.
			s.P99 = min(max(clock.Span(uint64(c.hist.Quantile(0.99))), s.Min), s.Max)
			s.Hist = c.hist.spans(clock)
		}
		if c.profiled {
			if c.calls > 0 {
				s.Avg = int64(uint64(s.Sum) / c.calls)
			}
			s.Min, s.P99, s.StdDev, s.Hist = -1, -1, -1, nil
		}
		if r.waits != noWaits && (c.profiled || c.flat && c.ended == 0) {
			s.CPU, s.Wait, s.Unknown, s.Running, s.Waiting = -1, -1, -1, -1, -1
		}
		if r.t.Clockless() || c.flat && c.ended == 0 && !c.profiled {
			s.Total, s.Sum, s.Self, s.Min, s.Avg, s.Max, s.P99, s.StdDev, s.Hist = -1, -1, -1, -1, -1, -1, -1, -1, nil
		}
		rows = append(rows, s)
	}
	return rows
}

// stdDev is the standard deviation of n values with the given sum.
func (q sqSum) stdDev(sum, n uint64) float64 {
	if n < 2 {
		return 0
	}
	// n*sum(x^2) - sum(x)^2 loses all its digits in floating point.
	sq := new(big.Int).SetUint64(q.hi)
	sq.Lsh(sq, 64).Add(sq, new(big.Int).SetUint64(q.lo))
	bn := new(big.Int).SetUint64(n)
	s := new(big.Int).SetUint64(sum)
	v := sq.Mul(sq, bn).Sub(sq, s.Mul(s, s))
	if v.Sign() <= 0 {
		return 0
	}
	f, _ := new(big.Float).SetInt(v).Float64()
	return math.Sqrt(f / float64(n) / float64(n-1))
}

func workers(n, tasks int) int {
	if n <= 0 {
		n = parallel.Processors()
	}
	return max(1, min(n, tasks))
}
