package trace

import (
	"encoding/binary"
	"math"
)

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
// A path has its calls in parts by how long they took, and a histogram, as a function has, so
// a graph can leave short calls out, and a report of calls that are made inside of others is a
// report of paths. The sums of a function are those of its paths: each call is added up once.
//
// Runs are as long as pays for both kinds of sums. A program of very many paths has runs of
// up to patience events; then paths without parts have to do, for graphs of all calls, and the
// parts are added up over many runs (longsums.go). With more than maxRunPaths it has none: then
// a graph decodes. Parts and histograms of thousands of paths do not fit a processor's caches,
// and to add each call to its path would take longer than all else. So calls are noted, and
// added up path by path.

const (
	// A path takes about pathBytes, and with its parts and its histogram as many more as a function's.
	pathBytes = 14
	// patience is how many events a run has before it does without the parts of its paths.
	patience = 4 << 20
	// manyPaths is from how many paths on calls are noted first, and notedCalls how many.
	manyPaths, notedCalls = 256, 1 << 16
	// maxRunPaths and maxPathDepth bound what a run can have.
	maxRunPaths, maxPathDepth = 1 << 16, 1 << 12
	// minPath is the least size of a path.
	minPath = 4
)

// runPaths are the paths of the run that is being made.
type runPaths struct {
	state pathState
	nodes []runPath // with what nodes of earlier runs have allocated behind them
	edges edgeTable
	stack []int32 // node of the open calls, from the root on

	newest int32 // node of the call that ended last

	parts, buckets int  // of all nodes, but for calls that are noted
	rough          bool // parts and histograms do not say everything
	less           bool // histograms do not

	noted  []notedCall
	order  []uint32 // of them, by node
	places []uint32 // in order, by node
}

// A notedCall is a call that has not been added to its path.
type notedCall struct {
	dur, self uint64
	node      int32
	part      uint8
	how       ending
}

type pathState uint8

const (
	pathsFresh pathState = iota // nothing has happened
	pathsGood
	pathsNone // the run cannot have them
)

// A runPath is a path of calls, and what is added up of its last one. All of these are taken for outermost ones.
type runPath struct {
	fn       FuncID
	parent   int32
	lastFn   FuncID // the child last entered
	lastNode int32
	parts    []partSums
	hist     pathHist
}

// reset begins with a run.
func (p *runPaths) reset() {
	p.state, p.nodes, p.stack, p.edges.n = pathsFresh, p.nodes[:0], p.stack[:0], 0
	p.parts, p.buckets, p.rough, p.less, p.noted = 0, 0, false, false, p.noted[:0]
	clear(p.edges.slots)
}

// begin takes what is open when the run begins.
func (p *runPaths) begin(fl *follower) {
	p.state = pathsNone
	if len(fl.stacks) > 0 || len(fl.aside) > 0 || fl.over > 0 || len(fl.cur.frames) > maxPathDepth {
		return
	}
	p.state, p.stack = pathsGood, append(p.stack, 0)
	p.node(FuncID{}, -1)
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
		to = p.node(fn, from)
		p.edges.add(from, fn, to)
		n = &p.nodes[from]
	}
	n.lastFn, n.lastNode = fn, to
	return to
}

// node adds a node and returns its number.
func (p *runPaths) node(fn FuncID, parent int32) int32 {
	i := len(p.nodes)
	if i < cap(p.nodes) {
		p.nodes = p.nodes[:i+1]
	} else {
		p.nodes = append(p.nodes, runPath{})
	}
	n := &p.nodes[i]
	*n = runPath{fn: fn, parent: parent, parts: n.parts[:0], hist: n.hist[:0]}
	return int32(i)
}

// leave takes the end of a call inside of so many others, and returns the node that is to have it; nil: none is. A call
// that has begun in another block is listed.
func (p *runPaths) leave(f *frame, depth int) *runPath {
	if p.state != pathsGood {
		return nil
	}
	if depth != len(p.stack)-2 || f.flags&frameSuspended != 0 {
		p.state = pathsNone
		return nil
	}
	p.newest = p.stack[depth+1]
	n := &p.nodes[p.newest]
	p.stack = p.stack[:depth+1]
	if f.flags&frameSaved != 0 {
		return nil
	}
	if f.flags&frameInherited != 0 { // the call is the parent's; only the time is this task's
		p.state = pathsNone
		return nil
	}
	return n
}

// call takes a call of which nothing but its entry is recorded, and returns the node that is to have it; nil: none is.
func (p *runPaths) call(fn FuncID) *runPath {
	if p.state == pathsGood {
		if to := p.child(0, fn); to > 0 {
			return &p.nodes[to]
		}
	}
	return nil
}

// inner says that a call of the path's function is around it.
func (p *runPaths) inner(i int32) bool {
	n := &p.nodes[i]
	for j := n.parent; j > 0; j = p.nodes[j].parent {
		if p.nodes[j].fn == n.fn {
			return true
		}
	}
	return false
}

// size is about how many bytes the paths take, with their parts and histograms or without.
func (p *runPaths) size(whole bool) int {
	switch {
	case p.state != pathsGood:
		return 0
	case whole:
		return pathBytes*len(p.nodes) + sumBytes*p.parts + bucketBytes*p.buckets
	}
	return pathBytes * len(p.nodes)
}

// append appends the paths, those in front of which others begin: nothing if there are none.
func (p *runPaths) append(n numbering, whole bool, out []byte) []byte {
	if p.state != pathsGood || len(p.nodes) < 2 {
		return out
	}
	kind := uint64(0)
	if whole {
		kind = 1
	}
	out = binary.AppendUvarint(out, uint64(len(p.nodes)-1)<<1|kind)
	for i := 1; i < len(p.nodes); i++ {
		k := &p.nodes[i]
		out = n.appendFn(binary.AppendUvarint(out, uint64(i-int(k.parent))), k.fn)
		if whole {
			out = appendParts(out, k.parts, k.hist.each)
		} else {
			out = k.appendTotals(out)
		}
	}
	return out
}

// appendTotals appends what there is of a path without parts.
func (k *runPath) appendTotals(out []byte) []byte {
	var all sums
	for i := range k.parts {
		s := &k.parts[i].sums
		all.calls, all.self, all.total = all.calls+s.calls, addTicks(all.self, s.self), addTicks(all.total, s.total)
		all.unwound, all.unfinished = all.unwound+s.unwound, all.unfinished+s.unfinished
	}
	ends := uint64(0)
	if all.unwound|all.unfinished != 0 {
		ends = 1
	}
	if out = binary.AppendUvarint(out, all.calls<<1|ends); all.calls == 0 {
		return out
	}
	out = binary.AppendUvarint(out, all.self)
	out = binary.AppendVarint(out, int64(all.total-all.self))
	if ends != 0 {
		out = binary.AppendUvarint(binary.AppendUvarint(out, all.unwound), all.unfinished)
	}
	return out
}

// readTotals is the inverse of appendTotals. Nobody knows how long the single calls took.
func (f *funcSums) readTotals(p *fields) {
	f.parts, f.hist = f.parts[:0], f.hist[:0]
	calls := p.uint()
	if calls>>1 == 0 {
		return
	}
	s := sums{calls: calls >> 1, ended: calls >> 1, max: math.MaxUint64, self: p.uint()}
	s.total = s.self + uint64(p.int())
	s.sum = s.total
	if calls&1 != 0 {
		s.unwound, s.unfinished = p.uint(), p.uint()
	}
	f.parts = append(f.parts, s)
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

// A pathSink counts calls by their paths: a grapher, and a report.
type pathSink interface {
	// addPath adds the calls of path i that took so many ticks or more. The paths around it come before it.
	addPath(paths []mergedPath, i int, f *funcSums, least uint64)
	// needsWhole says that paths without parts and histograms do not do.
	needsWhole() bool
}

// addPaths adds the calls of a run that took so many ticks or more to what a sink counts, but those that are hidden. ok
// is false if that cannot be told from the run; then nothing is added.
func (r *sumRun) addPaths(to pathSink, images []uint32, hides hider, least uint64) (ok bool, err error) {
	p := fields{b: r.paths, images: images}
	if whole := p.uint()&1 != 0; !whole && (least > 0 || to.needsWhole()) || r.less && to.needsWhole() {
		return false, nil
	}
	if least > 0 {
		divided := false
		err := r.eachPath(images, hides, func(paths []mergedPath, i int, f *funcSums) {
			divided = divided || paths[i].flags&frameHidden == 0 && f.divided(least)
		})
		if err != nil || divided {
			return false, err
		}
	}
	return true, r.eachPath(images, hides, func(paths []mergedPath, i int, f *funcSums) {
		to.addPath(paths, i, f, least)
	})
}

// eachPath calls use with the paths of a run.
func (r *sumRun) eachPath(images []uint32, hides hider, use func(paths []mergedPath, i int, f *funcSums)) error {
	p := fields{b: r.paths, images: images}
	kind := p.uint()
	if kind>>1 > uint64(len(p.b)/minPath) {
		return errBlocks
	}
	count := int(kind >> 1)
	paths := make([]mergedPath, count+1)
	var f funcSums
	offs := r.offs(true)
	for i := 1; i <= count; i++ {
		up, fn := p.uint(), p.fn()
		if up == 0 || up > uint64(i) {
			return errBlocks
		}
		parent := int32(uint64(i) - up)
		if kind&1 != 0 {
			f.read(&p)
		} else {
			f.readTotals(&p)
		}
		if p.bad {
			return errBlocks
		}
		offs.give(i, &f)
		paths[i] = mergedPath{fn: fn, parent: parent, flags: hides.hidden(fn, paths[parent].flags)}
		use(paths, i, &f)
	}
	if p.bad || len(p.b) != 0 {
		return errBlocks
	}
	return nil
}

// A mergedPath is a path of a run, and where in a graph it is.
type mergedPath struct {
	fn     FuncID
	parent int32 // path
	node   int32
	folds  bool // it, or a path around it, is folded into a node that is open around it
	flags  frameFlags
}

func (g *grapher) needsWhole() bool { return false }

func (g *grapher) addPath(paths []mergedPath, i int, f *funcSums, least uint64) {
	at := &paths[i]
	around := paths[at.parent]
	at.node, at.folds = around.node, around.folds
	if at.flags&frameHidden != 0 {
		return // its calls are made by the call around it
	}
	at.node = g.tree.child(around.node, at.fn)
	g.tree.summed = true
	n := &g.tree.nodes[at.node]
	open := n.parent != around.node
	for j := at.parent; around.folds && !open && j > 0; j = paths[j].parent {
		open = paths[j].node == at.node
	}
	at.folds = at.folds || open
	for j := range f.parts {
		k := &f.parts[j]
		if all, _ := k.counts(least); !all {
			continue
		}
		n.calls += k.calls
		n.self = addTicks(n.self, k.self)
		n.unwound += k.unwound
		n.unfinished += k.unfinished
		switch {
		case !open:
			n.total = addTicks(n.total, k.total)
			n.off.add(f.off(j))
		case n.fn != at.fn:
			n.folded += k.calls
		default:
			n.recursive += k.calls
		}
	}
}

func (r *report) needsWhole() bool { return true }

func (r *report) addPath(paths []mergedPath, i int, f *funcSums, least uint64) {
	at := &paths[i]
	if at.flags&frameHidden != 0 || len(f.parts) == 0 {
		return
	}
	inner := false
	for j := at.parent; j > 0 && !inner; j = paths[j].parent {
		inner = paths[j].fn == at.fn && paths[j].flags&frameHidden == 0
	}
	if inner {
		for j := range f.parts {
			f.parts[j].total = 0
		}
		f.offs = f.offs[:0]
	}
	c, _ := r.counter(at.fn)
	f.addTo(c, least)
}
