package trace

import (
	"errors"
	"fmt"
	"sort"
)

// The file index says where in a trace to read. A trace of a billion calls takes
// minutes to go through, and what people ask is mostly in a few of its chunks: what
// happened in this millisecond, which calls of f took longest.
//
// The chunks of a task are divided into blocks, see blockbuild.go. For each of them the
// index has
//
//   - when its events happened,
//   - the state of the task's follower at its start, as the difference to the block
//     before (blockstate.go): so decoding can begin with any block and goes on exactly
//     as if it had begun with the first,
//   - for each function a bound of the longest of its calls that begin or end in it.
//
// That a reader begins with the state it would have had is the invariant that all rests
// on: what is shown is what a reader without an index shows, and the tests compare the
// two. Deeper ideas were tried: a tree of calls that cross the borders of chunks gives
// the open calls, but not what a follower needs besides to match exits (calls aside,
// credits, losses), so that a window in coroutines or after losses came out different.
//
// The file is for speed only. It has checksums, and they cover everything that it was
// made of but the events themselves; a file that does not fit is not used. A file that
// lies shows wrong events, as a trace that lies does; it costs no more memory than its
// own size, and decoding stops where blocks do not fit together.

// A block is some chunks of a task that follow each other.
type block struct {
	chunk int    // position of the first one in Task.chunks
	due   uint64 // where its first word is in the order of Walk
	lo    uint64 // no event of it has a lesser counter
	hi    uint64 // no event of it or of a block before has a greater one
	flags byte
	state []byte // difference of the state at its start to that of the block before
}

// taskBlocks are the blocks of a task.
type taskBlocks struct {
	inherited []openCall
	comm      string // the task's name at first
	blocks    []block
}

// errBlocks is for an index whose checksums are right and whose contents are not.
var errBlocks = errors.New("the file " + IndexFile + " does not fit the events; remove it, and it is made anew")

// parseStates reads the states of a task that has n chunks.
func parseStates(b []byte, n int) (*taskBlocks, error) {
	p := fields{b: b}
	tb := &taskBlocks{inherited: p.calls(), comm: commString(p.bytes(uint64(p.byte())))}
	tb.blocks = make([]block, p.count(7))
	at, due := 0, uint64(0)
	for i := range tb.blocks {
		blk := &tb.blocks[i]
		chunks := p.uint()
		if chunks == 0 || chunks > uint64(n-at) {
			return nil, fmt.Errorf("block %d has %d chunks of %d", i, chunks, n-at)
		}
		blk.chunk = at
		at += int(chunks)
		due += p.uint()
		blk.due = due
		blk.lo = due + uint64(p.int())
		blk.hi = blk.lo + p.uint()
		blk.flags = p.byte()
		blk.state = p.bytes(p.uint())
	}
	if p.bad || len(p.b) != 0 || at != n && len(tb.blocks) > 0 {
		return nil, errors.New("the states are damaged")
	}
	return tb, nil
}

// eachBounds calls fn for each function of a task's n blocks.
func eachBounds(b []byte, n int, fn func(block int, f FuncID, ticks uint64)) error {
	p := fields{b: b}
	for i := range n {
		var f FuncID
		for range p.count(3) {
			if v := p.uint(); v == 1 {
				f = p.fn()
			} else {
				f.ID += uint32(v >> 1)
			}
			c := p.bytes(2)
			if p.bad {
				return errBlocks
			}
			fn(i, f, ticksOf(uint16(c[0])|uint16(c[1])<<8))
		}
	}
	if p.bad || len(p.b) != 0 {
		return errBlocks
	}
	return nil
}

// from returns the first block that has events of counter t or later.
func (tb *taskBlocks) from(t uint64) int {
	return sort.Search(len(tb.blocks), func(i int) bool { return tb.blocks[i].hi >= t })
}

// end returns the position of the chunk after a block.
func (tb *taskBlocks) end(i int, k *Task) int {
	if i+1 < len(tb.blocks) {
		return tb.blocks[i+1].chunk
	}
	return len(k.chunks)
}
