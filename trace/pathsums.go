package trace

import "encoding/binary"

// A graph of everything, or of a long time, decodes nothing where the index has sums for each
// call path. They are of the same runs as those for each function (blocksums.go), and of the
// same calls: those that begin and end in one block. The others are listed, and the states
// have them on the stack, so a graph knows the paths around.
//
// A run has them if all of it happened on one stack and nothing was put aside, before it or in
// it. Then calls nest, and whether a call was the outermost one of its path is a question of
// the path alone: it was, unless a call around it belongs to the same node, because recursion
// is folded. So a run has paths as they were, with recursion, and a graph folds them as its
// options say. Where stacks take turns, the same path can be open on several of them.
// Whether a call is made inside of a function that is asked for, or of one that is left
// out with all in it, is a question of the path, too.
//
// Runs are as long as pays for both kinds of sums. A program of very many paths has runs of
// millions of events, or with more than maxRunPaths none: then a graph decodes.

const (
	// A path takes about pathBytes.
	pathBytes = 14
	// maxRunPaths and maxPathDepth bound what a run can have.
	maxRunPaths, maxPathDepth = 1 << 16, 1 << 12
	// minPath is the least size of a path.
	minPath = 4
)

// runPaths are the paths of the run that is being made.
type runPaths struct {
	state pathState
	nodes []runPath
	edges edgeTable
	stack []int32 // node of the open calls, from the root on
}

type pathState uint8

const (
	pathsFresh pathState = iota // nothing has happened
	pathsGood
	pathsNone // the run cannot have them
)

// A runPath is a path of calls, and what is added up of its last one, in ticks.
type runPath struct {
	fn         FuncID
	parent     int32
	lastFn     FuncID // the child last entered
	lastNode   int32
	calls      uint64
	total      uint64
	self       uint64
	unwound    uint64
	unfinished uint64
}

// reset begins with a run.
func (p *runPaths) reset() {
	p.state, p.nodes, p.stack, p.edges.n = pathsFresh, p.nodes[:0], p.stack[:0], 0
	clear(p.edges.slots)
}

// begin takes what is open when the run begins.
func (p *runPaths) begin(fl *follower) {
	p.state = pathsNone
	if len(fl.stacks) > 0 || len(fl.aside) > 0 || fl.over > 0 || len(fl.cur.frames) > maxPathDepth {
		return
	}
	p.state, p.nodes, p.stack = pathsGood, append(p.nodes, runPath{parent: -1}), append(p.stack, 0)
	for i := range fl.cur.frames {
		p.enter(fl.cur.frames[i].fn, i)
	}
}

// enter takes the beginning of a call inside of so many others.
func (p *runPaths) enter(fn FuncID, depth int) {
	if p.state != pathsGood {
		return
	}
	if depth != len(p.stack)-1 || depth > maxPathDepth {
		p.state = pathsNone
		return
	}
	p.stack = append(p.stack, p.child(p.stack[depth], fn))
}

func (p *runPaths) child(from int32, fn FuncID) int32 {
	n := &p.nodes[from]
	if n.lastFn == fn && n.lastNode > 0 {
		return n.lastNode
	}
	to, ok := p.edges.find(from, fn)
	if !ok {
		if len(p.nodes) > maxRunPaths || fn == (FuncID{}) { // which graphs take for the root
			p.state = pathsNone
			return 0
		}
		to = int32(len(p.nodes))
		p.nodes = append(p.nodes, runPath{fn: fn, parent: from})
		p.edges.add(from, fn, to)
		n = &p.nodes[from]
	}
	n.lastFn, n.lastNode = fn, to
	return to
}

// leave takes the end of a call inside of so many others. A call that has begun in another block is listed.
func (p *runPaths) leave(f *frame, depth int, dur uint64, how ending) {
	if p.state != pathsGood {
		return
	}
	if depth != len(p.stack)-2 || f.flags&frameSuspended != 0 {
		p.state = pathsNone
		return
	}
	n := &p.nodes[p.stack[depth+1]]
	p.stack = p.stack[:depth+1]
	if f.flags&frameSaved != 0 {
		return
	}
	n.calls++
	n.total, n.self = addTicks(n.total, dur), addTicks(n.self, f.self)
	switch how {
	case endUnwound:
		n.unwound++
	case endUnfinished:
		n.unfinished++
	}
}

// call takes a call of which nothing but its entry is recorded.
func (p *runPaths) call(fn FuncID) {
	if p.state == pathsGood {
		if to := p.child(0, fn); to > 0 {
			p.nodes[to].calls++
		}
	}
}

// size is about how many bytes the paths take.
func (p *runPaths) size() int {
	if p.state != pathsGood {
		return 0
	}
	return pathBytes * len(p.nodes)
}

// append appends the paths, those in front of which others begin: nothing if there are none.
func (p *runPaths) append(n numbering, out []byte) []byte {
	if p.state != pathsGood || len(p.nodes) < 2 {
		return out
	}
	out = binary.AppendUvarint(out, uint64(len(p.nodes)-1))
	for i := 1; i < len(p.nodes); i++ {
		k := &p.nodes[i]
		ends := uint64(0)
		if k.unwound|k.unfinished != 0 {
			ends = 1
		}
		out = n.appendFn(binary.AppendUvarint(out, uint64(i-int(k.parent))), k.fn)
		if out = binary.AppendUvarint(out, k.calls<<1|ends); k.calls == 0 {
			continue
		}
		out = binary.AppendUvarint(out, k.self)
		out = binary.AppendVarint(out, int64(k.total-k.self))
		if ends != 0 {
			out = binary.AppendUvarint(binary.AppendUvarint(out, k.unwound), k.unfinished)
		}
	}
	return out
}

// mostPaths says that most blocks of the tasks are of runs with paths.
func (x *blockIndex) mostPaths(tasks []*Task) bool {
	with, all := 0, 0
	for _, k := range tasks {
		if len(k.chunks) == 0 {
			continue
		}
		tb, err := x.states(k)
		if err != nil {
			return false
		}
		var q blockSums
		q.begin(x, tb)
		for first := 0; first < len(tb.blocks); first = q.first + q.n {
			if q.load(first) != nil {
				return false
			}
			for i := range q.runs {
				if len(q.runs[i].paths) > 0 {
					with += q.runs[i].n
				}
			}
		}
		all += len(tb.blocks)
	}
	return 2*with > all
}

// A hider says which calls do not count, by their functions and the flags of the call around, and what the flags of
// these calls are.
type hider interface {
	hidden(fn FuncID, around frameFlags) frameFlags
}

type nothingHidden struct{}

func (nothingHidden) hidden(FuncID, frameFlags) frameFlags { return 0 }

// addPaths adds the paths of a run to a graph, but of calls that are hidden.
func (g *grapher) addPaths(body []byte, images []uint32, hides hider) error {
	p := fields{b: body, images: images}
	count := p.count(minPath)
	paths := make([]mergedPath, count+1)
	for i := 1; i <= count; i++ {
		up, fn := p.uint(), p.fn()
		if up == 0 || up > uint64(i) {
			return errBlocks
		}
		k := runPath{fn: fn, parent: int32(uint64(i) - up)}
		calls := p.uint()
		if k.calls = calls >> 1; k.calls > 0 {
			k.self = p.uint()
			k.total = k.self + uint64(p.int())
		}
		if calls&1 != 0 {
			k.unwound, k.unfinished = p.uint(), p.uint()
		}
		if p.bad {
			return errBlocks
		}
		g.addPath(paths, i, &k, hides.hidden(fn, paths[k.parent].flags))
	}
	if p.bad || len(p.b) != 0 || g.tree.full {
		return errBlocks
	}
	g.tree.summed = true
	return nil
}

// A mergedPath says where in a graph a path of a run is.
type mergedPath struct {
	parent int32 // path
	node   int32
	folds  bool // it, or a path around it, is folded into a node that is open around it
	flags  frameFlags
}

// addPath adds path i of a run to a graph. Those around it come before it.
func (g *grapher) addPath(paths []mergedPath, i int, k *runPath, flags frameFlags) {
	around := paths[k.parent]
	at := mergedPath{k.parent, around.node, around.folds, flags}
	if flags&frameHidden != 0 {
		paths[i] = at // its calls are made by the call around it
		return
	}
	at.node = g.tree.child(around.node, k.fn)
	n := &g.tree.nodes[at.node]
	open := n.parent != around.node
	for j := k.parent; around.folds && !open && j > 0; j = paths[j].parent {
		open = paths[j].node == at.node
	}
	at.folds = at.folds || open
	paths[i] = at
	n.calls += k.calls
	n.self = addTicks(n.self, k.self)
	n.unwound += k.unwound
	n.unfinished += k.unfinished
	switch {
	case !open:
		n.total = addTicks(n.total, k.total)
	case n.fn != k.fn:
		n.folded += k.calls
	default:
		n.recursive += k.calls
	}
}
