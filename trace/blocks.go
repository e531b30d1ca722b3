package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sort"
	"sync/atomic"

	"github.com/fentry-dev/fentry/internal/format"
)

// The file index says where in a trace to read. A trace of a billion calls takes
// minutes to go through, and what people ask is mostly in a few of its chunks: what
// happened in this millisecond, which calls of f took longest.
//
// The chunks of a task are divided into blocks, see blockbuild.go. For each of them the
// index has
//
//   - when its events happened,
//   - how the state of the task's follower at its end differs from that at its start
//     (blockstate.go): so decoding can begin with any block and goes on exactly as if it
//     had begun with the first,
//   - for each function a bound of the longest of its calls that begin or end in it,
//   - the calls that stand out, as far as it has those of nesting only (gist.go).
//
// That a reader begins with the state it would have had is the invariant that all rests
// on: what is shown is what a reader without an index shows, and the tests compare the
// two. Deeper ideas were tried: a tree of calls that cross the borders of chunks gives
// the open calls, but not what a follower needs besides to match exits (calls aside,
// credits, losses), so that a window in coroutines or after losses came out different.
//
// The file is made of segments, some blocks of a task each, so that it can be made while
// events come: what is in it is never changed. It is whole if every task has a last one;
// else a reader goes on where it ends (blockresume.go). The state behind a segment's
// last block is in the segment, and is all that this takes.
//
// The file is for speed only. It has checksums, and they cover everything that it was
// made of but the events themselves; what does not fit is not used. A file that
// lies shows wrong events, as a trace that lies does; it costs no more memory than its
// own size, and decoding stops where blocks do not fit together.

// A block is some chunks of a task that follow each other.
type block struct {
	chunk int    // position of the first one in Task.chunks
	due   uint64 // where its first word is in the order of Walk
	lo    uint64 // no event of it has a lesser counter
	hi    uint64 // no event of it or of a block before has a greater one
	flags byte
	bound uint16 // of a block with a gist: no call that is left out of that takes more ticks, see roundTicks
	state []byte // difference of the state at its start to that of the block before
}

// taskBlocks are the blocks of a task.
type taskBlocks struct {
	task      *Task
	images    []uint32 // see fields
	inherited []openCall
	comm      string // the task's name at first
	blocks    []block
	segments  []int // how many blocks each has

	chunks int    // of all blocks
	next   []byte // difference of the state behind the last block

	marks *blockMarks // nil: there are none
}

// errBlocks is for an index whose checksums are right and whose contents are not.
var errBlocks = errors.New("the file " + IndexFile + " does not fit the events; remove it, and it is made anew")

// minBlockSize is the least size of a block in the states of a segment.
const minBlockSize = 6

// parse adds the blocks of the task's next segment, which is of so many chunks.
func (tb *taskBlocks) parse(b []byte, chunks int) error {
	p := fields{b: b, images: tb.images}
	if len(tb.segments) == 0 {
		tb.inherited, tb.comm = p.calls(), commString(p.bytes(uint64(p.byte())))
	}
	n := p.count(minBlockSize)
	due := uint64(0)
	end := tb.chunks + chunks
	for i := range n {
		own := p.uint()
		if own == 0 || own > uint64(end-tb.chunks) {
			return fmt.Errorf("block %d has %d chunks of %d", i, own, end-tb.chunks)
		}
		blk := block{chunk: tb.chunks, state: tb.next}
		tb.chunks += int(own)
		due += p.uint()
		blk.due = due
		blk.lo = due + uint64(p.int())
		blk.hi = blk.lo + p.uint()
		if blk.flags = p.byte(); blk.flags&format.BlockGist != 0 {
			if c := p.bytes(2); c != nil {
				blk.bound = binary.LittleEndian.Uint16(c)
			}
		}
		tb.next = p.bytes(p.uint())
		tb.blocks = append(tb.blocks, blk)
	}
	if p.bad || len(p.b) != 0 || n > 0 && tb.chunks != end {
		return errors.New("the states are damaged")
	}
	tb.chunks = end
	tb.segments = append(tb.segments, n)
	return nil
}

// apply brings a follower from the start of the block before to that of block i. There is one behind the last, too.
func (tb *taskBlocks) apply(fl *follower, i int, bs *blockState, watch *stateWatch) error {
	state, chunk := tb.next, tb.chunks
	if i < len(tb.blocks) {
		state, chunk = tb.blocks[i].state, tb.blocks[i].chunk
	}
	bs.number = tb.task.chunks[chunk-1].number + 1
	return fl.apply(state, tb.images, bs, watch)
}

// eachBounds calls fn for functions of a segment's n blocks, the first of which is the task's block first, with a bound
// of all calls that begin or end in the block, and one of those that do both. A function can come several times for a
// block, with different bounds.
func eachBounds(b []byte, images []uint32, first, n int, fn func(block int, f FuncID, ticks, inside uint64)) error {
	p := fields{b: b, images: images}
	ticks := func() uint64 {
		if c := p.bytes(2); c != nil {
			return ticksOf(binary.LittleEndian.Uint16(c))
		}
		return math.MaxUint64
	}
	for i := range n {
		f := noFunc
		for range p.count(3) {
			two := p.next(&f, 2)
			inside := ticks()
			t := inside
			if two != 0 {
				t = ticks()
			}
			if p.bad {
				return errBlocks
			}
			fn(first+i, f, t, inside)
		}
	}
	for range p.count(5) {
		i, f, t := p.uint(), p.fn(), ticks()
		if p.bad || i >= uint64(first+n) {
			return errBlocks
		}
		fn(int(i), f, t, 0)
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
func (tb *taskBlocks) end(i int) int {
	if i+1 < len(tb.blocks) {
		return tb.blocks[i+1].chunk
	}
	return tb.chunks
}

// A blockIndex is the file index, or what would be in it.
type blockIndex struct {
	r      segmentReader
	images []uint32    // see fields
	listed []byte      // these images, as they are in the file
	tasks  [][]segment // by Task.Index
	long   [][]longSegment
	close  func() error

	// What was read of tasks, by Task.Index, for who asks often; nil: nothing is kept.
	kept []atomic.Pointer[taskBlocks]
}

// A segment is where some blocks of a task are, after those of the segment before.
type segment struct {
	off                     int64  // of the states; functions, lists and sums follow them
	first, last             uint64 // counters
	chunks                  uint32
	states, functions       uint32 // bytes
	lists, sums, gists      uint32
	statesCRC, functionsCRC uint32
	listsCRC, sumsCRC       uint32
	gistsCRC                uint32
	chunksCRC               uint32
	end                     bool // the task has no more chunks
}

// section returns a part of the index. It is checked, but is no more trusted for that.
func (x *blockIndex) section(off int64, size, crc uint32) ([]byte, error) {
	b := make([]byte, size)
	if err := x.r.read(b, off); err != nil {
		return nil, err
	}
	if format.CRC(0, b) != crc {
		return nil, fmt.Errorf("%s: offset %#x: %d bytes are damaged", IndexFile, off, size)
	}
	return b, nil
}

// span returns the least and the greatest counter of a task's events.
func (x *blockIndex) span(k *Task) (first, last uint64) {
	first = math.MaxUint64
	for i := range x.tasks[k.Index] {
		s := &x.tasks[k.Index][i]
		first, last = min(first, s.first), max(last, s.last)
	}
	return first, last
}

// states returns the blocks of a task.
func (x *blockIndex) states(k *Task) (*taskBlocks, error) {
	if x.kept == nil {
		return x.readStates(k)
	}
	at := &x.kept[k.Index]
	if tb := at.Load(); tb != nil {
		return tb, nil
	}
	tb, err := x.readStates(k)
	if err != nil {
		return nil, err
	}
	tb.marks = &blockMarks{every: markEvery}
	if !at.CompareAndSwap(nil, tb) {
		tb = at.Load() // somebody was faster
	}
	return tb, nil
}

func (x *blockIndex) readStates(k *Task) (*taskBlocks, error) {
	tb := &taskBlocks{task: k, images: x.images}
	for i := range x.tasks[k.Index] {
		s := &x.tasks[k.Index][i]
		b, err := x.section(s.off, s.states, s.statesCRC)
		if err == nil && int64(tb.chunks)+int64(s.chunks) > int64(len(k.chunks)) {
			err = errBlocks
		}
		if err == nil {
			err = tb.parse(b, int(s.chunks))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: task %d: %w", IndexFile, k.TID, err)
		}
	}
	return tb, nil
}

// eachBounds calls fn for the functions of a task's blocks, in no order and some several times.
func (x *blockIndex) eachBounds(tb *taskBlocks, fn func(block int, f FuncID, ticks, inside uint64)) error {
	first := 0
	for i, n := range tb.segments {
		s := &x.tasks[tb.task.Index][i]
		b, err := x.section(s.off+int64(s.states), s.functions, s.functionsCRC)
		if err != nil {
			return err
		}
		if err := eachBounds(b, x.images, first, n, fn); err != nil {
			return err
		}
		first += n
	}
	return nil
}
