package trace

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// On a busy machine there is hardly a run of blocks in which a thread was on a processor all the time. So that a report of
// waiting need not decode them all, a run says how long the calls in its sums were off a processor: those of each part of
// a function, and of a path, that count towards their totals. Most have not waited, and are not listed.
//
// A call has waited as long as the thread was off a processor between its entry and its exit. Where all happens on one
// stack and in order, that is what is added to the calls that are open whenever the thread comes back: rarely. Where not,
// and the thread has waited, the run does not say anything, and is decoded.

// An offKey is a part of the calls of a path, or of a function.
type offKey struct {
	of   int32 // node of runPaths, or of blockBuilder.fns
	part uint8
}

// runWaits are the waits of the run that is being made.
type runWaits struct {
	w     *waits // of the task; nil: nobody knows
	last  offTime
	quiet bool // the newest word was in a piece on a processor

	bad    bool // words were not in order
	waited bool // the thread was off a processor
	by     map[offKey]offTime

	open []offTime // of the calls that are open, from the outermost one on: how long they have waited,
	high int       // so many; the others have not
}

// begin begins with a task.
func (r *runWaits) begin(t *Trace, k *Task) {
	*r = runWaits{by: r.by, open: r.open}
	if k.Goroutine == 0 && len(k.sched) > 0 && !t.Clockless() {
		r.w = newWaits(t.file, k.sched)
	}
	r.reset()
}

// reset begins with a run.
func (r *runWaits) reset() {
	r.bad, r.waited, r.high = false, false, 0
	clear(r.by)
}

// step is called in front of a word at counter t, with how many calls are open. first: it is the first one of the run.
func (r *runWaits) step(t uint64, open int, first bool) {
	p := &r.w.piece
	if r.quiet && t-p.lo < p.hi-p.lo {
		return
	}
	now := r.w.at(t)
	r.quiet = p.state == onProcessor
	if now == r.last {
		return
	}
	add := offTime{wait: now.wait - r.last.wait, unknown: now.unknown - r.last.unknown}
	if r.last = now; open > maxPathDepth {
		r.bad = true
		return
	}
	r.waited = r.waited || !first
	for len(r.open) < open {
		r.open = append(r.open, offTime{})
	}
	for ; r.high < open; r.high++ {
		r.open[r.high] = offTime{}
	}
	for i := range r.open[:open] {
		r.open[i].add(add)
	}
}

// leave takes the end of a call inside of so many others, and returns how long it has waited.
func (r *runWaits) leave(depth int) (off offTime) {
	if depth < r.high {
		off, r.high = r.open[depth], depth
	}
	return off
}

// take adds what a call of a part of a path has waited.
func (r *runWaits) take(of int32, part uint8, off offTime) {
	addOff(&r.by, offKey{of, part}, off)
}

func addOff(to *map[offKey]offTime, k offKey, off offTime) {
	if *to == nil {
		*to = map[offKey]offTime{}
	}
	sum := (*to)[k]
	sum.add(off)
	(*to)[k] = sum
}

// known says that the run can tell how long its calls have waited.
func (r *runWaits) known(p *runPaths) bool {
	return r.w != nil && !r.bad && (!r.waited || p.state == pathsGood)
}

// A listedOff is what a part of calls has waited: position is that of the function or path in the run.
type listedOff struct {
	position, part int
	off            offTime
}

// appendWaits appends what calls have waited, of functions in the order of inRun, and of paths.
func (b *blockBuilder) appendWaits(whole bool, out []byte) []byte {
	place := make(map[int32]int, len(b.inRun))
	for i, n := range b.inRun {
		place[n] = i
	}
	var functions, paths map[offKey]offTime
	add := func(to *map[offKey]offTime, of, part int, off offTime) {
		addOff(to, offKey{int32(of), uint8(part)}, off)
	}
	for k, off := range b.waiting.by {
		n := &b.paths.nodes[k.of]
		part := 0
		if whole {
			part = partIndex(n.parts, k.part)
		}
		add(&paths, int(k.of), part, off)
		if f := b.number32(n.fn); !b.paths.inner(k.of) {
			add(&functions, place[f], partIndex(b.fns[f].parts, k.part), off)
		}
	}
	return appendOffs(appendOffs(out, functions), paths)
}

// partIndex is the position of a part among those of a function or path.
func partIndex(parts []partSums, part uint8) (i int) {
	for j := range parts {
		if parts[j].part < part {
			i++
		}
	}
	return i
}

func appendOffs(out []byte, by map[offKey]offTime) []byte {
	list := make([]offKey, 0, len(by))
	for k := range by {
		list = append(list, k)
	}
	slices.SortFunc(list, func(a, b offKey) int { return cmp.Or(cmp.Compare(a.of, b.of), cmp.Compare(a.part, b.part)) })
	out = binary.AppendUvarint(out, uint64(len(list)))
	at := int32(0)
	for _, k := range list {
		out = binary.AppendUvarint(out, uint64(k.of-at))
		out = append(out, k.part)
		out = binary.AppendUvarint(out, by[k].wait)
		out = binary.AppendUvarint(out, by[k].unknown)
		at = k.of
	}
	return out
}

// minOff is the least size of a listedOff.
const minOff = 4

// An offList reads what calls have waited, in order.
type offList struct {
	p    fields
	left int
	next listedOff
}

// offs returns a reader of what a run says of its functions, or its paths: empty if it says nothing.
func (r *sumRun) offs(paths bool) (l offList) {
	if len(r.waits) == 0 {
		return l
	}
	l.p = fields{b: r.waits}
	l.begin()
	if paths {
		for l.left > 0 {
			l.step()
		}
		l.begin()
	}
	return l
}

func (l *offList) begin() {
	l.next = listedOff{}
	if l.left = l.p.count(minOff); l.left > 0 {
		l.read()
	}
}

// step goes on with the next one.
func (l *offList) step() {
	if l.left--; l.left > 0 || l.p.bad {
		l.read()
	}
}

func (l *offList) read() {
	l.next.position += int(min(l.p.uint(), 1<<32))
	l.next.part = int(l.p.byte())
	l.next.off = offTime{wait: l.p.uint(), unknown: l.p.uint()}
	if l.p.bad {
		l.left = 0
	}
}

// give gives the calls of a function or path what they have waited.
func (l *offList) give(position int, f *funcSums) {
	f.offs = f.offs[:0]
	for l.left > 0 && l.next.position <= position {
		if l.next.position == position && l.next.part < len(f.parts) {
			for len(f.offs) < len(f.parts) {
				f.offs = append(f.offs, offTime{})
			}
			f.offs[l.next.part].add(l.next.off)
		}
		l.step()
	}
}

// off is what the calls of a part have waited.
func (f *funcSums) off(part int) offTime {
	if part < len(f.offs) {
		return f.offs[part]
	}
	return offTime{}
}
