//go:build linux

package tracefs

import (
	"math/big"
	"slices"
)

// Settings are what an instance is to record. They are values: a change makes new ones, and an epoch of them (see
// epochs). So are the sets in them.
type settings struct {
	on        bool
	tracer    string
	functions *set // set_ftrace_filter
	notrace   *set
	graph     *set // set_graph_function
	noGraph   *set
	maxDepth  int64           // 0: any
	threshold int64           // ns; 0: none
	tids      map[int]bool    // set_ftrace_pid; nil: all
	noTids    map[int]bool    // set_ftrace_notrace_pid
	cpus      *big.Int        // tracing_cpumask, by number; nil: all
	flags     map[string]bool // options, by name
	events    eventSettings
	// Whose events: set_event_pid, nil: all, and set_event_notrace_pid.
	eventTids, noEventTids map[int]bool
}

// Tracers, as current_tracer has them.
const (
	tracerNop      = "nop"
	tracerFunction = "function"
	tracerGraph    = "function_graph"
)

var tracers = []string{tracerGraph, tracerFunction, tracerNop}

func newSettings() settings {
	s := settings{on: true, tracer: tracerNop, functions: &set{}, notrace: &set{}, graph: &set{}, noGraph: &set{}}
	s.flags = make(map[string]bool)
	for _, o := range options {
		s.flags[o.name] = o.on
	}
	return s
}

// records tells whether calls of a function are to be recorded.
func (s *settings) records(fn int) bool {
	return s.on && s.tracer != tracerNop && s.chosen(fn)
}

// chosen tells whether the filters let a function through.
func (s *settings) chosen(fn int) bool {
	return (s.functions.empty() || s.functions.has(fn)) && !s.notrace.has(fn)
}

// An epoch is what holds from a time on.
type epoch struct {
	from uint64 // counter
	settings
}

// epochs are an instance's settings in the order of time; there is always one.
type epochs []epoch

// mostEpochs bounds how many are remembered: events that are older than all of them are shown as the oldest says.
const mostEpochs = 4096

func (e *epochs) add(from uint64, s settings) {
	if n := len(*e); n >= mostEpochs {
		*e = slices.Delete(*e, 0, n/2)
	}
	*e = append(*e, epoch{from, s})
}

// now are the settings that hold now.
func (e epochs) now() *settings { return &e[len(e)-1].settings }

// An option is one of trace_options.
type option struct {
	name string
	on   bool
}

// options are those that there are, as they are at first, in the order in which they are listed.
var options = []option{
	{"print-parent", true}, {"sym-offset", false}, {"sym-addr", false}, {"annotate", true}, {"markers", true},
	{"overwrite", true}, {"irq-info", true}, {"record-cmd", true}, {"record-tgid", false}, {"pause-on-trace", false},
	{"function-fork", false}, {"event-fork", false},
	{"funcgraph-cpu", true}, {"funcgraph-overhead", true}, {"funcgraph-proc", false}, {"funcgraph-duration", true},
	{"funcgraph-abstime", false}, {"funcgraph-tail", false},
}
