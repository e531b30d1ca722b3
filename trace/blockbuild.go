package trace

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"sync"

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
	// minBlock is how many events a block has at least: decoding them takes less
	// than a millisecond.
	minBlock = 32 << 10
	// blockWorth is how many events justify a frame, or another thing that is stored.
	// None takes more than 32 bytes, and most take less than 8.
	blockWorth = 16
)

// blockSizes are minBlock and blockWorth; tests have others.
type blockSizes struct{ least, worth int }

var usualBlocks = blockSizes{minBlock, blockWorth}

// A callBound is the longest call of a function in a block, or more.
type callBound struct {
	fn  int32 // number in blockBuilder.fns
	max uint16
}

// A newBlock is a block that is being made.
type newBlock struct {
	chunk       int // first one
	due         uint64
	lo, hi      uint64
	flags       byte
	state       []byte
	first, size int // of blockBuilder.bounds
}

// blockBuilder is the sink that makes the blocks of one task after another.
type blockBuilder struct {
	t         *Trace
	sizes     blockSizes
	fl        *follower
	task      *Task
	inherited []openCall

	tab  funcTable
	fns  []builderFunc
	seen []int32 // of fns, in the block
	now  int32   // number of the block among all of the builder

	base   int32 // that of the task's first block
	blocks []newBlock
	bounds []callBound
	late   map[lateKey]uint16
	saver  *stateSaver
	comm0  string // the task's name at first
	comm   string
	number uint32 // of the chunk that would follow
	latest uint64
	words  int // since the block began
	last   word
}

// A builderFunc is what is known of a function in the newest block that had it.
type builderFunc struct {
	fn    FuncID
	block int32
	max   uint64
}

// A lateKey is a function in a block that was over when a call ended that began in it.
type lateKey struct {
	block int32
	fn    int32
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

// note notes a call of that many ticks in the current block.
func (b *blockBuilder) note(n int32, ticks uint64) {
	f := &b.fns[n]
	if f.block != b.now {
		f.block, f.max = b.now, 0
		b.seen = append(b.seen, n)
	}
	f.max = max(f.max, ticks)
}

// ended notes a call that ends, or seems to, at counter end.
func (b *blockBuilder) ended(f *frame, end uint64) {
	n := b.number32(f.fn)
	ticks := end - min(end, f.start)
	b.note(n, ticks)
	if f.ref != b.now {
		k := lateKey{f.ref, n}
		b.late[k] = max(b.late[k], roundTicks(ticks))
	}
}

func (b *blockBuilder) enter(f *frame)   { f.ref = b.now }
func (b *blockBuilder) forget(f *frame)  { b.call(f.fn) }
func (b *blockBuilder) suspend(f *frame) { b.ended(f, b.fl.t) }
func (b *blockBuilder) call(fn FuncID)   { b.note(b.number32(fn), math.MaxUint64) }
func (b *blockBuilder) orphan(fn FuncID) { b.note(b.number32(fn), math.MaxUint64) }

func (b *blockBuilder) leave(f *frame, end uint64, how ending) {
	if f.flags&frameSuspended == 0 || how == endExit {
		b.ended(f, b.fl.t)
	}
}

// run makes the blocks of a task whose follower is at its first word.
func (b *blockBuilder) run(k *Task, d *decoder, w *word, more bool, fk *forker, f *forks) {
	b.task, b.late, b.inherited = k, map[lateKey]uint16{}, b.fl.inherited
	b.blocks, b.bounds, b.seen = b.blocks[:0], b.bounds[:0], b.seen[:0]
	b.now++
	b.base = b.now
	for i := range b.fl.cur.frames {
		b.fl.cur.frames[i].ref = b.now // inherited ones
	}
	if !more {
		return
	}
	b.comm = commString(d.comm[:])
	d.commIsNew = false
	b.comm0 = b.comm
	b.saver = newStateSaver(b.fl, b.comm)
	b.latest, b.number, b.words = w.t, d.number, 0
	b.blocks = append(b.blocks, newBlock{due: w.t, lo: w.t, hi: w.t})
	left := len(d.chunks)
	for first := true; more; more = d.next(w) {
		if len(d.chunks) != left {
			b.chunk(d, w, first)
			left = len(d.chunks)
		}
		first = b.words == 0 && len(b.blocks) == 1
		b.step(w, d, fk, f)
	}
	fk.give(b.fl, math.MaxUint64, f)
	b.fl.finish()
	b.close()
}

func (b *blockBuilder) step(w *word, d *decoder, fk *forker, f *forks) {
	blk := &b.blocks[len(b.blocks)-1]
	blk.lo, blk.hi = min(blk.lo, w.t), max(blk.hi, w.t)
	b.latest = max(b.latest, w.t)
	b.words++
	b.last = *w
	if fk != nil {
		fk.give(b.fl, b.latest, f)
		fk.step(b.fl, w)
	} else {
		b.fl.step(w)
	}
	switch w.code {
	case wEntry, wExit, wCall, wResync:
	case wGap, wLost:
		blk.flags |= format.BlockLost | format.BlockNotes
	case wComm:
		b.comm = d.note(w.arg).text
		fallthrough
	default:
		blk.flags |= format.BlockNotes
	}
}

// chunk is called when w is the first word of a chunk.
func (b *blockBuilder) chunk(d *decoder, w *word, start bool) {
	number := b.number
	b.number = d.number
	if d.commIsNew {
		// The event of it belongs to the word before; there is none of the first two.
		d.commIsNew = false
		if name := commString(d.comm[:]); name != b.comm {
			b.comm = name
			if !start {
				b.blocks[len(b.blocks)-1].flags |= format.BlockNotes
			}
		}
	}
	// The calls that are open at a thread's end have ended by the word before it.
	if b.words < max(2, b.sizes.least) || w.code == wThreadEnd {
		return
	}
	if (len(b.seen)+b.saver.cost(b.fl))*b.sizes.worth > b.words {
		return
	}
	b.close()
	fl, last := b.fl, &b.last
	bs := blockState{number: number, comm: b.comm}
	bs.tail = last.code == wExit && w.code == wEntry && w.t == last.t
	bs.leaf = last.code == wEntry && w.code == wExit && w.fn == last.fn
	if n := len(fl.cur.frames); n > 0 && fl.cur.frames[n-1].flags&frameInherited != 0 {
		bs.leaf = false
	}
	at := len(b.task.chunks) - len(d.chunks) - 1
	due := max(b.latest, w.t)
	lo := min(fl.now, w.t)
	b.blocks = append(b.blocks, newBlock{
		chunk: at, due: due, lo: lo, hi: lo,
		state: b.saver.save(nil, fl, &bs, b.task.chunks[at-1].number+1),
	})
	b.words = 0
	b.now++
}

// close ends the newest block.
func (b *blockBuilder) close() {
	blk := &b.blocks[len(b.blocks)-1]
	blk.hi = max(blk.hi, b.latest)
	blk.first, blk.size = len(b.bounds), len(b.seen)
	for _, n := range b.seen {
		b.bounds = append(b.bounds, callBound{n, roundTicks(b.fns[n].max)})
	}
	b.seen = b.seen[:0]
}

// states returns the task's states, as they are in the file.
func (b *blockBuilder) states(inherited []openCall) []byte {
	out := appendCalls(nil, inherited)
	out = append(append(out, byte(len(b.comm0))), b.comm0...)
	out = binary.AppendUvarint(out, uint64(len(b.blocks)))
	due := uint64(0)
	for i := range b.blocks {
		blk := &b.blocks[i]
		end := len(b.task.chunks)
		if i+1 < len(b.blocks) {
			end = b.blocks[i+1].chunk
		}
		out = binary.AppendUvarint(out, uint64(end-blk.chunk))
		out = binary.AppendUvarint(out, blk.due-due)
		out = binary.AppendVarint(out, int64(blk.lo-blk.due))
		out = binary.AppendUvarint(out, blk.hi-blk.lo)
		out = append(out, blk.flags)
		out = binary.AppendUvarint(out, uint64(len(blk.state)))
		out = append(out, blk.state...)
		due = blk.due
	}
	return out
}

// functions returns the functions of the task's blocks, as they are in the file.
func (b *blockBuilder) functions() []byte {
	type lateBound struct {
		block int32
		callBound
	}
	var late []lateBound
	for k, ticks := range b.late {
		late = append(late, lateBound{k.block - b.base, callBound{k.fn, ticks}})
	}
	slices.SortFunc(late, func(a, b lateBound) int { return cmp.Or(cmp.Compare(a.block, b.block), cmp.Compare(a.fn, b.fn)) })
	var out []byte
	var list []callBound
	for i := range b.blocks {
		blk := &b.blocks[i]
		list = append(list[:0], b.bounds[blk.first:blk.first+blk.size]...)
		for ; len(late) > 0 && int(late[0].block) == i; late = late[1:] {
			list = append(list, late[0].callBound)
		}
		out = b.appendBounds(out, list)
	}
	return out
}

// appendBounds appends the functions of a block.
func (b *blockBuilder) appendBounds(out []byte, list []callBound) []byte {
	slices.SortFunc(list, func(x, y callBound) int {
		fx, fy := b.fns[x.fn].fn, b.fns[y.fn].fn
		return cmp.Or(cmp.Compare(fx.Image, fy.Image), cmp.Compare(fx.ID, fy.ID), cmp.Compare(y.max, x.max))
	})
	list = slices.CompactFunc(list, func(x, y callBound) bool { return x.fn == y.fn }) // the first is the longest
	out = binary.AppendUvarint(out, uint64(len(list)))
	var last FuncID
	for _, c := range list {
		fn := b.fns[c.fn].fn
		if fn.Image == last.Image && fn.ID > last.ID {
			out = binary.AppendUvarint(out, uint64(fn.ID-last.ID)<<1)
		} else {
			out = binary.AppendUvarint(append(out, 1), uint64(fn.Image))
			out = binary.AppendUvarint(out, uint64(fn.ID))
		}
		out = binary.LittleEndian.AppendUint16(out, c.max)
		last = fn
	}
	return out
}

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

// eachBlocks makes the blocks of all tasks, and calls
// fn with what is in the file of each, in no order, from several goroutines at once.
func (t *Trace) eachBlocks(sizes blockSizes, fn func(k *Task, first, last uint64, states, functions []byte) error) error {
	var mu sync.Mutex
	var failed error
	err := t.eachTask(nil, nil, t.Tasks, 0, func() taskSink {
		return &blockBuilder{t: t, sizes: sizes}
	}, func(s taskSink, k *Task) {
		b := s.(*blockBuilder)
		first, last := uint64(math.MaxUint64), uint64(0)
		for i := range b.blocks {
			first, last = min(first, b.blocks[i].lo), max(last, b.blocks[i].hi)
		}
		if err := fn(k, first, last, b.states(b.inherited), b.functions()); err != nil {
			mu.Lock()
			failed = err
			mu.Unlock()
		}
	}, func(taskSink) {})
	return cmp.Or(err, failed)
}
