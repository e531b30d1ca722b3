package trace

import (
	"slices"
	"sync"
)

// Going to a block is applying the differences of all blocks before it: nothing for a reader that goes to one, but the
// half of what it costs who goes here and there in a task of ten thousand blocks, as a page does whose user zooms. So
// where blocks are kept, copies of the states at every markEvery blocks are, too, made by whoever comes by first.

const (
	markEvery = 256
	// maxMarked is how many frames the marks of a task have at most: 32 MiB. Coroutines can have as many in each of them.
	maxMarked = 1 << 20
)

// blockMarks are the states at every so many blocks of a task. It is safe for concurrent use.
type blockMarks struct {
	every  int // blocks
	mu     sync.Mutex
	list   []blockMark
	frames int // of all
}

// A blockMark is the state at the start of a block.
type blockMark struct {
	fl follower
	bs blockState
}

// reach brings a follower from the state at the start of the task to that of block j.
func (tb *taskBlocks) reach(fl *follower, j int, bs *blockState) error {
	i := tb.marks.restore(fl, j, bs)
	for i++; i <= j; i++ {
		if tb.apply(fl, i, bs, &stateWatch{}) != nil {
			return errBlocks
		}
		if tb.marks != nil && i%tb.marks.every == 0 {
			tb.marks.add(fl, i, bs)
		}
	}
	return nil
}

// restore brings a follower to the last mark at or before block j, and returns the mark's block; 0: there is none.
func (m *blockMarks) restore(fl *follower, j int, bs *blockState) int {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := min(j/m.every, len(m.list))
	if n == 0 {
		return 0
	}
	fl.become(&m.list[n-1].fl)
	*bs = m.list[n-1].bs
	return n * m.every
}

// add takes the state at the start of block i, if it is the next one to be marked, and there is room for it.
func (m *blockMarks) add(fl *follower, i int, bs *blockState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	frames := fl.open + len(fl.cur.frames) + 2*len(fl.aside) + len(fl.stacks)
	if i/m.every != len(m.list)+1 || m.frames+frames > maxMarked {
		return
	}
	m.frames += frames
	mark := blockMark{bs: *bs}
	mark.fl.become(fl)
	m.list = append(m.list, mark)
}

// become gives a follower the state of another of the same task, as far as differences of states change it.
func (fl *follower) become(o *follower) {
	fl.t, fl.now, fl.lossy, fl.over, fl.credit, fl.open = o.t, o.now, o.lossy, o.over, o.credit, o.open
	fl.inherited = o.inherited
	fl.aside = slices.Clone(o.aside)
	fl.cur = o.cur.clone()
	fl.stacks = make(map[uint64]*callStack, len(o.stacks))
	for num, st := range o.stacks {
		fl.stacks[num] = st.clone()
	}
}

func (st *callStack) clone() *callStack { return &callStack{st.num, slices.Clone(st.frames)} }
