package trace

import (
	"math"

	"github.com/fentry-dev/fentry/internal/format"
)

// Blocks are made in one pass over a task, by a follower whose sink notes for each
// function the longest of its calls that begin or end in the block.
//
// A block ends at the end of a chunk, when it is long enough for what is stored of it:
// at least minBlock events, and blockWorth for each frame, stack and function. So the
// index stays small beside the events whatever the program does. A recursion that is a
// million calls deep, or a thousand coroutines, make longer blocks, not a larger index.

const (
	// minBlock is how many events a block has at least: nearly those of a chunk of 64 KiB, and decoding them takes a
	// fraction of a millisecond. Four times as many made an index of half the size, with which calls of 3 us, or a
	// thread's times off its processor, took three to four times as long to find.
	minBlock = 7 << 10
	// blockWorth is how many events justify a frame, or another thing that is stored.
	// None takes more than 32 bytes, and most take less than 8.
	blockWorth = 16
)

// blockSizes are minBlock, blockWorth, segmentBlocks and runRoom; tests have others.
type blockSizes struct{ least, worth, segment, room int }

var usualBlocks = blockSizes{minBlock, blockWorth, segmentBlocks, runRoom}

// A callBound is the longest call of a function in a block, or more: of all that begin or end in it, and of those that
// do both.
type callBound struct {
	fn          int32 // number in blockBuilder.fns
	max, inside uint16
}

// A newBlock is a block that is being made, or was and is not in a segment yet.
type newBlock struct {
	chunk       int // first one, among all of the task
	due         uint64
	lo, hi      uint64
	flags       byte
	next        []byte // difference of the state behind it
	first, size int    // of blockBuilder.bounds
	calls       int    // how many of blockBuilder.ended are of it and the blocks before
	gist        []byte // if there is one
	bound       uint64 // of calls that are not in it
}

// blockBuilder is the sink that makes the blocks of one task after another.
type blockBuilder struct {
	sizes blockSizes
	numbering
	out  func(k *Task, s *newSegment) error
	done *blockIndex // what there is already of tasks to go on with; nil: nothing
	err  error       // of out
	fl   *follower

	task   *Task
	chunks []chunkRef // of the task, from chunk0 on; the decoder has the rest of them
	chunk0 int
	crc    uint32 // of the chunks until crcTo
	crcTo  int
	later  bool // the task has a segment

	tab  funcTable
	fns  []builderFunc
	seen []int32 // of fns, in the block
	now  int32   // number of the block among all of the builder

	base    int32 // that of the task's first block
	blocks  []newBlock
	pending int // bytes of their states
	bounds  []callBound
	ended   []endedCall // calls from before the block they ended in
	late    map[lateKey]uint16
	saver   *stateSaver
	gist    gistMaker

	runSums
	t       *Trace // nil: nothing is known of waits
	waiting runWaits

	inherited []openCall // at the task's begin
	comm0     string     // the task's name at first
	comm      string
	number    uint32 // of the chunk that would follow
	latest    uint64
	words     int // since the block began
	left      int // chunks that the decoder had at the newest word
	last      word
	foreign   bool // there was a word that is nothing: the ranges of ids may not be known yet
}

// A builderFunc is what is known of a function in the newest block, and the newest run, that had it.
type builderFunc struct {
	fn     FuncID
	block  int32
	run    int32
	active int32      // open calls, as a report counts them
	max    uint64     // bound of the block
	inside uint64     // of calls that begin and end in it
	parts  []partSums // of the run, and at its end those of its paths
	has    uint64     // which parts paths will add
	hist   Histogram
}

// A lateKey is a function in a block that was over when a call ended that began in it.
type lateKey struct {
	block int32
	fn    int32
}

// newBlockBuilder returns a builder for a trace whose counter has about that frequency; 0: it is not known.
func newBlockBuilder(sizes blockSizes, hz float64, n numbering, out func(*Task, *newSegment) error) *blockBuilder {
	return &blockBuilder{sizes: sizes, numbering: n, out: out, runSums: runSums{hz: hz, scale: newScale(hz)}}
}

func (b *blockBuilder) begin(fl *follower) { b.fl = fl }

func (b *blockBuilder) number32(fn FuncID) int32 {
	p := b.tab.slot(fn)
	if *p == 0 {
		b.fns = append(b.fns, builderFunc{fn: fn, block: -1})
		*p = int32(len(b.fns))
	}
	return *p - 1
}

// note returns the function with that number, which has something in the current block.
func (b *blockBuilder) note(n int32) *builderFunc {
	f := &b.fns[n]
	if f.block != b.now {
		f.block, f.max, f.inside = b.now, 0, 0
		b.seen = append(b.seen, n)
		if f.run != b.runNumber {
			f.run, f.parts, f.has = b.runNumber, f.parts[:0], 0
			clear(f.hist.counts)
			b.inRun = append(b.inRun, n)
		}
	}
	return f
}

// function returns the number of a frame's function.
func (b *blockBuilder) function(f *frame) int32 {
	if f.flags&frameSaved != 0 {
		return b.number32(f.fn) // the ref is the block that it began in
	}
	return f.ref
}

// until notes that a call ends, or seems to, after so many ticks.
func (b *blockBuilder) until(n int32, f *frame, ticks uint64) *builderFunc {
	bf := b.note(n)
	bf.max = max(bf.max, ticks)
	if f.flags&frameSaved != 0 {
		k := lateKey{f.ref, n}
		b.late[k] = max(b.late[k], roundTicks(ticks))
	}
	return bf
}

func (b *blockBuilder) enter(f *frame) {
	f.ref = b.number32(f.fn)
	bf := &b.fns[f.ref]
	if bf.active == 0 {
		f.flags |= frameOuter
	}
	bf.active++
	if b.gist.code == wExit && b.gist.before == f.start {
		f.flags |= frameTail
		b.gist.tailed(int32(b.words) - 1)
	}
	b.gist.bad = b.gist.bad || f.flags&frameInherited != 0
	b.paths.enter(f.fn, len(b.fl.cur.frames)-1)
}

func (b *blockBuilder) suspend(f *frame) {
	b.paths.state, b.gist.bad = pathsNone, true
	b.until(b.function(f), f, b.fl.t-min(b.fl.t, f.start)).active--
}

func (b *blockBuilder) leave(f *frame, end uint64, how ending) {
	n, dur := b.function(f), end-min(end, f.start)
	path := b.paths.leave(f, len(b.fl.cur.frames))
	var off offTime
	if b.waiting.high > 0 {
		off = b.waiting.leave(len(b.fl.cur.frames))
	}
	bf := b.note(n)
	if f.flags&frameSuspended == 0 {
		bf.active--
	}
	if f.flags&frameSuspended == 0 || how == endExit {
		b.until(n, f, dur) // of others that is known since they were put aside
	}
	saved := f.flags&frameSaved != 0
	switch {
	case how != endExit || f.flags&frameSuspended != 0:
		b.gist.bad = true
	case saved || b.gist.stands(dur, end):
		b.toGist(f, end)
	}
	if saved {
		b.crossed(n, f, end, how)
		return
	}
	bf.inside = max(bf.inside, dur, 1) // 0 says that there are none
	part := b.scale.part(dur)
	if path != nil {
		if off != (offTime{}) {
			b.waiting.take(b.paths.newest, part, off)
		}
		b.addToPath(path, bf, f, part, dur, how)
		return
	}
	if f.flags&frameInherited != 0 { // found out in this block: sums do not say how long it took, so none can tell if it counts
		b.noSums = true
		return
	}
	s := b.part(bf, part)
	s.end(f, dur, f.flags&frameOuter != 0, how)
	s.calls++
	b.noSums = !b.duration(&bf.hist, dur, &b.buckets) || b.noSums
}

// toGist adds a call that has ended to the block's gist.
func (b *blockBuilder) toGist(f *frame, end uint64) {
	if !b.gist.bad {
		b.gist.add(gistCall{
			start: f.start, end: end, self: f.self, fn: f.fn, depth: int32(len(b.fl.cur.frames)), word: int32(b.words),
			tail: f.flags&frameTail != 0, crossing: f.flags&frameSaved != 0,
		})
	}
}

// addToPath adds a call to those of its path.
func (b *blockBuilder) addToPath(path *runPath, bf *builderFunc, f *frame, part uint8, dur uint64, how ending) {
	if bit := uint64(1) << part; bf.has&bit == 0 {
		bf.has |= bit
		b.mostParts++
	}
	b.noSums = !b.duration(&bf.hist, dur, &b.buckets) || b.noSums
	p := &b.paths
	c := notedCall{dur: dur, self: f.self, node: p.newest, part: part, how: how}
	if len(p.nodes) < manyPaths {
		b.addCall(path, &c)
		return
	}
	if p.noted = append(p.noted, c); len(p.noted) >= notedCalls {
		b.addNoted()
	}
}

// addCall adds a call to its path.
func (b *blockBuilder) addCall(path *runPath, c *notedCall) {
	s := b.paths.part(path, c.part)
	s.end(&frame{self: c.self}, c.dur, true, c.how)
	s.calls++
	b.paths.duration(path, bucket(min(c.dur, math.MaxInt64)), 1, b.sizes.room/pathRoom)
}

// addNoted adds the calls that are noted to their paths, one path after the other.
func (b *blockBuilder) addNoted() {
	p := &b.paths
	if len(p.noted) == 0 {
		return
	}
	p.places = append(p.places[:0], make([]uint32, len(p.nodes)+1)...)
	for i := range p.noted {
		p.places[p.noted[i].node+1]++
	}
	for i := range p.nodes {
		p.places[i+1] += p.places[i]
	}
	if cap(p.order) < len(p.noted) {
		p.order = make([]uint32, max(len(p.noted), notedCalls))
	}
	p.order = p.order[:len(p.noted)]
	for i := range p.noted {
		at := &p.places[p.noted[i].node]
		p.order[*at] = uint32(i)
		*at++
	}
	for _, i := range p.order {
		c := &p.noted[i]
		b.addCall(&p.nodes[c.node], c)
	}
	p.noted = p.noted[:0]
}

func (b *blockBuilder) forget(f *frame) {
	b.paths.state, b.gist.bad = pathsNone, true
	n := b.function(f)
	bf := b.any(n)
	bf.active--
	if f.flags&frameSaved != 0 {
		b.crossed(n, f, b.fl.t, endForgotten)
		return
	}
	s := b.part(bf, noPart)
	s.self = addTicks(s.self, f.self)
}

// any notes something of a function that no bound tells of.
func (b *blockBuilder) any(n int32) *builderFunc {
	bf := b.note(n)
	bf.max, bf.inside = math.MaxUint64, math.MaxUint64
	return bf
}

func (b *blockBuilder) call(fn FuncID) {
	bf := b.any(b.number32(fn))
	var s *sums
	if path := b.paths.call(fn); path == nil {
		s = b.part(bf, noPart)
	} else {
		s = b.paths.part(path, noPart)
	}
	s.calls++
	s.flat = true
}

func (b *blockBuilder) orphan(fn FuncID) {
	b.gist.bad = true
	b.part(b.any(b.number32(fn)), noPart).noEntry++
	b.paths.rough = true // no path has it
}

// run makes the blocks of a task whose follower is at its first word.
func (b *blockBuilder) run(k *Task, d *decoder, w *word, more bool, fk *forker, f *forks) error {
	b.setTask(k, k.chunks)
	if more {
		b.start(d, w)
	}
	for ; more && b.err == nil; more = d.next(w) {
		b.take(d, w, fk, f)
	}
	fk.give(b.fl, math.MaxUint64, f)
	b.finish()
	return b.err
}

// setTask begins with a task. The follower has what it inherited.
func (b *blockBuilder) setTask(k *Task, chunks []chunkRef) {
	b.task, b.chunks, b.chunk0, b.crc, b.crcTo, b.later = k, chunks, 0, 0, 0, false
	b.late, b.inherited, b.comm0, b.foreign = map[lateKey]uint16{}, b.fl.inherited, "", false
	b.blocks, b.bounds, b.seen, b.ended = b.blocks[:0], b.bounds[:0], b.seen[:0], b.ended[:0]
	b.pending = 0
	b.resetRun()
	if b.t != nil {
		b.waiting.begin(b.t, k)
	}
	b.now++
	b.base = b.now
	for i := range b.fl.cur.frames { // inherited ones
		b.fl.cur.frames[i].ref = b.now
		b.fl.cur.frames[i].flags |= frameSaved
	}
}

// start begins the first block, with w.
func (b *blockBuilder) start(d *decoder, w *word) {
	b.comm = b.task.firstName(d)
	d.commIsNew = false
	b.comm0 = b.comm
	b.saver = newStateSaver(b.fl, b.comm, b.numbering)
	b.latest, b.number, b.words = w.t, d.number, 0
	b.blocks = append(b.blocks, newBlock{due: w.t, lo: w.t, hi: w.t})
	if len(b.fl.inherited) == 0 {
		b.blocks[len(b.blocks)-1].flags = format.BlockPlain
	}
	b.left = len(d.chunks)
	b.gist.task(w.t)
}

// at is the position of the chunk that the decoder is in.
func (b *blockBuilder) at(d *decoder) int { return b.chunk0 + len(b.chunks) - len(d.chunks) - 1 }

// take takes a word. If the task forks, fk follows it, and f is told what its children inherit.
func (b *blockBuilder) take(d *decoder, w *word, fk *forker, f *forks) {
	if len(d.chunks) != b.left {
		b.chunk(d, w)
		b.left = len(d.chunks)
	}
	b.step(w, d, fk, f)
}

// finish ends the task.
func (b *blockBuilder) finish() {
	b.fl.finish()
	if len(b.blocks) > 0 {
		b.close()
		b.closeRun(true, true)
		b.closeLong(true)
	}
	for _, n := range b.seen { // what ends here was open behind the last block of an index that there was
		if k := (lateKey{b.now - 1, n}); k.block >= b.base {
			b.late[k] = max(b.late[k], roundTicks(b.fns[n].max))
		}
	}
	b.seen = b.seen[:0]
	b.flush(true)
}

func (b *blockBuilder) step(w *word, d *decoder, fk *forker, f *forks) {
	blk := &b.blocks[len(b.blocks)-1]
	blk.lo, blk.hi = min(blk.lo, w.t), max(blk.hi, w.t)
	late := w.t < b.latest
	b.latest = max(b.latest, w.t)
	b.words++
	b.runWords++
	b.gist.before, b.gist.code = b.last.t, b.last.code
	if late || w.code > wExit {
		b.gist.bad = true
	}
	b.last = *w
	if w.code == wSysExit && b.fl.openSyscall() < 0 { // an exit without an entry, of which no bound tells
		blk.flags |= format.BlockNotes
	}
	if b.paths.state == pathsFresh {
		b.paths.begin(b.fl)
	}
	if b.waiting.w != nil {
		b.waiting.bad = b.waiting.bad || late
		b.waiting.step(w.t, len(b.fl.cur.frames), b.runWords == 1)
	}
	if fk != nil {
		fk.give(b.fl, b.latest, f)
		fk.step(b.fl, w)
	} else {
		b.fl.step(w)
	}
	switch w.code {
	case wEntry, wExit, wCall, wSysEnter:
	case wDepth: // no event, but the end of one may end others
		if w.arg&format.DepthEnd != 0 {
			blk.flags &^= format.BlockPlain
		}
	case wResync, wSysExit: // which may end calls that have no exit
		blk.flags &^= format.BlockPlain
	case wGap, wLost:
		b.paths.state = pathsNone
		blk.flags |= format.BlockLost | format.BlockNotes
		blk.flags &^= format.BlockPlain
	case wStack, wCut:
		b.paths.state = pathsNone
		blk.flags |= format.BlockNotes
		blk.flags &^= format.BlockPlain
	case wThreadEnd: // what is open ends
		blk.flags |= format.BlockNotes
		blk.flags &^= format.BlockPlain
	case wUnknown:
		b.foreign = b.foreign || w.arg == noRecord
		blk.flags |= format.BlockNotes
	case wComm:
		b.comm = d.note(w.arg).text
		fallthrough
	default:
		blk.flags |= format.BlockNotes
	}
}

// chunk is called when w is the first word of a chunk.
func (b *blockBuilder) chunk(d *decoder, w *word) {
	number := b.number
	b.number = d.number
	if d.commIsNew {
		// The event of it belongs to the word before; there is none of the first two.
		d.commIsNew = false
		if name := commString(d.comm[:]); name != b.comm {
			b.comm = name
			if b.words > 1 || b.now != b.base {
				b.blocks[len(b.blocks)-1].flags |= format.BlockNotes
				b.gist.bad = true
			}
		}
	}
	// The calls that are open at a thread's end have ended by the word before it, and how deep a call is belongs to its entry.
	if b.words < max(2, b.sizes.least) || w.code == wThreadEnd || w.code == wDepth {
		return
	}
	if (len(b.seen)+b.saver.cost(b.fl))*b.sizes.worth > b.words {
		return
	}
	b.close()
	fl, last := b.fl, &b.last
	bs := blockState{number: number, comm: b.comm}
	bs.tail = last.code == wExit && w.code == wEntry && w.t == last.t
	bs.leaf = last.code == wEntry && w.code == wExit && w.fn == last.fn || last.code == wSysEnter && w.code == wSysExit
	if n := len(fl.cur.frames); n > 0 && fl.cur.frames[n-1].flags&frameInherited != 0 {
		bs.leaf = false
	}
	at := b.at(d)
	blk := &b.blocks[len(b.blocks)-1]
	b.closeGist(blk, w, &bs)
	b.saver.block = b.now
	blk.next = b.saver.save(nil, fl, &bs, b.chunks[at-1-b.chunk0].number+1)
	b.pending += len(blk.next)
	full := func(n int) bool { return len(b.blocks) >= n*b.sizes.segment || b.pending > n*segmentBytes }
	flush := b.closeRun(full(runSegments), false) && full(1)
	due := max(b.latest, w.t)
	lo := min(fl.now, w.t)
	b.blocks = append(b.blocks, newBlock{chunk: at, due: due, lo: lo, hi: lo, flags: format.BlockPlain})
	b.words = 0
	b.now++
	b.gist.block(due)
	if flush {
		b.flush(false)
	}
}

// closeGist ends the block's gist. w is the word behind it.
func (b *blockBuilder) closeGist(blk *newBlock, w *word, bs *blockState) {
	if bs.tail {
		b.gist.tailed(int32(b.words))
	}
	// A reader takes the next block's beginning for the end of the newest call.
	b.gist.bad = b.gist.bad || b.fl.over != 0 || bs.leaf && w.t < b.latest
	fs := b.fl.cur.frames
	var ok bool
	if blk.gist, blk.bound, ok = b.gist.close(b.numbering, b.latest, fs, kept(fs), bs.leaf); ok {
		blk.flags |= format.BlockGist
	}
}

// close ends the newest block.
func (b *blockBuilder) close() {
	blk := &b.blocks[len(b.blocks)-1]
	blk.hi = max(blk.hi, b.latest)
	blk.first, blk.size = len(b.bounds), len(b.seen)
	for _, n := range b.seen {
		f := &b.fns[n]
		b.bounds = append(b.bounds, callBound{n, roundTicks(max(f.max, f.inside)), roundTicks(f.inside)})
	}
	b.seen = b.seen[:0]
	from := 0
	if n := len(b.blocks) - 2; n >= 0 {
		from = b.blocks[n].calls
	}
	blk.calls = len(b.ended)
	if b.alike(b.ended[from:]) {
		blk.flags |= format.BlockAlike
	}
}
