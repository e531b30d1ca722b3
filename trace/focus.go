package trace

import (
	"cmp"
	"slices"
	"strings"
)

// A Neighbour is a function with its calls and time as caller or callee of another one.
type Neighbour struct {
	Func  FuncID // zero: no traced function
	Name  string
	Calls uint64
	Total int64 // ns
}

// A Focused function is one with those around it, the sum of all its calls.
type Focused struct {
	Neighbour
	Self             int64
	Callers, Callees []Neighbour // by Total, longest first
}

func (n *Neighbour) compare(o *Neighbour) int {
	return cmp.Or(cmp.Compare(o.Total, n.Total), strings.Compare(n.Name, o.Name))
}

// Focus returns the functions that match with their callers and callees, by total time. The tree must be one in which
// recursion is not folded, see GraphOptions.KeepRecursion.
func (n *Node) Focus(match func(FuncID) bool) []Focused {
	f := focus{match: match, found: map[FuncID]*focusSums{}, open: map[FuncID]int{}}
	f.visit(n, nil)
	out := make([]Focused, 0, len(f.found))
	for _, s := range f.found {
		s.Callers, s.Callees = sortedNeighbours(s.callers), sortedNeighbours(s.callees)
		out = append(out, s.Focused)
	}
	slices.SortFunc(out, func(a, b Focused) int { return a.compare(&b.Neighbour) })
	return out
}

type focus struct {
	match func(FuncID) bool
	found map[FuncID]*focusSums
	open  map[FuncID]int // calls on the path
}

type focusSums struct {
	Focused
	callers, callees neighbours
}

type neighbours map[FuncID]*Neighbour

func (m neighbours) add(fn FuncID, name string, calls uint64, total int64) {
	n := m[fn]
	if n == nil {
		n = &Neighbour{Func: fn, Name: name}
		m[fn] = n
	}
	n.Calls += calls
	n.Total = addSat(n.Total, total)
}

func (f *focus) visit(n, parent *Node) {
	called := n.Func != FuncID{}
	if called {
		if f.match(n.Func) {
			f.take(n, parent)
		}
		f.open[n.Func]++
	}
	for _, k := range n.Children {
		f.visit(k, n)
	}
	if called {
		f.open[n.Func]--
	}
}

// take counts a node in focus.
func (f *focus) take(n, parent *Node) {
	s := f.found[n.Func]
	if s == nil {
		s = &focusSums{callers: neighbours{}, callees: neighbours{}}
		s.Func, s.Name = n.Func, n.Name
		f.found[n.Func] = s
	}
	s.Calls += n.Calls
	s.Self = addSat(s.Self, n.Self)
	if f.open[n.Func] == 0 {
		s.Total = addSat(s.Total, n.Total) // of a recursion, only the outermost
	}
	caller, name := FuncID{}, "(no traced caller)"
	if parent != nil && parent.Func != (FuncID{}) {
		caller, name = parent.Func, parent.Name
	}
	s.callers.add(caller, name, n.Calls, n.Total)
	for _, k := range n.Children {
		s.callees.add(k.Func, k.Name, k.Calls, k.Total)
	}
}

func sortedNeighbours(m neighbours) []Neighbour {
	var list []Neighbour
	for _, n := range m {
		list = append(list, *n)
	}
	slices.SortFunc(list, func(a, b Neighbour) int { return a.compare(&b) })
	return list
}
