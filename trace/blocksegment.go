package trace

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/fentry-dev/fentry/internal/format"
)

// The blocks that a builder has made go into the index in segments, while it goes on
// with the task. What is learned later of a block, that a call which began in it took
// longer than all others, is in the segment of the time when it is learned.

const (
	// segmentBlocks is after how many blocks a segment ends, with the run of sums that they are in: what a recorder
	// loses of an index when it is killed, and 88 bytes are nothing beside them.
	segmentBlocks = 64
	// segmentBytes is how many bytes of states end a segment.
	segmentBytes = 1 << 20
)

// A newSegment is a segment to be written.
type newSegment struct {
	segment
	statesOf, functionsOf, listsOf, sumsOf, gistsOf []byte

	longOf [][]byte // long runs of which it has the last block
}

// flush gives the blocks that are whole away; with end, the task has no more.
func (b *blockBuilder) flush(end bool) {
	whole, chunkEnd := b.blocks, b.chunk0+len(b.chunks)
	if !end {
		// A run that is not whole is left out: the newest block has a part in its sums.
		n := b.closed
		if n == 0 {
			return
		}
		whole, chunkEnd = b.blocks[:n], b.blocks[n].chunk
	}
	s := newSegment{segment: segment{first: math.MaxUint64, end: end, chunks: uint32(chunkEnd - b.crcTo)}}
	for i := range whole {
		s.first, s.last = min(s.first, whole[i].lo), max(s.last, whole[i].hi)
	}
	for i := range b.chunks[b.crcTo-b.chunk0 : chunkEnd-b.chunk0] {
		b.crc = b.chunks[b.crcTo-b.chunk0+i].crc(b.crc)
	}
	s.chunksCRC, b.crcTo = b.crc, chunkEnd
	s.statesOf, s.functionsOf = b.states(whole, chunkEnd), b.functions(whole)
	s.listsOf, s.sumsOf, s.gistsOf = b.lists(whole), slices.Clone(b.runs), gists(whole)
	s.longOf, b.long.out = b.long.out, nil
	b.later = true
	b.written += len(whole)
	b.blocks = b.blocks[:copy(b.blocks, b.blocks[len(whole):])]
	b.bounds, b.ended, b.runs, b.closed = b.bounds[:0], b.ended[:0], b.runs[:0], 0
	b.pending = 0
	clear(b.late)
	if b.out != nil && b.err == nil {
		b.err = b.out(b.task, &s)
	}
}

// states returns the states of blocks, as they are in the file.
func (b *blockBuilder) states(blocks []newBlock, end int) (out []byte) {
	if !b.later {
		out = b.appendCalls(nil, b.inherited)
		out = append(append(out, byte(len(b.comm0))), b.comm0...)
	}
	out = binary.AppendUvarint(out, uint64(len(blocks)))
	due := uint64(0)
	for i := range blocks {
		blk := &blocks[i]
		to := end
		if i+1 < len(blocks) {
			to = blocks[i+1].chunk
		}
		out = binary.AppendUvarint(out, uint64(to-blk.chunk))
		out = binary.AppendUvarint(out, blk.due-due)
		out = binary.AppendVarint(out, int64(blk.lo-blk.due))
		out = binary.AppendUvarint(out, blk.hi-blk.lo)
		if out = append(out, blk.flags); blk.flags&format.BlockGist != 0 {
			out = binary.LittleEndian.AppendUint16(out, roundTicks(blk.bound))
		}
		out = binary.AppendUvarint(out, uint64(len(blk.next)))
		out = append(out, blk.next...)
		due = blk.due
	}
	return out
}

// gists returns the gists of blocks, as they are in the file.
func gists(blocks []newBlock) (out []byte) {
	for i := range blocks {
		if blk := &blocks[i]; blk.flags&format.BlockGist != 0 {
			out = append(binary.AppendUvarint(out, uint64(len(blk.gist))), blk.gist...)
		}
	}
	return out
}

// functions returns the functions of blocks, and what has been learned of others, as they are in the file.
func (b *blockBuilder) functions(blocks []newBlock) (out []byte) {
	for i := range blocks {
		blk := &blocks[i]
		out = b.appendBounds(out, b.bounds[blk.first:blk.first+blk.size])
	}
	late := make([]lateKey, 0, len(b.late))
	for k := range b.late {
		if int(k.block-b.base) < b.written+len(blocks) {
			late = append(late, k)
		}
	}
	slices.SortFunc(late, func(a, b lateKey) int { return cmp.Or(cmp.Compare(a.block, b.block), cmp.Compare(a.fn, b.fn)) })
	out = binary.AppendUvarint(out, uint64(len(late)))
	for _, k := range late {
		out = binary.AppendUvarint(out, uint64(k.block-b.base))
		out = b.appendFn(out, b.fns[k.fn].fn)
		out = binary.LittleEndian.AppendUint16(out, b.late[k])
	}
	return out
}

// appendBounds appends the functions of a block.
func (b *blockBuilder) appendBounds(out []byte, list []callBound) []byte {
	slices.SortFunc(list, func(x, y callBound) int { return b.fns[x.fn].fn.compare(b.fns[y.fn].fn) })
	out = binary.AppendUvarint(out, uint64(len(list)))
	last := noFunc
	for _, c := range list {
		fn := b.fns[c.fn].fn
		if c.inside == c.max {
			out = b.appendNext(out, fn, last, 0, 2)
		} else {
			out = b.appendNext(out, fn, last, twoBounds, 2)
			out = binary.LittleEndian.AppendUint16(out, c.inside)
		}
		out = binary.LittleEndian.AppendUint16(out, c.max)
		last = fn
	}
	return out
}

// twoBounds says that a bound of calls inside of the block comes before that of all.
const twoBounds = 2

// anyTicks is a bound that says nothing.
const anyTicks = math.MaxUint16

// roundTicks stores a number in 16 bits, rounded up by less than 0.1 %.
func roundTicks(v uint64) uint16 {
	if v == math.MaxUint64 {
		return anyTicks
	}
	if v < 1024 {
		return uint16(v)
	}
	e := bits.Len64(v) - 11
	m := v >> e
	if v&(1<<e-1) != 0 {
		m++
	}
	return uint16(e+1)<<10 + uint16(m-1024) // 2048 carries into the exponent
}

// ticksOf is the inverse of roundTicks.
func ticksOf(c uint16) uint64 {
	e := uint(c >> 10)
	m := uint64(c & 1023)
	switch {
	case e == 0:
		return m
	case bits.Len64(1024+m)+int(e)-1 > 64:
		return math.MaxUint64
	}
	return (1024 + m) << (e - 1)
}
