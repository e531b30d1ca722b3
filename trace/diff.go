package trace

import (
	"cmp"
	"math"
	"slices"
)

// What changed between two traces. They are of different runs, and often of different builds: addresses and numbers of
// functions mean nothing across them, so functions are the same if their names are, and call paths if all names on them
// are. Static functions of one name in different files are therefore one function here.

// A FuncChange is a function in two traces. Its rows are those of reports without PerTask and PerProcess; Calls is 0 in
// the one of a trace in which it was not called.
type FuncChange struct {
	Name     string
	Old, New FuncStat
}

// CompareReports pairs the rows of two reports by the functions' names, by name.
func CompareReports(before, after []FuncStat) []FuncChange {
	index := map[string]int{}
	var changes []FuncChange
	at := func(s *FuncStat) *FuncChange {
		i, ok := index[s.Name]
		if !ok {
			i = len(changes)
			index[s.Name] = i
			changes = append(changes, FuncChange{Name: s.Name})
		}
		return &changes[i]
	}
	for i := range before {
		at(&before[i]).Old.join(&before[i])
	}
	for i := range after {
		at(&after[i]).New.join(&after[i])
	}
	slices.SortFunc(changes, func(a, b FuncChange) int { return cmp.Compare(a.Name, b.Name) })
	return changes
}

// join adds the calls of another function of the same name.
func (s *FuncStat) join(o *FuncStat) {
	if s.Name == "" {
		*s = *o
		return
	}
	all := *s
	all.Calls += o.Calls
	all.Total = addKnown(s.Total, o.Total)
	all.Sum = addKnown(s.Sum, o.Sum)
	all.Self = addKnown(s.Self, o.Self)
	all.CPU = addKnown(s.CPU, o.CPU)
	all.Wait = addKnown(s.Wait, o.Wait)
	all.Unknown = addKnown(s.Unknown, o.Unknown)
	all.Running = addKnown(s.Running, o.Running)
	all.Waiting = addKnown(s.Waiting, o.Waiting)
	all.Max = max(s.Max, o.Max)
	all.Unwound += o.Unwound
	all.Unfinished += o.Unfinished
	all.NoEntry += o.NoEntry
	all.Errors += o.Errors
	switch {
	case s.Hist != nil && o.Hist != nil:
		all.joinSingle(s, o)
	case o.Hist != nil:
		all.Avg, all.Min, all.P99, all.StdDev, all.Hist = o.Avg, o.Min, o.P99, o.StdDev, o.Hist
	case s.Hist == nil && all.Calls > 0 && s.Avg >= 0: // profiles
		all.Avg = all.Sum / int64(all.Calls)
	}
	*s = all
}

// joinSingle sets what is known of single calls of two functions.
func (s *FuncStat) joinSingle(a, b *FuncStat) {
	m, n := float64(a.Hist.Count()), float64(b.Hist.Count())
	avg := (m*float64(a.Avg) + n*float64(b.Avg)) / (m + n)
	// The variance of both is the mean of both variances and of the means' distances from the common one.
	apart := func(v *FuncStat) float64 { return v.StdDev*v.StdDev + (float64(v.Avg)-avg)*(float64(v.Avg)-avg) }
	s.Avg, s.StdDev = int64(avg), math.Sqrt((m*apart(a)+n*apart(b))/(m+n))
	s.Min = min(a.Min, b.Min)
	s.Hist = new(Histogram)
	s.Hist.Merge(a.Hist)
	s.Hist.Merge(b.Hist)
	s.P99 = min(max(s.Hist.Quantile(0.99), s.Min), s.Max)
}

// addKnown adds times of which a negative one is unknown.
func addKnown(a, b int64) int64 {
	if a < 0 || b < 0 {
		return -1
	}
	return addSat(a, b)
}

// A NodeChange is a call path in two traces. Its nodes are those of graphs without PerProcess and PerTask; they have no
// Children, and all of them is 0 in the one of a trace in which the path was not taken.
type NodeChange struct {
	Name     string
	Old, New Node
	Children []*NodeChange // by Name
}

// CompareGraphs pairs the nodes of two trees by the names on their paths. The result stands for the roots.
func CompareGraphs(before, after *Node) *NodeChange {
	root := new(NodeChange)
	root.add(before, func(c *NodeChange) *Node { return &c.Old })
	root.add(after, func(c *NodeChange) *Node { return &c.New })
	root.sort()
	return root
}

// add adds a tree on one side. Siblings have different functions, but those can have one name.
func (c *NodeChange) add(n *Node, side func(*NodeChange) *Node) {
	side(c).join(n)
	if len(n.Children) == 0 {
		return
	}
	index := make(map[string]*NodeChange, len(c.Children)+len(n.Children))
	for _, k := range c.Children {
		index[k.Name] = k
	}
	for _, k := range n.Children {
		child := index[k.Name]
		if child == nil {
			child = &NodeChange{Name: k.Name}
			index[k.Name] = child
			c.Children = append(c.Children, child)
		}
		child.add(k, side)
	}
}

// join adds the numbers of another node of the same path.
func (n *Node) join(o *Node) {
	n.Func, n.Name = o.Func, o.Name
	n.Calls += o.Calls
	n.Recursive += o.Recursive
	n.Total = addSat(n.Total, o.Total)
	n.Self = addSat(n.Self, o.Self)
	n.CPU = addKnown(n.CPU, o.CPU)
	n.Wait = addKnown(n.Wait, o.Wait)
	n.Unknown = addKnown(n.Unknown, o.Unknown)
	n.Unwound += o.Unwound
	n.Unfinished += o.Unfinished
	n.Folded += o.Folded
}

func (c *NodeChange) sort() {
	slices.SortFunc(c.Children, func(a, b *NodeChange) int { return cmp.Compare(a.Name, b.Name) })
	for _, k := range c.Children {
		k.sort()
	}
}
