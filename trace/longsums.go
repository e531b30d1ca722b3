package trace

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/internal/format"
)

// A program of thousands of paths has runs that do without the parts of their paths, which
// would take more room than the events are worth. Over a hundred million events they are
// worth it: so what such runs had to leave out is added up over many of them, in a long run,
// and a graph with a threshold, or a report of calls inside of others, of a whole trace adds
// up few of these. Of a window that begins or ends in a long run, all of it is decoded.
//
// A long run is of those runs only that can be added up: it has the list of their blocks. The
// others in between are what they were. It is written behind the segment that has its last
// block, in a segment of its own.

const (
	// A long run has longWorth times as many events for a byte as a run; one that must end, as many.
	longWorth = 4
	// maxLongPaths is how many paths a long run has, longParts how many parts for each counter of its builder's room.
	maxLongPaths, longParts = 1 << 17, 8
)

// Flags of a long run.
const longLess = 1 // it has no histograms

// newLong is the long run that is being made.
type newLong struct {
	paths  runPaths
	words  int
	blocks [][2]int // of the task: from, to
	waits  map[offKey]offTime
	known  bool
	to     []int32 // node for a node of the run

	out [][]byte // those that are whole, as they are in the file
}

func (l *newLong) reset() {
	*l = newLong{known: true, to: l.to, out: l.out}
	l.paths.node(FuncID{}, -1)
}

// addLong adds the run that ends, with the blocks up to the newest one.
func (b *blockBuilder) addLong() {
	p, l := &b.paths, &b.long
	if p.state != pathsGood || p.rough || b.noSums || len(p.nodes) < 2 {
		return
	}
	for i := range b.blocks[b.closed:] {
		if b.blocks[b.closed+i].flags&format.BlockAlike != 0 {
			return
		}
	}
	if len(l.paths.nodes)+len(p.nodes) > maxLongPaths || l.paths.parts+p.parts > b.sizes.room/longParts {
		b.closeLong(true)
		if p.parts > b.sizes.room/longParts {
			return
		}
	}
	if l.words == 0 {
		l.reset()
	}
	l.words += b.runWords
	first, end := b.written+b.closed, b.written+len(b.blocks)
	if n := len(l.blocks); n > 0 && l.blocks[n-1][1] == first {
		l.blocks[n-1][1] = end
	} else {
		l.blocks = append(l.blocks, [2]int{first, end})
	}
	l.merge(p, b.sizes.room/pathRoom)
	if l.known = l.known && b.waiting.known(p); l.known {
		for k, off := range b.waiting.by {
			addOff(&l.waits, offKey{l.to[k.of], k.part}, off)
		}
	}
	b.closeLong(false)
}

// merge adds the paths of a run.
func (l *newLong) merge(o *runPaths, room int) {
	p := &l.paths
	p.less = p.less || o.less
	l.to = append(l.to[:0], 0)
	for i := 1; i < len(o.nodes); i++ {
		from := &o.nodes[i]
		parent := l.to[from.parent]
		at, ok := p.edges.find(parent, from.fn)
		if !ok {
			at = p.node(from.fn, parent)
			p.edges.add(parent, from.fn, at)
		}
		l.to = append(l.to, at)
		to := &p.nodes[at]
		for j := range from.parts {
			p.part(to, from.parts[j].part).merge(&from.parts[j].sums)
		}
		for _, c := range from.hist {
			p.duration(to, int(c.bucket), c.n, room)
		}
	}
}

// closeLong ends the long run if it is worth it. If it must end, it is dropped if not.
func (b *blockBuilder) closeLong(must bool) {
	l := &b.long
	p := &l.paths
	if l.words == 0 {
		return
	}
	if p.less {
		for i := range p.nodes {
			p.nodes[i].hist = nil
		}
		p.buckets = 0
	}
	worth := b.sizes.worth
	if !must {
		worth *= longWorth
	}
	p.state = pathsGood
	if p.size(true)*worth <= l.words {
		l.out = append(l.out, l.append(b.numbering))
	} else if !must {
		return
	}
	l.words = 0
	l.paths, l.waits = runPaths{}, nil
}

func (l *newLong) append(n numbering) (out []byte) {
	out = binary.AppendUvarint(out, uint64(len(l.blocks)))
	at := 0
	for _, r := range l.blocks {
		out = binary.AppendUvarint(binary.AppendUvarint(out, uint64(r[0]-at)), uint64(r[1]-r[0]))
		at = r[1]
	}
	flags := byte(0)
	if l.paths.less {
		flags = longLess
	}
	paths := l.paths.append(n, true, nil)
	out = append(binary.AppendUvarint(append(out, flags), uint64(len(paths))), paths...)
	var waits []byte
	if l.known {
		by := make(map[offKey]offTime, len(l.waits))
		for k, off := range l.waits {
			addOff(&by, offKey{k.of, uint8(partIndex(l.paths.nodes[k.of].parts, k.part))}, off)
		}
		waits = appendOffs(appendOffs(nil, nil), by)
	}
	return append(binary.AppendUvarint(out, uint64(len(waits))), waits...)
}

// A longRun is a long run as it is read.
type longRun struct {
	sumRun
	blocks [][2]int
}

// A longSegment is where a long run is, and behind how many of the task's segments.
type longSegment struct {
	segment
	behind int
}

// longRuns reads the long runs of a task.
func (x *blockIndex) longRuns(tb *taskBlocks) (runs []longRun, err error) {
	for _, s := range x.longOf(tb.task) {
		b, err := x.section(s.off, s.states, s.statesCRC)
		if err != nil {
			return nil, err
		}
		r, err := parseLong(b, len(tb.blocks))
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// longOf returns where the long runs of a task are.
func (x *blockIndex) longOf(k *Task) []longSegment {
	if k.Index >= len(x.long) {
		return nil
	}
	return x.long[k.Index]
}

// minRange is the least size of the blocks of a long run.
const minRange = 2

// parseLong returns a long run of a task of so many blocks.
func parseLong(b []byte, blocks int) (r longRun, err error) {
	p := fields{b: b}
	at := uint64(0)
	for range p.count(minRange) {
		at += min(p.uint(), 1<<32)
		n := p.uint()
		if n == 0 || n > uint64(blocks) || at+n > uint64(blocks) {
			return r, errBlocks
		}
		r.blocks = append(r.blocks, [2]int{int(at), int(at + n)})
		at += n
	}
	flags := p.byte()
	r.less = flags&longLess != 0
	r.paths = p.bytes(p.uint())
	r.waits = p.bytes(p.uint())
	if p.bad || len(p.b) != 0 || len(r.blocks) == 0 || len(r.paths) == 0 {
		return r, errBlocks
	}
	return r, nil
}

// addLong adds the sums of a long run that begins with block i, if all of it counts. From then on its blocks are left
// out. It returns whether the block is one of them.
func (s *chosenSink) addLong(i, last int, wanted []bool) (bool, error) {
	q := s.sums
	if !q.paths {
		return false, nil
	}
	if q.long == nil {
		runs, err := q.x.longRuns(q.tb)
		if err != nil {
			return false, err
		}
		q.long, q.inLong = append([]longRun{}, runs...), make([]bool, len(wanted))
	}
	if q.inLong[i] {
		return true, nil
	}
	for j := range q.long {
		r := &q.long[j]
		if r.blocks[0][0] != i || !s.countsAll(r, last, len(wanted)) {
			continue
		}
		ok, err := s.addSums(&r.sumRun)
		if err != nil {
			return false, err
		}
		for _, of := range r.blocks {
			if ok {
				clear(wanted[of[0]:of[1]])
			}
			for k := of[0]; k < of[1]; k++ {
				q.inLong[k] = ok
			}
		}
		return ok, nil
	}
	return false, nil
}

// countsAll says that all calls of a long run of the blocks to come can count.
func (s *chosenSink) countsAll(r *longRun, last, blocks int) bool {
	q := s.sums
	end := r.blocks[len(r.blocks)-1][1]
	if end > last && last < blocks || s.before || s.fl.now <= s.from && s.from > 0 || s.fl.waits != nil && len(r.waits) == 0 {
		return false
	}
	for _, of := range r.blocks {
		for k := of[0]; k < of[1]; k++ {
			if b := &q.tb.blocks[k]; q.inLong[k] || b.flags&format.BlockAlike != 0 || b.lo < s.from {
				return false
			}
		}
	}
	return true
}
