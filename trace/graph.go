package trace

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"sync"
)

// GraphOptions say how [Trace.Graph] merges calls. The zero value merges all tasks into one tree, with recursion
// folded.
type GraphOptions struct {
	Tasks []*Task // nil: all
	// PerProcess and PerTask make a tree below the root for each process (and
	// image) or task; Node.Task is its first task.
	PerProcess, PerTask bool
	// KeepRecursion makes a node for every level of a recursion. Otherwise a call of a function that is already on
	// the path is folded into its node, so a path is never longer than the number of different functions.
	KeepRecursion bool
	// MaxDepth folds deeper calls into the node at that depth; 0: 4096.
	MaxDepth int
	// MaxNodes bounds the number of nodes; 0: one million. Calls that do not fit are folded into the node that would
	// be their parent.
	MaxNodes int
	Workers  int // tasks read in parallel; 0: one per processor
	// From, To and Calls choose what counts, as in ReportOptions. Calls in one that does not count are made by the
	// call around that.
	From, To int64
	Calls    Calls
	// Waits asks for CPU, Wait and Unknown.
	Waits bool
}

// A Node is the merged calls of one call path. Times are in ns.
type Node struct {
	Func FuncID // zero: the root, or the root of a process or task
	Name string
	Task *Task // only in the root of a process or task
	// Calls is the number of calls by this path, including recursive ones folded into the node.
	Calls uint64
	// Recursive is the number of calls that were folded: those made from inside the node.
	Recursive uint64
	// Total is the time from entry to exit of calls from outside the node.
	Total int64
	Self  int64 // time in the functions of the node, including those folded into it
	// CPU, Wait and Unknown are parts of Total as in FuncStat.
	CPU, Wait, Unknown int64
	// Unwound and Unfinished calls as in FuncStat.
	Unwound, Unfinished uint64
	// Folded is the number of calls put here because of MaxDepth or MaxNodes. Their functions are not the node's.
	Folded   uint64
	Children []*Node // by Total, longest first
}

const (
	defaultMaxDepth = 4096
	defaultMaxNodes = 1 << 20
)

// Graph merges all calls into a tree of call paths. The root stands for the whole trace; its Total is the sum of its
// children's. Memory depends only on the number of different paths.
func (t *Trace) Graph(o GraphOptions) (*Node, error) {
	tasks := o.Tasks
	if tasks == nil {
		tasks = t.Tasks
	}
	if o.MaxDepth <= 0 {
		o.MaxDepth = defaultMaxDepth
	}
	if o.MaxNodes <= 0 {
		o.MaxNodes = defaultMaxNodes
	}
	c := t.choose(o.From, o.To, o.Calls)
	trees, err := t.callTreesWithIndex(c, tasks, &o)
	if errors.Is(err, errBlocks) {
		trees, err = t.callTrees(c, nil, false, tasks, &o)
	}
	if err != nil {
		return nil, err
	}
	root := t.joinTrees(trees, &o)
	if c != nil {
		root.prune()
	}
	return root, nil
}

// joinTrees makes the public tree.
func (t *Trace) joinTrees(trees map[int]*callTree, o *GraphOptions) *Node {
	if tree := trees[0]; tree != nil && !o.PerProcess && !o.PerTask {
		root := tree.node(t, 0)
		root.sum()
		return root
	}
	root := newCallTree(o, t.waitsWanted(o.Waits)).node(t, 0)
	for i, k := range t.Tasks {
		if trees[i] == nil {
			continue
		}
		n := trees[i].node(t, 0)
		n.sum()
		n.Task = k
		root.Children = append(root.Children, n)
	}
	root.sum()
	return root
}

// prune takes out calls of which nothing counts, and returns whether that is so of n.
func (n *Node) prune() bool {
	n.Children = slices.DeleteFunc(n.Children, (*Node).prune)
	return len(n.Children) == 0 && n.Calls == 0 && n.Total == 0 && n.Self == 0
}

// callTreesWithIndex is callTrees with the index, as far as there is one and it helps.
func (t *Trace) callTreesWithIndex(c *choice, tasks []*Task, o *GraphOptions) (map[int]*callTree, error) {
	if t.blocks == nil || !c.nests() {
		return t.callTrees(c, t.indexFor(c, o.Tasks), false, tasks, o)
	}
	if c == nil {
		// Leaving out blocks makes decoding the others twice as dear.
		if !t.blocks.mostPaths(tasks) {
			return t.callTrees(nil, t.indexFor(nil, o.Tasks), false, tasks, o)
		}
		c = &choice{to: math.MaxUint64, whole: true}
	}
	return t.callTrees(c, t.blocks, true, tasks, o)
}

// callTrees returns the trees of all groups, each by the index of its first task; 0 if there is one for all. With the
// index x, if it is not nil, and its sums.
func (t *Trace) callTrees(
	c *choice, x *blockIndex, sums bool, tasks []*Task, o *GraphOptions,
) (map[int]*callTree, error) {
	trees := map[int]*callTree{} // by group, the first task's index for order
	var mu sync.Mutex
	group, waits := groups(tasks, *o), t.waitsWanted(o.Waits)
	err := t.eachTask(c, x, tasks, o.Workers, func() taskSink {
		s := c.chosen(t, x, &grapher{t: t, o: o, tree: newCallTree(o, waits)})
		if sums {
			s.(*chosenSink).sums = &blockSums{paths: true, least: t.least(c)}
		}
		return s
	}, func(s taskSink, k *Task) {
		g := counting(s).(*grapher)
		if !o.PerProcess && !o.PerTask {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		id := group[k.Index]
		if have := trees[id]; have != nil {
			have.merge(g.tree)
		} else {
			trees[id] = g.tree
		}
		g.tree = newCallTree(o, waits)
	}, func(s taskSink) {
		if o.PerProcess || o.PerTask {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if have := trees[0]; have != nil {
			have.merge(counting(s).(*grapher).tree)
		} else {
			trees[0] = counting(s).(*grapher).tree
		}
	})
	for _, tree := range trees {
		// Which paths there was room for depends on the order in which they came, short ones with them.
		full := sums && tree.full && tree.summed || x != nil && c != nil && c.calls.Threshold > 0 && tree.crowded()
		if full && err == nil {
			err = errBlocks
		}
	}
	return trees, err
}

// groups gives each task the index of the first task of its group.
func groups(tasks []*Task, o GraphOptions) map[int]int {
	type process struct {
		of    *Process
		image int
	}
	first := map[process]int{}
	group := map[int]int{}
	for _, k := range tasks {
		group[k.Index] = k.Index
		if !o.PerTask {
			p := process{k.Process, k.Image}
			if i, ok := first[p]; !ok || k.Index < i {
				first[p] = k.Index
			}
		}
	}
	if !o.PerTask {
		for _, k := range tasks {
			group[k.Index] = first[process{k.Process, k.Image}]
		}
	}
	return group
}

// sum gives a root the time of its children.
func (n *Node) sum() {
	n.Total = 0
	for _, c := range n.Children {
		n.Total = addSat(n.Total, c.Total)
	}
	if n.CPU < 0 {
		return
	}
	n.CPU, n.Wait, n.Unknown = 0, 0, 0
	for _, c := range n.Children {
		n.CPU, n.Wait, n.Unknown = addSat(n.CPU, c.CPU), addSat(n.Wait, c.Wait), addSat(n.Unknown, c.Unknown)
	}
}

// A callTree is a tree of call paths in one array.
type callTree struct {
	o     *GraphOptions
	nodes []treeNode
	edges edgeTable
	waits wants // treeNode.off

	full   bool // a call was folded because of MaxNodes
	summed bool // some calls are from the index's sums

	short leftOut // calls shorter than a threshold that have not been seen
}

type treeNode struct {
	fn         FuncID
	parent     int32
	depth      int32
	active     int32 // open calls in the current task
	calls      uint64
	recursive  uint64
	folded     uint64
	unwound    uint64
	unfinished uint64
	total      uint64 // ticks, as all times here
	self       uint64
	// The child last entered: most calls go where the one before went.
	lastFn   FuncID
	lastNode int32

	off   offTime // of total
	marks offMarks
}

func newCallTree(o *GraphOptions, w wants) *callTree {
	return &callTree{o: o, waits: w, nodes: []treeNode{{parent: -1}}}
}

// child returns the node for a call of fn from node from. It is from itself or
// a node further out when the call is folded.
func (c *callTree) child(from int32, fn FuncID) int32 {
	n := &c.nodes[from]
	if n.lastFn == fn {
		return n.lastNode
	}
	to, ok := c.edges.find(from, fn)
	if !ok {
		had := len(c.nodes)
		to = c.newChild(from, fn)
		// Edges of folded calls are remembered too, as long as there is room.
		if len(c.nodes) > had || c.edges.n < 2*c.o.MaxNodes {
			c.edges.add(from, fn, to)
		}
		n = &c.nodes[from]
	}
	n.lastFn, n.lastNode = fn, to
	return to
}

func (c *callTree) newChild(from int32, fn FuncID) int32 {
	if !c.o.KeepRecursion {
		for i := from; i > 0; i = c.nodes[i].parent {
			if c.nodes[i].fn == fn {
				return i
			}
		}
	}
	if c.full = c.full || len(c.nodes) > c.o.MaxNodes; c.full || int(c.nodes[from].depth) >= c.o.MaxDepth {
		return from
	}
	c.nodes = append(c.nodes, treeNode{fn: fn, parent: from, depth: c.nodes[from].depth + 1})
	return int32(len(c.nodes) - 1)
}

// merge adds the counts of o. A full tree has nodes that there may be room for: an empty one becomes what o is.
func (c *callTree) merge(o *callTree) {
	c.summed = c.summed || o.summed
	c.short.merge(&o.short)
	to := make([]int32, len(o.nodes))
	for i := range o.nodes {
		on := &o.nodes[i]
		if i > 0 {
			// Parents come before their children.
			to[i] = c.child(to[on.parent], on.fn)
		}
		n := &c.nodes[to[i]]
		n.calls += on.calls
		n.recursive += on.recursive
		n.folded += on.folded
		n.unwound += on.unwound
		n.unfinished += on.unfinished
		n.self = addTicks(n.self, on.self)
		if i == 0 || n.fn == on.fn {
			n.total = addTicks(n.total, on.total)
			n.off.add(on.off)
		} else {
			n.folded += on.calls // the merged tree is full
		}
	}
	c.full = c.full || o.full
}

// node makes the public tree.
func (c *callTree) node(t *Trace, root int32) *Node {
	nodes := make([]Node, len(c.nodes))
	for i := range c.nodes {
		n := &c.nodes[i]
		nodes[i] = Node{
			Func: n.fn, Name: t.Name(n.fn), Calls: n.calls, Recursive: n.recursive,
			Total: t.Clock.Span(n.total), Self: t.Clock.Span(n.self),
			Unwound: n.unwound, Unfinished: n.unfinished, Folded: n.folded,
		}
		nodes[i].CPU, nodes[i].Wait, nodes[i].Unknown = n.off.parts(nodes[i].Total, &t.Clock, c.waits)
		if i > 0 {
			p := &nodes[n.parent]
			p.Children = append(p.Children, &nodes[i])
		}
	}
	for i := range nodes {
		slices.SortStableFunc(nodes[i].Children, func(a, b *Node) int {
			switch {
			case a.Total != b.Total && a.Total > b.Total:
				return -1
			case a.Total != b.Total:
				return 1
			case a.Name < b.Name:
				return -1
			case a.Name > b.Name:
				return 1
			}
			return cmp.Or(cmp.Compare(a.Func.Image, b.Func.Image), cmp.Compare(a.Func.ID, b.Func.ID))
		})
	}
	return &nodes[root]
}

// grapher is the sink that builds a callTree.
type grapher struct {
	t    *Trace
	o    *GraphOptions
	fl   *follower
	tree *callTree
}

func (g *grapher) begin(fl *follower) { g.fl = fl }

func (g *grapher) asksForWaits() bool { return g.tree.waits.marked() }

func (g *grapher) enter(f *frame) {
	fs := g.fl.cur.frames
	from := int32(0)
	if len(fs) > 1 {
		from = fs[len(fs)-2].ref
	}
	f.ref = g.tree.child(from, f.fn)
	n := &g.tree.nodes[f.ref]
	if n.active == 0 {
		f.flags |= frameOutermost
		if g.tree.waits.marked() {
			n.marks.mark(g.fl, f)
		}
	}
	n.active++
	if f.flags&frameInherited != 0 {
		return
	}
	n.calls++
	switch {
	case f.ref == 0 || n.fn != f.fn:
		n.folded++
	case f.flags&frameOutermost == 0:
		n.recursive++
	}
}

func (g *grapher) call(fn FuncID) {
	ref := g.tree.child(0, fn)
	n := &g.tree.nodes[ref]
	n.calls++
	if ref == 0 {
		n.folded++
	}
}

func (g *grapher) forget(f *frame) {
	n := &g.tree.nodes[f.ref]
	g.unmark(n, f)
	n.active--
	n.self = addTicks(n.self, f.self)
}

// unmark takes back what enter has noted for a call that is none, or does not count.
func (g *grapher) unmark(n *treeNode, f *frame) {
	if f.flags&frameOutermost != 0 && g.tree.waits.marked() {
		n.marks.take(g.fl, f)
	}
}

func (g *grapher) drop(f *frame) {
	n := &g.tree.nodes[f.ref]
	g.unmark(n, f)
	if f.flags&frameSuspended == 0 {
		n.active--
	}
	if f.flags&frameInherited != 0 {
		return
	}
	n.calls--
	switch {
	case f.ref == 0 || n.fn != f.fn:
		n.folded--
	case f.flags&frameOutermost == 0:
		n.recursive--
	}
}

func (g *grapher) suspend(f *frame) { g.tree.nodes[f.ref].active-- }

func (g *grapher) leave(f *frame, end uint64, how ending) {
	n := &g.tree.nodes[f.ref]
	if f.flags&frameSuspended == 0 {
		n.active--
	}
	if f.flags&frameOutermost != 0 {
		dur := end - min(end, f.start)
		n.total = addTicks(n.total, dur)
		if g.tree.waits.marked() {
			n.off.add(n.marks.since(g.fl, f, end, dur))
		}
	}
	n.self = addTicks(n.self, f.self)
	switch how {
	case endUnwound:
		n.unwound++
	case endUnfinished:
		n.unfinished++
	}
}

func (g *grapher) orphan(FuncID) {}
