package trace

import (
	"encoding/binary"
	"math"
	"slices"
	"sort"
)

// What a report adds up is in the index, too, so that it need not decode what it counts as
// a whole. There are two kinds of calls:
//
//   - Those that begin and end in one block are added up for each function, over a run of
//     some blocks that follow each other.
//   - Those that were open at a block's start and end in it are listed, with the block. They
//     are few: what was open is in the states, and a block is as long as its state is worth.
//
// So whatever a window begins or ends with, each call is counted once, and as a reader
// counts it that has decoded everything: sums of whole runs, calls of the lists as they end,
// and calls decoded in the runs that are asked for in part.
//
// A run ends with a block, when it has runWorth events for each byte that its sums take.
// Most of that are histograms: a program of thousands of functions that take now this long
// and now that makes runs of millions of events. Where that does not help, or takes too much
// memory, a run has no sums, and its blocks are decoded. Sums for each block would take ten
// times the room, and what they would save is decoding a few blocks at a window's two ends.

const (
	// runWorth is how many events justify a byte of sums, endWorth at a task's end.
	runWorth, endWorth = 16, 1
	// A function's sums take about sumBytes, and each bucket of its histogram bucketBytes.
	sumBytes, bucketBytes = 28, 3
	// endBytes is what sums may take at a task's end in any case.
	endBytes = 4 << 10
	// runSegments is how many segments a run can be as long as.
	runSegments = 32
	// runRoom is how many counters of 4 bytes the histograms of a builder have.
	runRoom = 8 << 20
)

// endForgotten is the ending of an inherited call that turned out not to be one.
const endForgotten ending = endUnfinished + 1

// endFailed is that of a system call with an error: an exit.
const endFailed = endForgotten + 1

// endTaken is that of a call that a reader of a list has taken.
const endTaken = endFailed + 1

// runSums are the sums of the run that is being made, and those that were.
type runSums struct {
	runNumber int32
	runWords  int
	inRun     []int32 // of blockBuilder.fns
	parts     int     // of all of them, but of calls that paths have
	mostParts int     // parts that these calls will make, or more
	hz        float64 // the counter's frequency, as it is known now
	scale     scale
	buckets   int    // that are not empty, in all of their histograms
	room      int    // for more counters in histograms
	noSums    bool   // that was not enough, or sums do not tell enough: the run is without
	closed    int    // how many of blockBuilder.blocks are in runs that are whole
	runs      []byte // these, as they are in the file
	written   int    // blocks of the task in segments
	paths     runPaths
	long      newLong
}

// resetRun begins with a task.
func (b *blockBuilder) resetRun() {
	b.newRun()
	b.long = newLong{to: b.long.to}
	b.closed, b.runs, b.written = 0, b.runs[:0], 0
}

func (b *blockBuilder) newRun() {
	if b.room <= b.sizes.room/4 {
		for i := range b.fns {
			b.fns[i].hist = Histogram{}
		}
		b.room = b.sizes.room
	}
	if math.Abs(b.hz-b.scale.hz) > 1e-7*b.hz {
		b.scale = newScale(b.hz)
	}
	b.runNumber++
	b.waiting.reset()
	b.runWords, b.inRun, b.parts, b.mostParts, b.buckets, b.noSums = 0, b.inRun[:0], 0, 0, 0, false
	b.paths.reset()
}

// duration counts a call of so many ticks, and a bucket that was empty. It returns whether there is room for it.
func (b *blockBuilder) duration(h *Histogram, ticks uint64, buckets *int) bool {
	i := bucket(min(ticks, math.MaxInt64)) - int(h.first)<<histSubBits
	if uint(i) >= uint(len(h.counts)) {
		if b.room <= 0 {
			return false
		}
		had := len(h.counts)
		i = h.grow(i)
		b.room -= len(h.counts) - had
	}
	if h.counts[i] == 0 {
		*buckets++
	}
	h.counts[i]++
	return true
}

// fold gives functions what their paths have.
func (b *blockBuilder) fold() {
	p := &b.paths
	for i := range p.nodes {
		n := &p.nodes[i]
		inner := len(n.parts) > 0 && p.inner(int32(i))
		for j := range n.parts {
			s := n.parts[j].sums
			if inner {
				s.total = 0
			}
			b.part(&b.fns[b.number32(n.fn)], n.parts[j].part).merge(&s)
		}
	}
}

// closeRun ends the run with the newest block if it is worth it. If it must end, it may be without sums. It returns
// whether it has ended.
func (b *blockBuilder) closeRun(must, end bool) bool {
	worth := runWorth
	if end {
		worth = endWorth
	}
	fits := func(size int) bool {
		return !b.noSums && (size*worth <= b.runWords || end && size <= endBytes || b.sizes.worth == 0)
	}
	var size int
	var whole, all bool
	for {
		size = sumBytes*max(b.parts+min(b.paths.parts, b.mostParts), len(b.inRun)) + bucketBytes*b.buckets
		whole = !b.paths.rough && !b.paths.less && fits(size+b.paths.size(true))
		if end && b.long.words > 0 && b.paths.size(true)*runWorth > b.runWords {
			whole = false // the long run has most of these paths already
		}
		all = whole || fits(size+b.paths.size(false))
		if !whole && !(all && b.runWords >= patience) && !must && !b.noSums {
			return false
		}
		if len(b.paths.noted) == 0 {
			break
		}
		b.addNoted() // then it may be too large
	}
	var body, paths, waits []byte
	if fits(size) {
		b.fold()
		body = b.appendSums(nil)
	}
	if all {
		paths = b.paths.append(b.numbering, whole, nil)
	}
	b.runs = binary.AppendUvarint(b.runs, uint64(len(b.blocks)-b.closed))
	b.runs = append(binary.AppendUvarint(b.runs, uint64(len(body))), body...)
	b.runs = append(binary.AppendUvarint(b.runs, uint64(len(paths))), paths...)
	if b.waiting.known(&b.paths) && len(body)+len(paths) > 0 {
		waits = b.appendWaits(whole, nil)
	}
	b.runs = append(binary.AppendUvarint(b.runs, uint64(len(waits))), waits...)
	if !whole {
		b.addLong()
	}
	b.closed = len(b.blocks)
	b.newRun()
	return true
}

// appendSums appends the sums of the functions in the run.
func (b *blockBuilder) appendSums(out []byte) []byte {
	slices.SortFunc(b.inRun, func(x, y int32) int { return b.fns[x].fn.compare(b.fns[y].fn) })
	out = binary.AppendUvarint(out, uint64(len(b.inRun)))
	last := noFunc
	for _, n := range b.inRun {
		f := &b.fns[n]
		out = b.appendNext(out, f.fn, last, 0, 1)
		last = f.fn
		out = appendParts(out, f.parts, f.hist.each)
	}
	return out
}

// append appends what sums have.
func (s *sums) append(b []byte) []byte {
	least, longer := s.min, s.max-s.min
	if s.ended == 0 {
		least, longer = 0, 0
	}
	flat := s.errors << 1
	if s.flat {
		flat |= 1
	}
	b = binary.AppendUvarint(b, s.calls)
	b = binary.AppendUvarint(b, s.calls-s.ended)
	b = binary.AppendUvarint(b, s.sum)
	b = binary.AppendVarint(b, int64(s.sum-s.total))
	for _, v := range []uint64{s.self, least, longer, s.sq.hi, s.sq.lo, s.unwound, s.unfinished, s.noEntry, flat} {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

// sums is the inverse of sums.append.
func (p *fields) sums() (s sums) {
	s.calls = p.uint()
	s.ended = s.calls - p.uint()
	s.sum = p.uint()
	s.total = s.sum - uint64(p.int())
	s.self, s.min = p.uint(), p.uint()
	s.max = s.min + p.uint()
	s.sq.hi, s.sq.lo = p.uint(), p.uint()
	s.unwound, s.unfinished, s.noEntry = p.uint(), p.uint(), p.uint()
	flat := p.uint()
	s.errors, s.flat = flat>>1, flat&1 != 0
	if s.ended == 0 {
		s.min, s.max = math.MaxUint64, 0
	}
	return s
}

// An endedCall is a call that was open when the block began that it ended in.
type endedCall struct {
	openCall
	end, self uint64
	how       ending
}

// crossed notes such a call.
func (b *blockBuilder) crossed(n int32, f *frame, end uint64, how ending) {
	b.ended = append(b.ended, endedCall{openCall{b.fns[n].fn, f.start}, end, f.self, how})
}

// alike says that two of the calls that have ended in a block, or were put aside in it, have the same function and
// entry: a reader cannot tell which of them did what. It happens where clocks are coarse, and with inherited calls.
func (b *blockBuilder) alike(ended []endedCall) bool {
	aside := b.fl.aside
	aside = aside[sort.Search(len(aside), func(i int) bool { return aside[i].saved == 0 }):]
	if len(ended)+len(aside) < 2 {
		return false
	}
	seen := make(map[openCall]bool, len(ended)+len(aside))
	for i := range ended {
		seen[ended[i].openCall] = true
	}
	for i := range aside {
		seen[openCall{aside[i].fn, aside[i].start}] = true
	}
	return len(seen) < len(ended)+len(aside)
}

// lists returns the lists of blocks, as they are in the file.
func (b *blockBuilder) lists(blocks []newBlock) (out []byte) {
	from := 0
	for i := range blocks {
		blk := &blocks[i]
		out = binary.AppendUvarint(out, uint64(blk.calls-from))
		start, end := blk.due, blk.due
		for _, c := range b.ended[from:blk.calls] {
			out = b.appendFn(out, c.fn)
			out = binary.AppendVarint(out, int64(c.start-start))
			out = binary.AppendVarint(out, int64(c.end-end))
			out = binary.AppendUvarint(out, c.self)
			out = append(out, byte(c.how))
			start, end = c.start, c.end
		}
		from = blk.calls
	}
	return out
}

// minEnded is the least size of a call in the lists.
const minEnded = 6

// parseLists returns the lists of a segment's blocks.
func parseLists(b []byte, images []uint32, blocks []block) ([][]endedCall, error) {
	p := fields{b: b, images: images}
	lists := make([][]endedCall, len(blocks))
	for i := range blocks {
		start, end := blocks[i].due, blocks[i].due
		lists[i] = make([]endedCall, p.count(minEnded))
		for j := range lists[i] {
			c := &lists[i][j]
			c.fn = p.fn()
			start += uint64(p.int())
			end += uint64(p.int())
			c.start, c.end, c.self, c.how = start, end, p.uint(), ending(p.byte())
			p.bad = p.bad || c.how > endFailed
		}
	}
	if p.bad || len(p.b) != 0 {
		return nil, errBlocks
	}
	return lists, nil
}

// A sumRun is a run of blocks with their sums.
type sumRun struct {
	first, n int    // blocks of the task
	body     []byte // sums for each function; empty: none
	paths    []byte // for each path
	waits    []byte // what of these sums the task was off a processor; empty: it is not known
	less     bool   // paths have no histograms
}

// parseRuns returns the runs of a segment of n blocks, the first of which is the task's block first.
func parseRuns(b []byte, first, n int) (runs []sumRun, err error) {
	p := fields{b: b}
	for end := first + n; first < end; {
		own := p.uint()
		if own == 0 || own > uint64(end-first) {
			return nil, errBlocks
		}
		runs = append(runs, sumRun{
			first: first, n: int(own), body: p.bytes(p.uint()), paths: p.bytes(p.uint()), waits: p.bytes(p.uint()),
		})
		first += int(own)
	}
	if p.bad || len(p.b) != 0 {
		return nil, errBlocks
	}
	return runs, nil
}
