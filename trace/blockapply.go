package trace

import (
	"errors"

	"github.com/fentry-dev/fentry/internal/format"
)

// A follower that has decoded a block is in the state that the next one starts with.
// Whoever leaves blocks out applies the differences of those, and never builds a state
// from the beginning.

var errState = errors.New("a state is damaged")

// A stateWatch is told what apply changes, where it says that it wants to know.
type stateWatch struct {
	// cut: the frames of a stack from keep on are about to be taken off.
	cut func(st *callStack, keep int)
	// changed: of a stack that was cut, and has other frames from keep on now.
	changed func(st *callStack, keep int)
	// lost: a frame is no longer aside: it has returned, or was given up.
	lost func(f *suspendedFrame)
	// aside: these are new among the frames aside. Stacks are cut later.
	aside func(fs []suspendedFrame)
}

// apply brings a follower, and what goes with it, from the state at the start of a
// block to that of the next one. The state is of no use after an error.
func (fl *follower) apply(b []byte, images []uint32, bs *blockState, watch *stateWatch) error {
	p := fields{b: b, images: images}
	flags := p.byte()
	fl.lossy = flags&format.StateHasLossy != 0
	bs.tail, bs.leaf = flags&format.StateHasTail != 0, flags&format.StateHasLeaf != 0
	fl.now += p.uint()
	fl.t = fl.now
	credit := p.uint()
	fl.over = 0
	if flags&format.StateHasOver != 0 {
		fl.over = int(min(p.uint(), 1<<62))
	}
	fl.credit = int(min(credit, 1<<62))
	if flags&format.StateHasNumber != 0 {
		bs.number = uint32(p.uint())
	}
	if flags&format.StateHasComm != 0 {
		bs.comm = commString(p.bytes(uint64(p.byte())))
	}
	if flags&format.StateHasInherited != 0 {
		fl.inherited = p.calls()
	}
	if flags&format.StateHasAside != 0 {
		fl.applyAside(&p, watch)
	}
	fl.applyStacks(&p, watch)
	if p.bad || len(p.b) != 0 {
		return errState
	}
	return nil
}

func (fl *follower) applyAside(p *fields, watch *stateWatch) {
	gone := func(from, to int) {
		for i := from; watch.lost != nil && i < to; i++ {
			watch.lost(&fl.aside[i])
		}
	}
	at, n := uint64(0), 0
	for range p.count(2) {
		from := at + p.uint()
		size := p.uint()
		if from < at || from > uint64(len(fl.aside)) || size > uint64(len(fl.aside))-from {
			p.bad = true
			return
		}
		gone(int(at), int(from))
		at = from + size
		n += copy(fl.aside[n:], fl.aside[from:at])
	}
	gone(int(at), len(fl.aside))
	fl.aside = fl.aside[:n]
	fresh := p.count(minFrame + 1)
	if fresh > maxSuspended-n {
		p.bad = true
		return
	}
	last := fl.now
	for range fresh {
		f := p.frame(last)
		last = f.start
		fl.aside = append(fl.aside, suspendedFrame{frame: f, end: f.start + uint64(p.int())})
	}
	if watch.aside != nil {
		watch.aside(fl.aside[n:])
	}
}

func (fl *follower) applyStacks(p *fields, watch *stateWatch) {
	cur := p.uint()
	total := fl.open + len(fl.cur.frames)
	if fl.stacks == nil {
		fl.stacks = map[uint64]*callStack{}
	}
	fl.stacks[fl.cur.num] = fl.cur
	for range p.count(3) {
		num, keep := p.uint(), p.uint()
		st := fl.stacks[num]
		if st == nil {
			st = &callStack{num: num}
			fl.stacks[num] = st
		}
		if keep > uint64(len(st.frames)) {
			p.bad = true
			return
		}
		if watch.cut != nil {
			watch.cut(st, int(keep))
		}
		total += int(keep) - len(st.frames)
		st.frames = st.frames[:keep]
		if keep > 0 {
			st.frames[keep-1].self = p.uint()
		}
		n := p.count(minFrame)
		if total += n; total > maxOpen || len(fl.stacks) > maxStacks+1 {
			p.bad = true
			return
		}
		last := fl.now
		for range n {
			f := p.frame(last)
			last = f.start
			st.frames = append(st.frames, f)
		}
		if watch.changed != nil {
			watch.changed(st, int(keep))
		}
		if len(st.frames) == 0 {
			delete(fl.stacks, num) // an empty stack needs no memory
		}
	}
	fl.cur = fl.stacks[cur]
	delete(fl.stacks, cur)
	if fl.cur == nil {
		fl.cur = &callStack{num: cur}
	}
	fl.open = total - len(fl.cur.frames)
}
