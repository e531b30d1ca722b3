// Package export is what the exporters have in common: the part of a trace that is exported, calls as spans that nest,
// and what a format could not hold.
//
// Each format is a package of its own with a function Write, a pure function from a trace to a writer:
//
//	s := export.From(t)
//	sum, err := pprof.Write(w, s)
//
// Package formats lists them. Writers stream: their memory grows with the number of tasks, functions, open calls and
// different call paths, not with the length of the trace. The same trace gives the same bytes.
//
// # Security
//
// Names come from programs and traces, which may be anybody's. Formats that are text have them as package safetext
// leaves them; binary formats have them as they are, made valid UTF-8 where the format asks for that: what shows them
// has to take care.
package export

import (
	"slices"

	"github.com/fentry-dev/fentry/trace"
)

// A Source is a trace, or the part of it that is exported. From makes one of a whole trace.
type Source struct {
	Trace *trace.Trace
	// Tasks are the tasks to be exported, in the order of Trace.Tasks.
	Tasks []*trace.Task
	// Walk calls emit with the events to be exported of some of Tasks, as Trace.Walk does.
	Walk func(tasks []*trace.Task, emit func(*trace.Event) error) error
	// Graph merges the calls to be exported by their paths, as Trace.Graph does. Tasks, From, To and Calls of the
	// options are the source's.
	Graph func(trace.GraphOptions) (*trace.Node, error)
}

// From returns a whole trace as a source.
func From(t *trace.Trace) *Source {
	return &Source{
		Trace: t,
		Tasks: t.Tasks,
		Walk: func(tasks []*trace.Task, emit func(*trace.Event) error) error {
			return t.Walk(trace.WalkOptions{Tasks: tasks}, emit)
		},
		Graph: func(o trace.GraphOptions) (*trace.Node, error) {
			o.Tasks = nil
			return t.Graph(o)
		},
	}
}

// A Summary says what an exporter wrote.
type Summary struct {
	Calls uint64 // calls in the output
	Left  []Left // what the format could not hold, each sort once, in the order it was met
}

// Left is a sort of things that a format could not hold.
type Left struct {
	What  string // in the plural, such as "marks"
	Count uint64
}

// Leave adds n things to what was left out.
func (s *Summary) Leave(what string, n uint64) {
	if n == 0 {
		return
	}
	if i := slices.IndexFunc(s.Left, func(l Left) bool { return l.What == what }); i >= 0 {
		s.Left[i].Count += n
		return
	}
	s.Left = append(s.Left, Left{what, n})
}

// LeaveEvent is Leave for an event that is no call's.
func (s *Summary) LeaveEvent(ev *trace.Event) {
	if what := left[ev.Kind]; what != "" {
		s.Leave(what, 1)
	}
}

// LeaveValues is Leave for what is known of arguments and results at the end of a call that an event is.
func (s *Summary) LeaveValues(ev *trace.Event) {
	if HasValues(ev) {
		s.Leave("arguments and results", 1)
	}
}

// left names the events that are no calls'. What is missing says nothing about what happened, so it is absent here:
// starts, ends and names of threads are in the formats' own way, and changes of stack make tracks.
var left = map[trace.Kind]string{
	trace.Lost:      "notes of lost events",
	trace.Mark:      "marks",
	trace.Cut:       "records that were cut",
	trace.Unknown:   "records of unknown types",
	trace.SwitchOff: "notes of functions that were switched off",

	trace.SignalDelivered: "signals",
	trace.Trigger:         "notes of triggers",
	trace.Stacktrace:      "backtraces",
}

// Note is the name of an event that is shown as an instant: the function of a call that has no end, or NoteText. ok is
// false for others, which are left out.
func (s *Summary) Note(t *trace.Trace, ev *trace.Event) (name string, ok bool) {
	if ev.Kind == trace.Entry {
		return t.Name(ev.Func), true
	}
	if name, ok = NoteText(t, ev); !ok {
		s.LeaveEvent(ev)
	}
	return name, ok
}

// maxCached bounds what a Cache keeps when a damaged trace has functions without end.
const maxCached = 1 << 20

// A Cache keeps what a writer has made of each function.
type Cache[V any] struct {
	Make  func(trace.FuncID) V
	known map[trace.FuncID]V
}

// Get returns what Make made of a function.
func (c *Cache[V]) Get(id trace.FuncID) V {
	v, ok := c.known[id]
	if !ok {
		if c.known == nil {
			c.known = map[trace.FuncID]V{}
		}
		if v = c.Make(id); len(c.known) < maxCached {
			c.known[id] = v
		}
	}
	return v
}
