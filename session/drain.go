//go:build linux

package session

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/trace"
)

// drainer moves full chunks from the pool to the events file.
//
// It runs in a goroutine of its own; what it counted is read when that has ended.
type drainer struct {
	p      *pool
	w      *eventsFile
	policy trace.Policy
	live   *liveness

	// onImage gets every image announced, onWriteError the first error of w.
	onImage      func(Image)
	onWriteError func(error)

	stop   atomic.Bool
	batch  []claim
	held   []held            // oldest first
	newest map[taskID]uint32 // number of the newest chunk of a task in a round
	vec    [][]byte
	nap    time.Duration
	free   int // chunks that were free in the last round

	lastReclaim time.Time
	patience    time.Duration // until the next

	lookedAtHeld, askedHeld time.Time
	final                   bool // no task goes on: nothing is held any more

	stats drainStats
	tasks map[taskID]uint64 // events they lost
}

// claim is a chunk the drainer has to itself.
type claim struct {
	chunk   int
	used    int // bytes, header included
	events  uint64
	counter uint64
}

// taskID tells tasks apart, also those that had one thread id after another.
type taskID struct {
	pid, tid uint32
	key      uint64
}

func taskOf(b []byte) taskID {
	return taskID{le.Uint32(b[format.CPID:]), le.Uint32(b[format.CTID:]), le.Uint64(b[format.CKey:])}
}

type drainStats struct {
	events, chunks, bad, overwrote uint64
	unwritten                      uint64 // events that could not be written
}

// batchBytes is how much is written at once: large enough for the file system to
// use large folios, small enough to be in the second-level cache when it is
// cleared, and to come back to the tasks soon.
const batchBytes = 1 << 20

// idleWait bounds the sleep when nothing happens.
const idleWait = 100 * time.Millisecond

func newDrainer(p *pool, w *eventsFile, policy trace.Policy, live *liveness) *drainer {
	d := &drainer{p: p, w: w, policy: policy, live: live, tasks: make(map[taskID]uint64), newest: make(map[taskID]uint32)}
	// While events flow, the drainer sleeps for a time in which one task, at its
	// fastest, fills a small part of the pool, and takes what has come since in
	// one go. Nobody has to wake it: that would cost every task a system call
	// that does something for every chunk.
	const fastest = 1e9 // bytes a second
	fill := time.Duration(float64(p.n*format.ChunkSize) / 16 / fastest * 1e9)
	d.nap = min(fill, 4*time.Millisecond)
	return d
}

// run drains until stop is set, then once more.
func (d *drainer) run() {
	filled := d.p.word(format.HFilled)
	for !d.stop.Load() {
		val := filled.Load()
		n := d.round(false)
		took, wait := d.reclaim()
		switch {
		case n+took == 0:
			futexWait(filled, val, int64(wait))
		case d.nap >= 100*time.Microsecond && d.free > d.p.n/4:
			time.Sleep(d.nap)
		}
	}
}

// finish tells run to return soon.
func (d *drainer) finish() {
	d.stop.Store(true)
	futexWake(d.p.word(format.HFilled))
}

// round writes all full chunks and returns how many there were. When the newest
// events are to be kept, full chunks stay where they are, unless all is set,
// until there is no room.
//
// The chunks of a task are written in their order. While the states are read,
// tasks go on: the chunk behind one that is seen to be full can have been passed
// when it was not yet. So the states are read twice, and of what only the second
// reading sees, that is taken what belongs before something of the first.
func (d *drainer) round(all bool) int {
	d.ripe(all)
	keep := d.policy == trace.PolicyOverwrite && !all
	clear(d.newest)
	n := d.claim(keep, func(b []byte) bool {
		id := taskOf(b)
		d.newest[id] = max(d.newest[id], le.Uint32(b[format.CNumber:]))
		return true
	})
	if n > 0 {
		n += d.claim(keep, func(b []byte) bool {
			newest, ok := d.newest[taskOf(b)]
			return ok && le.Uint32(b[format.CNumber:]) < newest
		})
	}
	d.flush()
	if keep {
		d.makeRoom()
	}
	return n
}

// claim takes the full chunks that want says yes to, and counts those that were
// free.
func (d *drainer) claim(keep bool, want func(b []byte) bool) int {
	n := 0
	d.free = 0
	for i := range d.p.n {
		s := d.p.state(i)
		switch s.Load() {
		case format.StateFree:
			d.free++
			continue
		case format.StateFull:
		default:
			continue
		}
		image := d.p.kind(i) == trace.ChunkImage
		if keep && !image || !image && !want(d.p.chunk(i)) || !s.CompareAndSwap(format.StateFull, format.StateWriting) {
			continue
		}
		n++
		if c, ok := d.inspect(i); ok {
			d.batch = append(d.batch, c)
		}
	}
	return n
}

// inspect checks and seals a claimed chunk, and counts it. A chunk that makes no
// sense is given back.
func (d *drainer) inspect(i int) (claim, bool) {
	b := d.p.chunk(i)
	used := seal(b)
	kind := trace.ChunkKind(le.Uint16(b[format.CKind:]))
	if used == 0 || kind != trace.ChunkEvents && kind != trace.ChunkImage {
		d.stats.bad++
		d.p.release(i, len(b))
		d.p.announce()
		return claim{}, false
	}
	events, hole := uint64(0), -1
	if kind == trace.ChunkEvents {
		events, hole = countEvents(b[format.ChunkHeader:used])
	}
	id := taskOf(b)
	d.tasks[id] = max(d.tasks[id], le.Uint64(b[format.CLost:]))
	d.live.saw(int(id.pid))
	if kind == trace.ChunkImage && d.onImage != nil {
		d.onImage(parseImage(le.Uint64(b[format.CImage:]), int(id.pid), b[format.ChunkHeader:used]))
	}
	c := claim{i, used, events, le.Uint64(b[format.CCounter:])}
	if hole >= 0 && !d.final {
		d.hold(c, format.ChunkHeader+hole)
		return claim{}, false
	}
	return c, true
}

// seal makes a chunk end with its last word that is not zero, if its task did
// not say where it ends, and returns its size; 0: it is no chunk.
func seal(b []byte) int {
	if le.Uint32(b[format.CMagic:]) != format.ChunkMagic {
		return 0
	}
	size := int(le.Uint32(b[format.CSize:]))
	if size >= format.ChunkHeader && size <= len(b) && size%8 == 0 {
		return size
	}
	if size != 0 {
		return 0
	}
	size = len(b)
	for size > format.ChunkHeader && le.Uint64(b[size-8:]) == 0 {
		size -= 8
	}
	le.PutUint32(b[format.CSize:], uint32(size))
	return size
}

// flush writes the claimed chunks, oldest first, and frees them.
func (d *drainer) flush() {
	slices.SortFunc(d.batch, func(a, b claim) int { return cmp.Compare(a.counter, b.counter) })
	for rest := d.batch; len(rest) > 0; {
		n, bytes := 0, 0
		for n < len(rest) && bytes < batchBytes {
			bytes += rest[n].used
			n++
		}
		d.write(rest[:n])
		rest = rest[n:]
	}
	d.batch = d.batch[:0]
}

func (d *drainer) write(batch []claim) {
	d.vec = d.vec[:0]
	for _, c := range batch {
		d.vec = append(d.vec, d.p.chunk(c.chunk)[:c.used])
	}
	first := d.w.err == nil
	kept, err := d.w.write(d.vec)
	if err != nil && first {
		d.p.shut()
		d.onWriteError(err)
	}
	for i, c := range batch {
		d.count(c, i < kept)
	}
	for _, c := range batch {
		d.p.release(c.chunk, c.used)
	}
	d.p.announce()
}

// count counts a chunk that was written, or could not be.
func (d *drainer) count(c claim, written bool) {
	if !written {
		d.stats.unwritten += c.events
		return
	}
	d.stats.events += c.events
	d.stats.chunks++
}

// makeRoom frees the oldest full chunks when few are free. Tasks that still run
// overwrite their own; those of tasks that have ended are overwritten here.
func (d *drainer) makeRoom() {
	free := 0
	var full []claim
	for i := range d.p.n {
		switch d.p.state(i).Load() {
		case format.StateFree:
			free++
		case format.StateFull:
			full = append(full, claim{chunk: i, counter: d.p.counter(i)})
		}
	}
	want := d.p.n/8 - free
	if want <= 0 {
		return
	}
	slices.SortFunc(full, func(a, b claim) int { return cmp.Compare(a.counter, b.counter) })
	freed := false
	for _, c := range full[:min(want, len(full))] {
		if !d.p.state(c.chunk).CompareAndSwap(format.StateFull, format.StateWriting) {
			continue
		}
		b := d.p.chunk(c.chunk)
		if used := seal(b); used > 0 {
			n, _ := countEvents(b[format.ChunkHeader:used])
			d.stats.overwrote += n
		}
		d.p.release(c.chunk, len(b))
		freed = true
	}
	if freed {
		d.p.announce()
	}
}

// reclaim takes the chunks of dead tasks: now and then, and soon when few chunks
// are free or tasks wait. It returns how many it took, and how long to wait
// before it is worth to try again.
func (d *drainer) reclaim() (n int, wait time.Duration) {
	const soon, late = 2 * time.Millisecond, time.Second
	short := d.free < d.p.n/4 || d.p.word(format.HWaiters).Load() != 0
	switch {
	case !short:
		d.patience = late
	case d.patience > idleWait:
		d.patience = soon
	}
	if since := time.Since(d.lastReclaim); since < d.patience {
		return 0, min(d.patience-since, idleWait)
	}
	n = d.reclaimOwned(d.live.dead)
	d.lastReclaim = time.Now()
	if short && n == 0 {
		// All have owners that live: trying again at once is no use.
		d.patience = min(2*d.patience, idleWait)
	} else if short {
		d.patience = soon
	}
	return n, min(d.patience, idleWait)
}

// reclaimOwned turns the chunks of dead tasks into full ones.
func (d *drainer) reclaimOwned(dead func([]owner) []owner) int {
	var owners []owner
	for i := range d.p.n {
		// A task that has just taken the chunk has not filled in the header.
		if b := d.p.chunk(i); d.p.state(i).Load() == format.StateOwned && atomicMagic(b) == format.ChunkMagic {
			owners = append(owners, owner{i, int(le.Uint32(b[format.CPID:])), int(le.Uint32(b[format.CTID:]))})
		}
	}
	if len(owners) == 0 {
		return 0
	}
	n := 0
	for _, o := range dead(owners) {
		if d.p.state(o.chunk).CompareAndSwap(format.StateOwned, format.StateFull) {
			n++
		}
	}
	return n
}

// last drains everything when no traced process is left, or none records any
// more: full chunks, and what there is in owned ones.
func (d *drainer) last(all bool) {
	if all {
		d.reclaimOwned(func(o []owner) []owner { return o })
	} else {
		d.reclaimOwned(d.live.dead)
	}
	d.final = true
	d.round(true)
	if all {
		return
	}
	// Tasks that live on are told to stop, but may be in the middle of an event:
	// their chunks are copied and left to them.
	var copies []claim
	var copied [][]byte
	for i := range d.p.n {
		if d.p.state(i).Load() != format.StateOwned || atomicMagic(d.p.chunk(i)) != format.ChunkMagic {
			continue
		}
		b := slices.Clone(d.p.chunk(i))
		le.PutUint32(b[format.CSize:], 0)
		if used := seal(b); used > format.ChunkHeader && le.Uint16(b[format.CKind:]) == uint16(trace.ChunkEvents) {
			id := taskOf(b)
			d.tasks[id] = max(d.tasks[id], le.Uint64(b[format.CLost:]))
			n, _ := countEvents(b[format.ChunkHeader:used])
			copies = append(copies, claim{len(copied), used, n, le.Uint64(b[format.CCounter:])})
			copied = append(copied, b[:used])
		}
	}
	slices.SortFunc(copies, func(a, b claim) int { return cmp.Compare(a.counter, b.counter) })
	for _, c := range copies {
		kept, _ := d.w.write([][]byte{copied[c.chunk]})
		d.count(c, kept == 1)
	}
}

// countEvents counts entries and exits: words that are neither holes nor
// reserved events with what belongs to them. hole is the offset of the first slot
// that is reserved and not written, -1: there is none. Nearly all words are events,
// so eight at a time are looked at for one that is not.
func countEvents(b []byte) (n uint64, hole int) {
	hole = -1
	for size := len(b); len(b) >= 8; {
		for len(b) >= 64 && allOrdinary(b[:64:64]) {
			n += 8
			b = b[64:]
		}
		if len(b) < 8 {
			break
		}
		if hole < 0 && le.Uint64(b) == 0 {
			hole = size - len(b)
		}
		var one uint64
		one, b = countEvent(b)
		n += one
	}
	return n, hole
}

// allOrdinary tells whether eight words are.
func allOrdinary(c []byte) bool {
	return ordinary(le.Uint64(c)) && ordinary(le.Uint64(c[8:])) && ordinary(le.Uint64(c[16:])) && ordinary(le.Uint64(c[24:])) &&
		ordinary(le.Uint64(c[32:])) && ordinary(le.Uint64(c[40:])) && ordinary(le.Uint64(c[48:])) && ordinary(le.Uint64(c[56:]))
}

// ordinary tells whether a word is an entry or an exit, in one comparison:
// shifted by the bit that says exit, reserved ids are the largest words, and
// less one, so is the hole.
func ordinary(w uint64) bool { return w<<1-1 < format.ReservedBase<<33-1 }

// countEvent counts one word, and skips what belongs to it.
func countEvent(b []byte) (n uint64, rest []byte) {
	w := le.Uint64(b)
	b = b[8:]
	switch id := uint32(w>>32) & 0x7fffffff; {
	case w<<1 == 0:
		return 0, b
	case id < format.ReservedBase:
		return 1, b
	case id-format.ReservedBase < uint32(len(payload)):
		return 0, b[min(8*int(payload[id-format.ReservedBase]), len(b)):]
	}
	return 0, b
}

// payload is how many words follow the reserved events.
var payload = [...]uint8{1, 1, 1, 1, 1, 0, 2, 0, 1}
