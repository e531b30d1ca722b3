package trace

import (
	"cmp"
	"encoding/binary"
	"io"
	"slices"
	"sort"

	"github.com/fentry-dev/fentry/internal/format"
)

// Waiting is not work: a recorder writes when threads were off a processor, as the kernel told it, in chunks of their
// own (kind SCHED). A call's time off a processor is how long its thread had been off it at the call's end, less how
// long it had been at its start. So both ends are looked up, and nothing has to be divided among the calls that are
// open. What lies outside of a thread's chunks is counted in the same way, as time of which nothing is known.
//
// A reader holds a chunk's place and a window on one chunk, whatever the length of the trace. Calls come in the order
// of time, with rare exceptions, so a lookup goes on from the one before; to go back, it begins again with the chunk.

// A schedRef is a sched chunk.
type schedRef struct {
	off         int64  // of its entries in the file
	from, until uint64 // counters
	entries     uint32
}

// A threadID is what the kernel calls a thread.
type threadID struct{ pid, tid uint32 }

// addSched enters a sched chunk.
func (ix *index) addSched(off int64, ch *chunkHead) {
	if ch.until <= ch.counter || ch.size < ChunkHeaderSize {
		return
	}
	if ix.sched == nil {
		ix.sched = map[threadID][]schedRef{}
	}
	id := threadID{ch.pid, ch.tid}
	ix.sched[id] = append(ix.sched[id], schedRef{
		off + ChunkHeaderSize, ch.counter, ch.until, (ch.size - ChunkHeaderSize) / format.SchedEntry,
	})
}

// finishSched gives tasks their chunks, in the order of time. Where two tell of the same time, the later one does.
func (ix *index) finishSched() {
	for _, cs := range ix.sched {
		slices.SortStableFunc(cs, func(a, b schedRef) int { return cmp.Compare(a.from, b.from) })
		for i := range cs[1:] {
			cs[i].until = min(cs[i].until, cs[i+1].from)
		}
	}
	for _, k := range ix.t.Tasks {
		if k.Goroutine != 0 {
			continue // which threads it was on, and when, is not known well enough
		}
		k.sched = ix.sched[threadID{uint32(k.PID), uint32(k.TID)}]
	}
}

// Waiting says what is known about when threads were off a processor.
type Waiting struct {
	Source string // SwitchesPerf; "": nothing is known
	Reason string // why not
	Lost   uint64 // records of task switches that were lost
}

// Waiting says what is known about when threads of the trace were off a processor: what CPU and Wait in reports and
// graphs rest on.
func (t *Trace) Waiting() Waiting {
	known := slices.ContainsFunc(t.Tasks, func(k *Task) bool { return len(k.sched) > 0 })
	switch s := (*InfoSwitches)(nil); {
	case t.Info != nil && t.Info.Switches != nil:
		s = t.Info.Switches
		if known {
			return Waiting{Source: cmp.Or(s.Source, SwitchesPerf), Lost: s.Lost}
		}
		return Waiting{Reason: cmp.Or(s.Reason, "the kernel has told of no thread that recorded something"), Lost: s.Lost}
	case known:
		return Waiting{Source: SwitchesPerf}
	case t.Header.Recorder == 0:
		return Waiting{Reason: "the program traced itself, and no recorder watched it"}
	}
	return Waiting{Reason: "it was not recorded"}
}

// offTime is how long a thread has been off a processor up to a moment, and for how long nobody knows, in ticks.
// Of a goroutine, parked is how long it has waited to be made ready and to run, which is known apart from the others
// (parks.go).
type offTime struct{ wait, unknown, parked uint64 }

func (s *offTime) add(o offTime) {
	s.wait, s.unknown, s.parked = addTicks(s.wait, o.wait), addTicks(s.unknown, o.unknown), addTicks(s.parked, o.parked)
}

// wants says whether the time of threads off a processor is asked for.
type wants uint8

const (
	noWaits   wants = iota
	waitsGone       // asked for, and nothing is known
	parkWaits       // only how long goroutines were parked is known
	allWaits
)

// marked says whether something is known.
func (w wants) marked() bool { return w >= parkWaits }

// waitsWanted answers to who asks.
func (t *Trace) waitsWanted(asked bool) wants {
	switch {
	case !asked:
		return noWaits
	case t.Clockless():
		return waitsGone
	case t.Waiting().Source != "":
	case t.hasParks():
		return parkWaits
	default:
		return waitsGone
	}
	return allWaits
}

// parts divides a total, in ns.
func (s *offTime) parts(total int64, clock *Clock, w wants) (cpu, wait, unknown int64) {
	switch w {
	case noWaits:
		return 0, 0, 0
	case waitsGone, parkWaits:
		return -1, -1, -1
	}
	wait = min(clock.Span(s.wait), total)
	unknown = min(clock.Span(s.unknown), total-wait)
	return total - wait - unknown, wait, unknown
}

// offMarks are the open calls of a function, or of a call path, that are inside no other one: one, unless coroutines
// have set some aside. Each has how long its thread had been off a processor at its start, or where what is counted of
// it begins. They are not in frame, because all readers pay for its size.
type offMarks []offMark

type offMark struct {
	start uint64
	off   offTime
}

// mark notes a call that begins.
func (m *offMarks) mark(fl *follower, f *frame) {
	start := max(f.start, fl.begin)
	*m = append(*m, offMark{start, fl.waits.at(start)})
}

// take takes back the mark of a call.
func (m *offMarks) take(fl *follower, f *frame) offTime {
	start := max(f.start, fl.begin)
	for i := len(*m) - 1; i >= 0; i-- {
		if o := (*m)[i]; o.start == start {
			*m = append((*m)[:i], (*m)[i+1:]...)
			return o.off
		}
	}
	return fl.waits.at(start) // of a damaged trace
}

// since takes back the mark of a call that ends at counter end, and returns the part of its duration that the task was
// off a processor.
func (m *offMarks) since(fl *follower, f *frame, end, dur uint64) (s offTime) {
	from, to := m.take(fl, f), fl.waits.at(end)
	if to.wait > from.wait {
		s.wait = min(to.wait-from.wait, dur)
	}
	if to.unknown > from.unknown {
		s.unknown = min(to.unknown-from.unknown, dur-s.wait)
	}
	if to.parked > from.parked {
		s.parked = min(to.parked-from.parked, dur)
	}
	return s
}

// waits tells how long a thread had been off a processor at a moment.
type waits struct {
	r      io.ReaderAt
	chunks []schedRef
	parks  *parks    // of a goroutine; nil: it is none
	before []offTime // at the start of each chunk; nil: not yet known

	piece piece
	chunk int    // the one that piece is in, if any
	next  uint32 // the entry behind piece
	buf   []byte // some of the chunk's entries
	first uint32 // the first of them
	ahead *waits // its own place for who looks ahead

	pieces []piece // of the chunk, unless they are too many
}

// A piece is a time in which a thread does one thing.
type piece struct {
	lo, hi uint64
	at     offTime // at lo
	state  uint32
}

// onProcessor is the state of a piece that no entry tells of.
const onProcessor = ^uint32(0)

func newWaits(r io.ReaderAt, chunks []schedRef) *waits { return &waits{r: r, chunks: chunks} }

// at returns how long the thread had been off a processor at a counter.
func (w *waits) at(t uint64) offTime {
	if t-w.piece.lo >= w.piece.hi-w.piece.lo {
		w.find(t)
	}
	o := w.piece.until(t)
	if w.parks != nil {
		o.parked = w.parks.at(t)
	}
	return o
}

// busy says whether the thread was on a processor, and a goroutine not parked, all the time between two counters. They
// may lie ahead: lookups go on from where they were.
func (w *waits) busy(from, to uint64) bool {
	if w.parks == nil {
		if w.ahead == nil {
			if w.before == nil {
				w.sum()
			}
			w.ahead = &waits{r: w.r, chunks: w.chunks, before: w.before, chunk: -1}
		}
		w = w.ahead
	}
	before := w.at(from)
	return w.at(to) == before
}

// until returns the sums at a time in the piece.
func (p *piece) until(t uint64) offTime {
	o := p.at
	switch p.state {
	case onProcessor:
	case format.SchedUnknown:
		o.unknown += t - p.lo
	default:
		o.wait += t - p.lo
	}
	return o
}

// find makes piece the one that a time is in.
func (w *waits) find(t uint64) {
	if w.before == nil {
		w.sum()
	}
	i := sort.Search(len(w.chunks), func(i int) bool { return w.chunks[i].from > t }) - 1
	if i < 0 || t >= w.chunks[i].until {
		w.gap(i)
		return
	}
	if w.chunk != i {
		w.begin(i)
		w.pieces = w.pieces[:0]
		if w.chunks[i].entries <= maxPieces {
			w.pieces = append(w.pieces, w.piece)
			for w.piece.hi < w.chunks[i].until {
				w.step()
				w.pieces = append(w.pieces, w.piece)
			}
		}
	}
	if len(w.pieces) > 0 {
		w.piece = w.pieces[sort.Search(len(w.pieces), func(i int) bool { return w.pieces[i].hi > t })]
		return
	}
	if t < w.piece.lo {
		w.begin(i)
	}
	for t >= w.piece.hi {
		w.step()
	}
}

// maxPieces is up to how many entries a chunk is kept as pieces: more than a chunk of 64 KiB has.
const maxPieces = 4096

// gap makes piece the time between chunk i and the next one.
func (w *waits) gap(i int) {
	w.chunk = -1
	w.piece = piece{hi: ^uint64(0), state: format.SchedUnknown}
	if i+1 < len(w.chunks) {
		w.piece.hi = w.chunks[i+1].from
	}
	if i < 0 {
		return
	}
	w.piece.lo = w.chunks[i].until
	if i+1 < len(w.chunks) {
		w.piece.at = w.before[i+1]
		w.piece.at.unknown -= w.piece.hi - w.piece.lo
		return
	}
	w.piece.at = w.before[len(w.chunks)]
}

// sum goes through all chunks for the sums at their starts.
func (w *waits) sum() {
	w.before = make([]offTime, len(w.chunks)+1)
	at, end := offTime{}, uint64(0)
	for i, c := range w.chunks {
		at.unknown += c.from - end
		w.before[i] = at
		w.begin(i)
		for w.piece.hi < c.until {
			w.step()
		}
		at, end = w.piece.until(c.until), c.until
	}
	w.before[len(w.chunks)] = at
	w.chunk, w.piece = -1, piece{}
}

// begin makes piece the first one of a chunk.
func (w *waits) begin(i int) {
	c := &w.chunks[i]
	w.chunk, w.next, w.first, w.buf = i, 0, 0, w.buf[:0]
	w.piece = piece{lo: c.from, hi: c.from, at: w.before[i]}
	w.step()
}

// step goes on to the next piece of the chunk: what an entry says, or the time up to the next entry. Entries that are
// not in order are taken as far as they are.
func (w *waits) step() {
	c := &w.chunks[w.chunk]
	p := piece{lo: w.piece.hi, at: w.piece.until(w.piece.hi), hi: c.until, state: onProcessor}
	if e, ok := w.entry(c); ok {
		from := min(max(e.from, p.lo), c.until)
		if p.hi = from; from == p.lo {
			p.hi, p.state = min(max(e.to, p.lo), c.until), e.state
			w.next++
		}
	}
	w.piece = p
}

// A schedEntry is an entry of a sched chunk.
type schedEntry struct {
	from, to uint64
	state    uint32
}

// waitsWindow is how many entries are read at a time.
const waitsWindow = 128

// entry returns the next entry of a chunk; ok is false if there is none.
func (w *waits) entry(c *schedRef) (e schedEntry, ok bool) {
	if w.next >= c.entries {
		return e, false
	}
	if i := w.next - w.first; int(i) >= len(w.buf)/format.SchedEntry {
		if cap(w.buf) == 0 {
			w.buf = make([]byte, waitsWindow*format.SchedEntry)
		}
		n := min(waitsWindow, c.entries-w.next)
		got, _ := w.r.ReadAt(w.buf[:n*format.SchedEntry], c.off+int64(w.next)*format.SchedEntry)
		w.first, w.buf = w.next, w.buf[:got]
		if got < format.SchedEntry {
			// The file has become shorter.
			e = schedEntry{0, c.until, format.SchedUnknown}
			return e, true
		}
	}
	b := w.buf[(w.next-w.first)*format.SchedEntry:]
	le := binary.LittleEndian
	return schedEntry{le.Uint64(b[format.SFrom:]), le.Uint64(b[format.STo:]), le.Uint32(b[format.SState:])}, true
}
