package trace

// Tail calls, nested. The trace has an exit and an entry at the same time, and which of the two readings is wanted is
// the reader's choice: that one call has ended and its caller has another, as the processor sees it, or that the second
// is inside the first, as the source says. For the latter an exit waits for the next word. If that is a tail call's
// entry, the call stays open and ends with the one that it jumped to.

// maxJumped is how many jumps in a row are nested: a loop by tail calls of a function to itself has no end.
const maxJumped = 256

// take takes the next word, with tail calls nested if fl.nest says so.
func (fl *follower) take(w *word) {
	if !fl.nest {
		fl.step(w)
		return
	}
	fs := fl.cur.frames
	if fl.left && w.code == wEntry && w.t == fl.due.t && w.t >= fl.forked {
		fl.left = false
		if n := len(fs); fl.jumps(n-1) < maxJumped {
			fs[n-1].flags |= frameJumped
		} else {
			fl.step(&fl.due)
		}
		fl.step(w)
		return
	}
	fl.settle()
	fs = fl.cur.frames
	switch n := len(fs); {
	case w.code == wExit && n > 0 && fs[n-1].fn == w.fn && fl.over == 0:
		fl.left, fl.due = true, *w
	case w.code == wExit:
		fl.step(w)
		fl.landed()
	case w.code == wResync:
		// The runtime counts the frames that there are.
		all := *w
		i := n
		for k := uint64(0); k < w.arg && i > 0; k++ {
			i--
			jumps := fl.jumps(i)
			all.arg += uint64(jumps)
			i -= jumps
		}
		fl.step(&all)
	default:
		fl.step(w)
	}
}

// jumps is how many calls jumped to the one at position i of the current stack, one after another.
func (fl *follower) jumps(i int) int {
	n := 0
	for i--; i >= 0 && fl.cur.frames[i].flags&frameJumped != 0; i-- {
		n++
	}
	return n
}

// settle takes an exit that has waited, and is none by a tail call.
func (fl *follower) settle() {
	if fl.left {
		fl.left = false
		fl.step(&fl.due)
		fl.landed()
	}
}

// landed ends the calls that had jumped to the one that has ended.
func (fl *follower) landed() {
	for n := len(fl.cur.frames); n > 0 && fl.cur.frames[n-1].flags&frameJumped != 0; n-- {
		f := &fl.cur.frames[n-1]
		fl.cur.frames = fl.cur.frames[:n-1]
		fl.sink.leave(f, fl.t, endExit)
	}
}
