package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/trace"
)

// A neighbour is a function with its calls and time as caller or callee of the
// function in focus.
type neighbour struct {
	fn    trace.FuncID
	name  string
	calls uint64
	total int64
}

// A focused function with those around it.
type focused struct {
	neighbour
	self             int64
	callers, callees []neighbour
}

// focus collects callers and callees of all functions that match, from a tree
// in which recursion is not folded. The result is sorted by total time.
func focus(root *trace.Node, match func(trace.FuncID) bool) []focused {
	type sums struct {
		focused
		callers, callees map[trace.FuncID]*neighbour
	}
	found := map[trace.FuncID]*sums{}
	open := map[trace.FuncID]int{}
	add := func(m map[trace.FuncID]*neighbour, fn trace.FuncID, name string, calls uint64, total int64) {
		n := m[fn]
		if n == nil {
			n = &neighbour{fn: fn, name: name}
			m[fn] = n
		}
		n.calls += calls
		n.total += total
	}
	var visit func(n, parent *trace.Node)
	visit = func(n, parent *trace.Node) {
		called := n.Func != trace.FuncID{}
		if called && match(n.Func) {
			s := found[n.Func]
			if s == nil {
				s = &sums{callers: map[trace.FuncID]*neighbour{}, callees: map[trace.FuncID]*neighbour{}}
				s.fn, s.name = n.Func, n.Name
				found[n.Func] = s
			}
			s.calls += n.Calls
			s.self += n.Self
			if open[n.Func] == 0 {
				s.total += n.Total // of a recursion, only the outermost
			}
			caller, name := trace.FuncID{}, "(no traced caller)"
			if parent != nil && parent.Func != (trace.FuncID{}) {
				caller, name = parent.Func, parent.Name
			}
			add(s.callers, caller, name, n.Calls, n.Total)
			for _, k := range n.Children {
				add(s.callees, k.Func, k.Name, k.Calls, k.Total)
			}
		}
		if called {
			open[n.Func]++
		}
		for _, k := range n.Children {
			visit(k, n)
		}
		if called {
			open[n.Func]--
		}
	}
	visit(root, nil)
	sorted := func(m map[trace.FuncID]*neighbour) []neighbour {
		var list []neighbour
		for _, n := range m {
			list = append(list, *n)
		}
		slices.SortFunc(list, compareNeighbours)
		return list
	}
	var out []focused
	for _, s := range found {
		s.focused.callers, s.focused.callees = sorted(s.callers), sorted(s.callees)
		out = append(out, s.focused)
	}
	slices.SortFunc(out, func(a, b focused) int { return compareNeighbours(a.neighbour, b.neighbour) })
	return out
}

func compareNeighbours(a, b neighbour) int {
	switch {
	case a.total > b.total:
		return -1
	case a.total < b.total:
		return 1
	}
	return strings.Compare(a.name, b.name)
}

// focusLine is a line of graph --focus --json: relation is function, caller or
// callee; of is the function in focus. Times are in nanoseconds.
type focusLine struct {
	Relation string `json:"relation"`
	Of       string `json:"of"`
	Name     string `json:"name"`
	Source   string `json:"source,omitempty"`
	Calls    uint64 `json:"calls"`
	Total    int64  `json:"total_ns"`
	Self     *int64 `json:"self_ns,omitempty"`
}

func (c *graphCmd) writeFocus(out *output, fs []focused, total int64, src *sources) error {
	if c.json {
		return writeFocusJSON(out, fs, src)
	}
	least := int64(c.min / 100 * float64(total))
	line := func(n neighbour, self, label string) {
		if l := src.line(n.fn); l != "" {
			label += out.paint.with(sgrDim, "  "+l)
		}
		fmt.Fprintf(out, "%12s %12s %12s %7s  %s\n",
			grouped(n.calls), durationCell(n.total), self, percent(n.total, total), label)
	}
	for i := range fs {
		f := &fs[i]
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintln(out, out.paint.with(sgrBold, graphHeading(false)))
		for _, n := range f.callers {
			if n.total >= least {
				line(n, "", "  ┌─ "+printable(n.name))
			}
		}
		line(f.neighbour, durationCell(f.self), out.paint.with(sgrBold, printable(f.name)))
		for _, n := range f.callees {
			if n.total >= least {
				line(n, "", "  └─ "+printable(n.name))
			}
		}
	}
	return out.Flush()
}

func writeFocusJSON(out *output, fs []focused, src *sources) error {
	enc := json.NewEncoder(safetext.JSONWriter(out))
	enc.SetEscapeHTML(false)
	for i := range fs {
		f := &fs[i]
		lines := []focusLine{{
			Relation: "function", Of: f.name, Name: f.name, Source: src.line(f.fn),
			Calls: f.calls, Total: f.total, Self: &f.self,
		}}
		for _, n := range f.callers {
			name := n.name
			if n.fn == (trace.FuncID{}) {
				name = ""
			}
			lines = append(lines, focusLine{
				Relation: "caller", Of: f.name, Name: name, Source: src.line(n.fn), Calls: n.calls, Total: n.total,
			})
		}
		for _, n := range f.callees {
			lines = append(lines, focusLine{
				Relation: "callee", Of: f.name, Name: n.name, Source: src.line(n.fn), Calls: n.calls, Total: n.total,
			})
		}
		for _, l := range lines {
			if err := enc.Encode(l); err != nil {
				return err
			}
		}
	}
	return nil
}
