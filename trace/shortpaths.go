package trace

import "math"

// A call that is shorter than a threshold counts nowhere, but has had a node of the graph
// while it was open: how long it would take nobody knew. So it takes room, of which
// MaxNodes is the bound, and from others that do count. With an index the blocks that have
// nothing but short calls are left out, and theirs are nodes that nobody sees. There must be
// room for them, too: else a graph is not what it is without an index, and must do without.
//
// How many there are at most is what the paths of runs tell; of runs without paths, the
// number of words.

// A leftOut is what is known of the nodes for calls in blocks that a threshold leaves out.
type leftOut struct {
	paths *callTree // nil: none
	words int       // in blocks of which no paths are known
}

func (l *leftOut) merge(o *leftOut) {
	l.words += o.words
	switch {
	case o.paths == nil:
	case l.paths == nil:
		l.paths = o.paths
	default:
		l.paths.merge(o.paths)
	}
}

// nodes returns how many there are at most.
func (l *leftOut) nodes() int {
	if l.paths == nil {
		return l.words
	}
	return l.words + len(l.paths.nodes) - 1
}

// crowded says that there may have been no room for a call, had all been seen.
func (c *callTree) crowded() bool {
	return c.full || c.short.paths != nil && c.short.paths.full || len(c.nodes)-1+c.short.nodes() > c.o.MaxNodes
}

// shortCalls is what a chosenSink has to know of the blocks of a task that it leaves out.
type shortCalls struct {
	g     *grapher
	q     *blockSums
	hides hider
	o     *GraphOptions
	over  int // the block behind those whose paths are known
}

// shortCalls returns nil if it does not matter what is left out.
func (s *chosenSink) shortCalls(tb *taskBlocks) *shortCalls {
	g, ok := counting(s).(*grapher)
	if !ok || s.calls.Threshold <= 0 {
		return nil
	}
	c := &shortCalls{g: g, q: s.sums, hides: s, o: g.o}
	if c.q == nil {
		c.q = &blockSums{}
		c.q.begin(s.blocks, tb)
	}
	if !s.alone() { // what is hidden is not a question of the function alone: each path of the run counts
		c.hides, c.o = nothingHidden{}, &GraphOptions{KeepRecursion: true, MaxDepth: math.MaxInt32, MaxNodes: g.o.MaxNodes}
	}
	return c
}

// leaveOut takes a block that is left out. It returns an error if there may be no room for its calls.
func (c *shortCalls) leaveOut(i int) error {
	if c == nil {
		return nil
	}
	known, err := c.known(i)
	if !known && err == nil {
		for _, chunk := range c.q.tb.task.chunks[c.q.tb.blocks[i].chunk:c.q.tb.end(i)] {
			c.g.tree.short.words += int(chunk.size / 8)
		}
		err = c.room()
	}
	return err
}

// room returns an error if there may be no room for short calls.
func (c *shortCalls) room() error {
	if c.g.tree.crowded() {
		return errBlocks
	}
	return nil
}

// known says that the paths of a block's calls are known, and takes them. It returns an error if there may be no room
// for them.
func (c *shortCalls) known(i int) (bool, error) {
	if i < max(c.over, c.q.added) || c.q.inLong != nil && c.q.inLong[i] {
		return true, nil
	}
	if err := c.q.load(i); err != nil {
		return false, err
	}
	left := &c.g.tree.short
	for j := range c.q.runs {
		r := &c.q.runs[j]
		if i < r.first || i >= r.first+r.n || len(r.paths) == 0 {
			continue
		}
		c.over = r.first + r.n
		if left.paths == nil {
			left.paths = newCallTree(c.o, 0)
		}
		paths := &grapher{o: c.o, tree: left.paths}
		if _, err := r.addPaths(paths, c.q.x.images, c.hides, 0); err != nil {
			return false, err
		}
		return true, c.room()
	}
	return false, nil
}
