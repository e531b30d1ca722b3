package trace

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/fentry-dev/fentry/internal/format"
)

// Who asks for calls of a millisecond or more asks for a few in a block of thousands. The
// bounds say which blocks have some; where threads wait, as those of servers do, nearly
// all have. So the index has the gist of a block: its entries and exits, in their order,
// without those of calls that begin and end in it and do not stand out. A walk takes it
// for the block where no shorter calls are asked for.
//
// The calls around one that is in a gist are at least as long, and so are in it, too, or
// were open before or are open behind: depths and callers are right. What an exit needs
// besides is its own time, which is beside it. The state behind the block is in the index
// anyway. So a gist gives the very events of its calls, and the tests compare them.
//
// That holds if calls are nested and nothing else happens. A block has no gist where a word is
// neither entry nor exit, or out of order, or where an exit is not that of the innermost
// call; nor has the first one of a task, or the last.

const (
	// gistCalls are in a gist at most, of those that begin and end in the block; longMost of them if they are long.
	gistCalls, longMost = 12, 64
	// Such a call takes what part of the block, and of an average one of the task: at least; of the average one if it is
	// long.
	gistShare, longShare = 64, 8
	// gistMost are collected while it is made.
	gistMost = 2 * longMost
)

// Codes of the words of a gist.
const (
	gistExit = 1 << iota
	gistLeaf
	gistTail
	gistBits = iota
)

// A gistWord is an entry or exit of a gist.
type gistWord struct {
	t, self uint64 // own time: of an exit; of a leaf's what it lacks of its duration
	fn      FuncID // of an entry
	code    uint8
}

// A gistCall is a call that ends in the block of which a gist is made.
type gistCall struct {
	start, end, self uint64
	fn               FuncID
	depth            int32
	word             int32 // its exit, by position in the block
	code             uint8 // of the exit
	tail             bool  // it was entered by a tail call
	crossing         bool  // it was open when the block began
}

func (c *gistCall) dur() uint64 { return c.end - c.start }

// A gistMaker makes the gists of a builder's blocks.
type gistMaker struct {
	calls  []gistCall // as they end
	inside int        // of them, that are not crossing
	start  uint64     // of the block
	usual  uint64     // about how many ticks a block of the task has
	cut    uint64     // no call that was dropped because there were too many is longer
	bad    bool       // there is to be none
	before uint64     // time of the word before the newest one
	code   uint8      // and its code
	words  []gistWord
	durs   []uint64
}

// task begins with a task's first block, of which there is no gist.
func (g *gistMaker) task(start uint64) {
	g.block(start)
	g.usual, g.bad = 0, true
}

// block begins with a block.
func (g *gistMaker) block(start uint64) {
	g.calls, g.inside, g.start, g.cut, g.bad = g.calls[:0], 0, start, 0, false
}

// tailed says that the exit at position n was a tail call.
func (g *gistMaker) tailed(n int32) {
	if i := len(g.calls) - 1; i >= 0 && g.calls[i].word == n {
		g.calls[i].code |= gistTail
	}
}

// stands says that a call that ends now, begun in the block, is to be in the gist, as far as is known.
func (g *gistMaker) stands(dur, end uint64) bool { return dur >= g.size(end)/gistShare }

// size is how many ticks a block that ends then has, or an average one if that has more.
func (g *gistMaker) size(end uint64) uint64 { return max(end-g.start, g.usual) }

// add adds a call that ends.
func (g *gistMaker) add(c gistCall) {
	c.code = gistExit
	if g.code == wEntry {
		c.code |= gistLeaf
	}
	g.calls = append(g.calls, c)
	if !c.crossing {
		if g.inside++; g.inside >= gistMost {
			g.prune(c.end)
		}
	}
}

// prune drops calls that do not stand out in a block that ends then.
func (g *gistMaker) prune(end uint64) {
	keep := func(ok func(c *gistCall) bool) {
		g.calls = slices.DeleteFunc(g.calls, func(c gistCall) bool { return !c.crossing && !ok(&c) })
		g.inside = 0
		for i := range g.calls {
			if !g.calls[i].crossing {
				g.inside++
			}
		}
	}
	keep(func(c *gistCall) bool { return g.stands(c.dur(), end) && c.dur() > g.cut })
	if g.inside <= gistCalls {
		return
	}
	g.durs = g.durs[:0]
	for i := range g.calls {
		if !g.calls[i].crossing {
			g.durs = append(g.durs, g.calls[i].dur())
		}
	}
	slices.Sort(g.durs)
	n := len(g.durs)
	cut := g.durs[n-gistCalls-1]
	if long := g.usual / longShare; cut >= long {
		cut = max(long, 1) - 1
		if n > longMost {
			cut = max(cut, g.durs[n-longMost-1])
		}
	}
	g.cut = max(g.cut, cut)
	keep(func(c *gistCall) bool { return c.dur() > g.cut })
}

// close ends the block. frames are those of the stack that the task is on, from those on that were not open when the
// block began; leaf is as that of a blockState. bound is a time that no call exceeds which is left out. ok
// says that there is a gist.
func (g *gistMaker) close(n numbering, end uint64, frames []frame, kept int, leaf bool) (gist []byte, bound uint64, ok bool) {
	span := end - g.start
	if ok = !g.bad && span < math.MaxUint64>>(gistBits+1); ok {
		g.prune(end)
		g.order(frames, kept, leaf)
		gist = n.appendGist(nil, g.start, g.words)
		bound = max(g.size(end)/gistShare, g.cut)
	}
	if g.usual == 0 {
		g.usual = span
	}
	g.usual += span/8 - g.usual/8
	return gist, bound, ok
}

// order makes words of the calls that have ended, which are in the order of their ends, and of those that are open. That
// is done from the end on: a call's entry comes when all inside of it has.
func (g *gistMaker) order(frames []frame, kept int, leaf bool) {
	g.words = g.words[:0]
	var open []gistCall
	for i := kept; i < len(frames); i++ {
		f := &frames[i]
		c := gistCall{start: f.start, fn: f.fn, depth: int32(i), tail: f.flags&frameTail != 0}
		if leaf && i == len(frames)-1 {
			c.code = gistLeaf
		}
		open = append(open, c)
	}
	begin := func(depth int32) {
		for k := len(open) - 1; k >= 0 && open[k].depth >= depth; k-- {
			if c := &open[k]; !c.crossing {
				code := c.code & gistLeaf
				if c.tail {
					code |= gistTail
				}
				g.words = append(g.words, gistWord{t: c.start, fn: c.fn, code: code})
			}
			open = open[:k]
		}
	}
	for i := len(g.calls) - 1; i >= 0; i-- {
		c := &g.calls[i]
		begin(c.depth)
		w := gistWord{t: c.end, self: c.self, code: c.code}
		if c.code&gistLeaf != 0 { // nearly always 0: unless its entry was written late, at the end of the block before
			w.self = c.dur() - c.self
		}
		g.words = append(g.words, w)
		open = append(open, *c)
	}
	begin(0)
	slices.Reverse(g.words)
}

// appendGist appends the words of a gist of a block that begins at a time.
func (n numbering) appendGist(b []byte, last uint64, words []gistWord) []byte {
	for i := range words {
		w := &words[i]
		b = binary.AppendUvarint(b, (w.t-last)<<gistBits|uint64(w.code))
		last = w.t
		if w.code&gistExit == 0 {
			b = n.appendFn(b, w.fn)
		} else {
			b = binary.AppendUvarint(b, w.self)
		}
	}
	return b
}

// parseGist reads the words of a gist.
func parseGist(words []gistWord, b []byte, images []uint32, last uint64) ([]gistWord, error) {
	p := fields{b: b, images: images}
	for len(p.b) > 0 {
		v := p.uint()
		last += v >> gistBits
		w := gistWord{t: last, code: uint8(v & (1<<gistBits - 1))}
		if w.code&gistExit == 0 {
			w.fn = p.fn()
		} else {
			w.self = p.uint()
		}
		words = append(words, w)
	}
	if p.bad {
		return nil, errBlocks
	}
	return words, nil
}

// A gistReader reads the gists of a task's blocks, a segment at a time.
type gistReader struct {
	index *blockIndex
	tb    *taskBlocks
	next  int // segment behind the one that was read
	first int // block of that
	n     int // and how many it has
	gists [][]byte
}

// gist returns the gist of block i. Who asks asks for one block after another.
func (r *gistReader) gist(i int) ([]byte, error) {
	for i >= r.first+r.n {
		if r.next == len(r.tb.segments) {
			return nil, errBlocks
		}
		r.first += r.n
		r.n, r.gists = r.tb.segments[r.next], nil
		r.next++
	}
	if i < r.first {
		return nil, errBlocks
	}
	if r.gists == nil {
		s := &r.index.tasks[r.tb.task.Index][r.next-1]
		b, err := r.index.section(s.off+int64(s.states)+int64(s.functions)+int64(s.lists)+int64(s.sums), s.gists, s.gistsCRC)
		if err != nil {
			return nil, err
		}
		p := fields{b: b}
		for j := range r.n {
			var own []byte
			if r.tb.blocks[r.first+j].flags&format.BlockGist != 0 {
				own = p.bytes(p.uint())
			}
			r.gists = append(r.gists, own)
		}
		if p.bad || len(p.b) != 0 {
			return nil, errBlocks
		}
	}
	return r.gists[i-r.first], nil
}

// A gistWalk is what a cursor has that takes gists for blocks.
type gistWalk struct {
	gistReader
	block int // the one that it is in; -1: a run of others
	words []gistWord
	at    int // of words
	bs    blockState
}

// gists says which blocks of a task a walk can take the gists of, for calls of so many ns. inside are those in which a
// call that is asked for begins and ends.
func (tb *taskBlocks) gistsFor(c *Calls, clock *Clock, inside []bool) []bool {
	out := make([]bool, len(tb.blocks))
	for i := 1; i < len(tb.blocks)-1; i++ {
		b := &tb.blocks[i]
		out[i] = b.flags&format.BlockGist != 0 &&
			(clock.Span(ticksOf(b.bound)) < c.Threshold || c.Roots == nil && c.Match != nil && !inside[i])
	}
	return out
}

// enterGists goes on with the gist of block i, in whose state the follower is.
func (c *cursor) enterGists(bs *blockState, i int) error {
	g := &c.part.gists
	g.bs, g.block, c.inGists = *bs, i, true
	c.ev.Comm = bs.comm
	c.setRun(c.part.runs[0])
	c.cur = word{t: c.part.due, code: wEntry}
	return c.findGist()
}

// findGist goes on with the next block of the run that has a word in its gist, the current one first. If there is none,
// the follower is behind the run.
func (c *cursor) findGist() error {
	p := c.part
	for g := &p.gists; g.block < p.runs[0][1]; {
		b, err := g.gist(g.block)
		if err == nil {
			g.words, err = parseGist(g.words[:0], b, p.images, p.blocks[g.block].due)
		}
		if err != nil {
			return err
		}
		if g.at = 0; len(g.words) > 0 {
			c.cur.t = g.words[0].t
			return nil
		}
		if err := c.overGist(); err != nil {
			return err
		}
	}
	return nil
}

// overGist brings the follower behind the block.
func (c *cursor) overGist() error {
	g := &c.part.gists
	g.block++
	return c.part.apply(c.fl, g.block, &g.bs, &stateWatch{})
}

// stepGist handles the word that is due, as step does.
func (c *cursor) stepGist() bool {
	g, end := &c.part.gists, c.part.runs[0][1]
	if g.block < end {
		if c.err = c.gistEvent(); c.err != nil {
			return false
		}
		if g.at++; g.at < len(g.words) {
			c.cur.t = g.words[g.at].t
			return true
		}
		if c.err = c.overGist(); c.err == nil {
			c.err = c.findGist()
		}
		if c.err != nil || g.block < end {
			return c.err == nil
		}
	}
	c.fl.t = c.cur.t // what lies behind the newest word is yet to come for the other tasks
	return c.jump()
}

// gistEvent emits the event of the word that is due. The follower's stack follows the calls, so that it is what the state
// behind the block is the difference to; nothing else of it is changed.
func (c *cursor) gistEvent() error {
	g := &c.part.gists
	w := &g.words[g.at]
	st := c.fl.cur
	c.fl.t = w.t
	c.leaf, c.tail = w.code&gistLeaf != 0, w.code&gistTail != 0
	if w.code&gistExit == 0 {
		if g.at+1 < len(g.words) {
			c.nxt.t = g.words[g.at+1].t
		} else {
			c.nxt.t = c.part.blocks[g.block+1].due // of a leaf; no task's last block has a gist
		}
		st.frames = append(st.frames, frame{start: w.t, fn: w.fn})
		c.enter(&st.frames[len(st.frames)-1])
		return c.err
	}
	n := len(st.frames)
	if n == 0 {
		return errBlocks
	}
	f := st.frames[n-1]
	st.frames = st.frames[:n-1]
	if f.self = w.self; c.leaf {
		f.self = w.t - f.start - w.self
	}
	c.left(&f, Exit, 0)
	return c.err
}
