package trace

import (
	"cmp"
	"slices"
	"strings"
)

// Several traces read as one: those of the test binaries of a module, for instance, or of many runs. As with [CompareReports],
// functions of different traces are the same if their names are, and call paths if all names on them are.

// A Union gives the functions of several traces ids that they have in common. Those of system calls stay as they are. The
// zero Union has no trace.
type Union struct {
	ids    map[string]FuncID
	origin []unionOrigin
}

type unionOrigin struct {
	t  *Trace
	fn FuncID
}

// Origin returns the first trace that has a function, and its id there; nil for a function that is not of the union.
func (u *Union) Origin(id FuncID) (*Trace, FuncID) {
	if id.Image != 0 || id.ID == 0 || int64(id.ID) > int64(len(u.origin)) {
		return nil, id
	}
	o := u.origin[id.ID-1]
	return o.t, o.fn
}

// common is the id of a function of a trace.
func (u *Union) common(t *Trace, id FuncID, name string) FuncID {
	if id == (FuncID{}) || id.Image == SyscallImage {
		return id
	}
	c, ok := u.ids[name]
	if !ok {
		if u.ids == nil {
			u.ids = map[string]FuncID{}
		}
		u.origin = append(u.origin, unionOrigin{t, id})
		c = FuncID{ID: uint32(len(u.origin))}
		u.ids[name] = c
	}
	return c
}

// Rows changes the rows of a trace's report to have the union's ids.
func (u *Union) Rows(t *Trace, rows []FuncStat) {
	for i := range rows {
		rows[i].Func = u.common(t, rows[i].Func, rows[i].Name)
	}
}

// Tree changes a trace's graph to have the union's ids.
func (u *Union) Tree(t *Trace, n *Node) {
	n.Func = u.common(t, n.Func, n.Name)
	for _, k := range n.Children {
		u.Tree(t, k)
	}
}

// JoinRows makes one row of those that have the same function of a union, without Task, and sorts as [Trace.Report] does.
func JoinRows(rows []FuncStat) []FuncStat {
	at := map[FuncID]int{}
	var out []FuncStat
	for i := range rows {
		r := &rows[i]
		k, ok := at[r.Func]
		if !ok {
			k = len(out)
			at[r.Func] = k
			out = append(out, FuncStat{})
		}
		id := r.Func
		out[k].join(r)
		out[k].Func, out[k].Task = id, nil
	}
	slices.SortFunc(out, compareRows)
	return out
}

// JoinTrees makes one tree of several, which have the ids of a union.
func JoinTrees(roots []*Node) *Node {
	all := &Node{}
	for _, r := range roots {
		all.joinTree(r)
	}
	all.sortChildren()
	return all
}

// joinTree adds a tree, whose root is the same call path.
func (n *Node) joinTree(o *Node) {
	n.join(o)
	at := make(map[FuncID]*Node, len(n.Children)+len(o.Children))
	for _, k := range n.Children {
		at[k.Func] = k
	}
	for _, k := range o.Children {
		if k.Task != nil { // a process or task, which is one trace's
			n.Children = append(n.Children, k)
			continue
		}
		child := at[k.Func]
		if child == nil {
			child = &Node{}
			at[k.Func] = child
			n.Children = append(n.Children, child)
		}
		child.joinTree(k)
	}
}

func (n *Node) sortChildren() {
	slices.SortStableFunc(n.Children, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(b.Calls, a.Calls), strings.Compare(a.Name, b.Name))
	})
	for _, k := range n.Children {
		if k.Task == nil {
			k.sortChildren()
		}
	}
}
