package view

import (
	"github.com/fentry-dev/fentry/trace"
)

// maxFunctions is how many rows a table has: the longest, by total time.
const maxFunctions = 10_000

// A Table is the functions that were called in a scope.
type Table struct {
	Rows []TableRow `json:"rows"`
	More int        `json:"more"` // rows that do not fit
}

// A TableRow is a function with its calls. Times are in ns, -1 if unknown.
type TableRow struct {
	Func
	Calls      uint64 `json:"calls"`
	Total      int64  `json:"total"`
	Self       int64  `json:"self"`
	Avg        int64  `json:"avg"`
	Min        int64  `json:"min"`
	Max        int64  `json:"max"`
	P99        int64  `json:"p99"`
	Unwound    uint64 `json:"unwound,omitempty"`
	Unfinished uint64 `json:"unfinished,omitempty"`
	Errors     uint64 `json:"errors,omitempty"`
}

// Functions returns the table of functions of a scope, with Scope.Func of those inside its calls.
func (v *Viewer) Functions(s Scope) (*Table, error) {
	from, to := v.window(&s)
	rows, err := v.t.Report(trace.ReportOptions{Tasks: v.tasks(&s), From: from, To: to, Calls: s.inside()})
	if err != nil {
		return nil, err
	}
	t := &Table{Rows: make([]TableRow, 0, min(len(rows), maxFunctions))}
	for i := range rows {
		r := &rows[i]
		if len(t.Rows) == maxFunctions {
			t.More = len(rows) - i
			break
		}
		row := TableRow{
			Func: v.function(r.Func), Calls: r.Calls, Total: r.Total, Self: r.Self, Avg: r.Avg, Min: r.Min, Max: r.Max,
			P99: r.P99, Unwound: r.Unwound, Unfinished: r.Unfinished, Errors: r.Errors,
		}
		if r.Calls == 0 { // those that there are lie around the time
			row.Avg, row.Min, row.Max, row.P99 = -1, -1, -1, -1
		}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}

// inside chooses the calls of a function, with what happens in them.
func (s *Scope) inside() trace.Calls {
	if s.Func == (trace.FuncID{}) {
		return trace.Calls{}
	}
	return trace.Calls{Roots: func(id trace.FuncID) bool { return id == s.Func }}
}

// only chooses the calls of a function.
func (s *Scope) only() trace.Calls {
	if s.Func == (trace.FuncID{}) {
		return trace.Calls{}
	}
	return trace.Calls{Match: func(id trace.FuncID) bool { return id == s.Func }}
}

const (
	maxFlames  = 20_000 // nodes of a flame graph
	flameRows  = 256
	flameShare = 4000 // nodes of less than one part in so many are left out: they are narrower than a column
)

// A Flame is the merged calls of one path: a node of a flame graph. Recursive calls are below each other, as everywhere
// in flame graphs: what is inside of a node is never longer than it.
type Flame struct {
	Func     int      `json:"f"` // position in Flames.Funcs; -1: the root
	Calls    uint64   `json:"n"`
	Total    int64    `json:"t"`
	Self     int64    `json:"s"`
	Children []*Flame `json:"k,omitempty"`
}

// Flames is a flame graph.
type Flames struct {
	Funcs []Func `json:"funcs"`
	Root  *Flame `json:"root"`
	Less  int    `json:"less"` // nodes that are left out
	// Samples is how many stacks it is made of; 0: every call was counted.
	Samples int `json:"samples,omitempty"`
}

// Flames returns the flame graph of a scope, with Scope.Func of what happens in that function. quick: it may be made of
// samples.
func (v *Viewer) Flames(s Scope, quick bool) (*Flames, error) {
	if quick {
		if out := v.sampled(&s); out != nil {
			return out, nil
		}
	}
	from, to := v.window(&s)
	root, err := v.t.Graph(trace.GraphOptions{
		Tasks: v.tasks(&s), From: from, To: to, Calls: s.inside(), KeepRecursion: true, MaxDepth: flameRows,
	})
	if err != nil {
		return nil, err
	}
	out, left := &Flames{}, maxFlames
	funcs := funcNumbers{v: v}
	least := max(root.Total/flameShare, 1)
	var copyOf func(n *trace.Node) *Flame
	copyOf = func(n *trace.Node) *Flame {
		left--
		f := &Flame{Func: -1, Calls: n.Calls, Total: n.Total, Self: n.Self}
		if n.Func != (trace.FuncID{}) {
			f.Func = funcs.of(n.Func)
		}
		for _, k := range n.Children {
			if k.Total < least || left <= 0 {
				out.Less++
				continue
			}
			f.Children = append(f.Children, copyOf(k))
		}
		return f
	}
	out.Root = copyOf(root)
	out.Funcs = funcs.list
	return out, nil
}

// maxNeighbours is how many callers or callees are told.
const maxNeighbours = 500

// Around is a function with its callers and callees.
type Around struct {
	Func
	Calls   uint64      `json:"calls"`
	Total   int64       `json:"total"`
	Self    int64       `json:"self"`
	Callers []Neighbour `json:"callers"`
	Callees []Neighbour `json:"callees"`
	Source  string      `json:"source,omitempty"` // file:line
	Image   string      `json:"image,omitempty"`
}

// A Neighbour is a caller or callee. ID is "" for calls that no traced function made.
type Neighbour struct {
	Func
	Calls uint64 `json:"calls"`
	Total int64  `json:"total"`
}

// Around returns the callers and callees of Scope.Func.
func (v *Viewer) Around(s Scope) (*Around, error) {
	from, to := v.window(&s)
	root, err := v.t.Graph(trace.GraphOptions{
		Tasks: v.tasks(&s), From: from, To: to, KeepRecursion: true, MaxDepth: flameRows,
	})
	if err != nil {
		return nil, err
	}
	a := &Around{Func: v.function(s.Func), Callers: []Neighbour{}, Callees: []Neighbour{}}
	a.Image, a.Source = v.source(s.Func)
	for _, f := range root.Focus(func(id trace.FuncID) bool { return id == s.Func }) {
		a.Calls, a.Total, a.Self = f.Calls, f.Total, f.Self
		a.Callers, a.Callees = v.neighbours(f.Callers), v.neighbours(f.Callees)
	}
	return a, nil
}

func (v *Viewer) neighbours(list []trace.Neighbour) []Neighbour {
	out := []Neighbour{}
	for i := range list[:min(len(list), maxNeighbours)] {
		n := &list[i]
		one := Neighbour{Calls: n.Calls, Total: n.Total, Func: Func{Name: n.Name}}
		if n.Func != (trace.FuncID{}) {
			one.Func = v.function(n.Func)
		}
		out = append(out, one)
	}
	return out
}
