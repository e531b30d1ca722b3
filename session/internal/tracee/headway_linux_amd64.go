package tracee

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

// How far threads have come between looks at them.
//
// A word of a stack that leads to what was added can be a return address, a copy of one that an unwinder has in its hands, or
// forgotten. An unwinder is done with its copy in no time, but in time of its own: on a busy machine its thread may not get a
// processor for many looks. So a word counts as forgotten only once its thread has run for long enough and has left it there.

// headwayTime is what a thread has to run for to have come as far as one that does nothing has by a look.
const headwayTime = 200 * time.Microsecond

// A headway is how far a thread has come while it was looked at.
type headway struct {
	looks int           // those that count, and those that it has run for
	ran   time.Duration // for which the thread had run by then
	tries int           // of the detaching, at the last look
	words map[uint64]heldWord
}

// A heldWord is in a word of a stack, or in a register.
type heldWord struct {
	v     uint64
	since int // looks
}

// headwayOf is how far a thread has come. It is looked at once a try.
func (d *detaching) headwayOf(t *thread) *headway {
	h := d.headways[t.pid]
	if h == nil {
		h = &headway{words: map[uint64]heldWord{}}
		d.headways[t.pid] = h
	}
	if h.tries == d.tries {
		return h
	}
	first := h.tries == 0
	h.tries = d.tries
	switch ran := d.ts.ranFor(t.pid); {
	case first:
		h.ran = ran
	case ran == 0 || t.rests():
		h.looks++
	case ran-h.ran < headwayTime:
		d.owed = true
	default:
		h.looks += int((ran - h.ran) / headwayTime)
		h.ran = ran
	}
	return h
}

// rests tells whether a thread does nothing, and so has nothing in its hands, for as long as it is not woken.
func (t *thread) rests() bool { return t.halted || t.regs.again() }

// held tells whether a thread may still use what is in a word of its stack, or a register, by its number: it has been there for
// fewer than some looks.
func (h *headway) held(at, v uint64, looks int) bool {
	w, ok := h.words[at]
	if !ok || w.v != v {
		w = heldWord{v, h.looks}
		h.words[at] = w
	}
	return h.looks-w.since < looks
}

// ranFor is how long a thread has had a processor for; 0: the kernel does not tell, or it has ended.
func (ts *threads) ranFor(tid int) time.Duration {
	ns, _ := strconv.ParseInt(string(ts.schedstat(tid, 0)), 10, 64)
	return time.Duration(ns)
}

// turnsOf is how often a thread has got a processor; "": the kernel does not tell, or it has ended.
func (ts *threads) turnsOf(tid int) string { return string(ts.schedstat(tid, 2)) }

// schedstat is one of the three numbers that the kernel keeps of a thread's turns.
func (ts *threads) schedstat(tid, i int) []byte {
	b, _ := readFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", ts.pid, tid))
	if f := bytes.Fields(b); len(f) == 3 {
		return f[i]
	}
	return nil
}

// running are the parts of stacks that threads use which do not rest.
func (d *detaching) running() spans {
	var all []area
	for _, t := range d.ts.all {
		if t.rests() {
			continue
		}
		if lo, hi := t.liveRange(d.ms, mostStack); lo < hi {
			all = append(all, area{lo, hi - lo})
		}
	}
	return newSpans(all)
}
