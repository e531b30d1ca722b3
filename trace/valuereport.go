package trace

// Calls by what they were made with. A report counts functions and can take its numbers from the index; values are in
// the events alone, so this walks over all of them, and remembers for each open call which group it is in.

import (
	"cmp"
	"slices"

	"github.com/fentry-dev/fentry/arguments"
)

// ValueOptions say what [Trace.ReportValues] counts.
type ValueOptions struct {
	Walk  WalkOptions
	Match func(FuncID) bool // functions whose calls are counted
	// Name is that of a parameter, or argN, by which calls are grouped; "retval": the result.
	Name string
	// When says which calls are counted; nil: all.
	When func(*Event) bool
}

// ResultName in ValueOptions.Name is a function's result.
const ResultName = "retval"

// A ValueStat is the calls of a function that had one value in common.
type ValueStat struct {
	Func  FuncID
	Value string // as it is shown
	Calls uint64
	// Sum is the time that calls took from entry to exit, in full for recursive ones, too; Min and Max are those of single
	// calls.
	Sum, Min, Max int64
}

// maxValues bounds the values that are told apart: others are counted as OtherValues.
const maxValues = 1 << 20

// OtherValues is the Value of calls beyond those that are told apart.
const OtherValues = "<others>"

// ReportValues counts the calls of functions by a value that was captured of them, longest first. Calls of which it was
// not captured are not counted. Memory depends on how many values there are, up to a limit.
func (t *Trace) ReportValues(o ValueOptions) ([]ValueStat, error) {
	g := grouper{t: t, o: o, groups: map[groupKey]int{}, open: map[*Task]map[callKey]int{}}
	if err := t.Walk(o.Walk, g.event); err != nil {
		return nil, err
	}
	slices.SortStableFunc(g.stats, func(a, b ValueStat) int {
		return cmp.Or(cmp.Compare(b.Sum, a.Sum), cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Value, b.Value))
	})
	return g.stats, nil
}

type groupKey struct {
	fn    FuncID
	value string
}

type callKey struct {
	stack uint64
	depth int
}

type grouper struct {
	t      *Trace
	o      ValueOptions
	stats  []ValueStat
	groups map[groupKey]int
	open   map[*Task]map[callKey]int // groups of calls that have not ended
}

func (g *grouper) event(ev *Event) error {
	switch {
	case ev.Func.ID == 0 || ev.Flags&FlagOpen != 0 || g.o.Match != nil && !g.o.Match(ev.Func):
	case ev.Kind == Entry:
		g.enter(ev)
	case ev.Kind == Exit, ev.Kind == Unwound, ev.Kind == Unfinished:
		g.leave(ev)
	}
	return nil
}

// enter groups a call by its arguments. One by its result is grouped when it ends.
func (g *grouper) enter(ev *Event) {
	c := g.t.Capture(ev)
	if c == nil || ev.Args == nil && g.o.Name != ResultName || g.o.When != nil && !g.o.When(ev) {
		return
	}
	group := byResult
	if g.o.Name != ResultName {
		v := c.Param(g.o.Name)
		if v == nil || ev.Args.Open {
			return
		}
		group = g.group(ev.Func, v, ev.Args)
		g.stats[group].Calls++
	}
	calls := g.open[ev.Task]
	if calls == nil {
		calls = map[callKey]int{}
		g.open[ev.Task] = calls
	}
	if ev.Flags&FlagEntryOnly == 0 {
		calls[callKey{ev.Stack, ev.Depth}] = group
	}
}

// byResult is the group of a call whose result is not known yet.
const byResult = -1

func (g *grouper) leave(ev *Event) {
	key := callKey{ev.Stack, ev.Depth}
	group, ok := g.open[ev.Task][key]
	if !ok || ev.Flags&(FlagNoEntry|FlagResumed) != 0 {
		return
	}
	delete(g.open[ev.Task], key)
	if group == byResult {
		c := g.t.Capture(ev)
		if c == nil || c.Result == nil || ev.Result == nil || ev.Result.Open {
			return
		}
		group = g.group(ev.Func, c.Result, ev.Result)
		g.stats[group].Calls++
	}
	s := &g.stats[group]
	if s.Min < 0 || ev.Dur < s.Min {
		s.Min = ev.Dur
	}
	s.Sum += ev.Dur
	s.Max = max(s.Max, ev.Dur)
}

// group finds the group of a value, or makes it.
func (g *grouper) group(fn FuncID, v *arguments.Value, c *Captured) int {
	key := groupKey{fn, string(v.AppendText(nil, c.Words, c.Memory()))}
	i, ok := g.groups[key]
	if !ok && len(g.groups) >= maxValues {
		key.value = OtherValues
		i, ok = g.groups[key]
	}
	if !ok {
		i = len(g.stats)
		g.stats = append(g.stats, ValueStat{Func: fn, Value: key.value, Min: -1})
		g.groups[key] = i
	}
	return i
}
