//go:build linux

package session

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fentry-dev/fentry/trace"
)

// drainer moves full chunks from the pool to the events file.
//
// It runs in a goroutine of its own. What others may read of it is behind mu.
type drainer struct {
	p      *pool
	w      *eventsFile
	policy trace.Policy
	live   *liveness

	// onImage gets every image announced, onWriteError the first error of w.
	onImage      func(Image)
	onWriteError func(error)

	stop  atomic.Bool
	batch []claim
	vec   [][]byte
	nap   time.Duration

	lastReclaim time.Time

	mu    sync.Mutex
	stats drainStats
	tasks map[taskID]*taskStats
}

// claim is a chunk the drainer has to itself.
type claim struct {
	chunk   int
	used    int // bytes, header included
	counter uint64
}

// taskID tells tasks apart, also those that had one thread id after another.
type taskID struct {
	pid, tid uint32
	key      uint64
}

type taskStats struct{ lost uint64 }

type drainStats struct {
	events, chunks, bad, overwrote, discarded uint64
}

// batchBytes is how much is written at once: large enough for the file system to
// use large folios, small enough to be in the second-level cache when it is
// cleared, and to come back to the tasks soon.
const batchBytes = 1 << 20

// idleWait bounds the sleep when nothing happens.
const idleWait = 100 * time.Millisecond

func newDrainer(p *pool, w *eventsFile, policy trace.Policy, live *liveness) *drainer {
	d := &drainer{p: p, w: w, policy: policy, live: live, tasks: make(map[taskID]*taskStats)}
	// While events flow, the drainer sleeps for a time in which one task, at its
	// fastest, fills a small part of the pool, and takes what has come since in
	// one go. Nobody has to wake it: that would cost every task a system call
	// that does something for every chunk.
	const fastest = 1e9 // bytes a second
	fill := time.Duration(float64(p.n*chunkSize) / 16 / fastest * 1e9)
	d.nap = min(fill, 4*time.Millisecond)
	return d
}

// run drains until stop is set, then once more.
func (d *drainer) run() {
	filled := d.p.word(hFilled)
	for !d.stop.Load() {
		val := filled.Load()
		n := d.round(false)
		n += d.reclaim()
		switch {
		case n == 0:
			if d.p.word(hWaiters).Load() != 0 {
				time.Sleep(time.Millisecond)
				continue
			}
			futexWait(filled, val, int64(idleWait))
		case d.nap >= 100*time.Microsecond && d.p.word(hWaiters).Load() == 0:
			time.Sleep(d.nap)
		}
	}
}

// finish tells run to return soon.
func (d *drainer) finish() {
	d.stop.Store(true)
	futexWake(d.p.word(hFilled))
}

// round writes all full chunks and returns how many there were. When the newest
// events are to be kept, full chunks stay where they are, unless all is set,
// until there is no room.
func (d *drainer) round(all bool) int {
	keep := d.policy == trace.PolicyOverwrite && !all
	n := 0
	bytes := 0
	for i := range d.p.n {
		if d.p.state(i).Load() != stateFull {
			continue
		}
		if keep && d.p.kind(i) != trace.ChunkImage {
			continue
		}
		if !d.p.state(i).CompareAndSwap(stateFull, stateWriting) {
			continue
		}
		n++
		if c, ok := d.inspect(i); ok {
			d.batch = append(d.batch, c)
			bytes += c.used
		}
		if bytes >= batchBytes {
			d.flush()
			bytes = 0
		}
	}
	d.flush()
	if keep {
		d.makeRoom()
	}
	return n
}

// inspect checks and seals a claimed chunk, and counts it. A chunk that makes no
// sense is given back.
func (d *drainer) inspect(i int) (claim, bool) {
	b := d.p.chunk(i)
	used := seal(b)
	kind := trace.ChunkKind(le.Uint16(b[cKind:]))
	if used == 0 || kind != trace.ChunkEvents && kind != trace.ChunkImage {
		d.mu.Lock()
		d.stats.bad++
		d.mu.Unlock()
		d.p.release(i, len(b))
		d.p.announce()
		return claim{}, false
	}
	events := uint64(0)
	if kind == trace.ChunkEvents {
		events = countEvents(b[chunkHeader:used])
	}
	id := taskID{le.Uint32(b[cPID:]), le.Uint32(b[cTID:]), le.Uint64(b[cKey:])}
	d.mu.Lock()
	d.stats.events += events
	d.stats.chunks++
	t := d.tasks[id]
	if t == nil {
		t = new(taskStats)
		d.tasks[id] = t
	}
	t.lost = max(t.lost, le.Uint64(b[cLost:]))
	d.mu.Unlock()
	d.live.saw(int(id.pid))
	if kind == trace.ChunkImage && d.onImage != nil {
		d.onImage(parseImage(le.Uint64(b[cImage:]), int(id.pid), b[chunkHeader:used]))
	}
	return claim{i, used, le.Uint64(b[cCounter:])}, true
}

// seal makes a chunk end with its last word that is not zero, if its task did
// not say where it ends, and returns its size; 0: it is no chunk.
func seal(b []byte) int {
	if le.Uint32(b[cMagic:]) != chunkMagic {
		return 0
	}
	size := int(le.Uint32(b[cSize:]))
	if size >= chunkHeader && size <= len(b) && size%8 == 0 {
		return size
	}
	if size != 0 {
		return 0
	}
	size = len(b)
	for size > chunkHeader && le.Uint64(b[size-8:]) == 0 {
		size -= 8
	}
	le.PutUint32(b[cSize:], uint32(size))
	return size
}

// flush writes the claimed chunks, oldest first, and frees them.
func (d *drainer) flush() {
	if len(d.batch) == 0 {
		return
	}
	slices.SortFunc(d.batch, func(a, b claim) int {
		switch {
		case a.counter < b.counter:
			return -1
		case a.counter > b.counter:
			return 1
		}
		return 0
	})
	d.vec = d.vec[:0]
	for _, c := range d.batch {
		d.vec = append(d.vec, d.p.chunk(c.chunk)[:c.used])
	}
	first := d.w.err == nil
	if err := d.w.write(d.vec); err != nil {
		d.mu.Lock()
		d.stats.discarded += uint64(len(d.batch))
		d.mu.Unlock()
		if first {
			d.p.shut()
			d.onWriteError(err)
		}
	}
	for _, c := range d.batch {
		d.p.release(c.chunk, c.used)
	}
	d.batch = d.batch[:0]
	d.p.announce()
}

// makeRoom frees the oldest full chunks when few are free. Tasks that still run
// overwrite their own; those of tasks that have ended are overwritten here.
func (d *drainer) makeRoom() {
	free := 0
	var full []claim
	for i := range d.p.n {
		switch d.p.state(i).Load() {
		case stateFree:
			free++
		case stateFull:
			full = append(full, claim{chunk: i, counter: d.p.counter(i)})
		}
	}
	want := d.p.n/8 - free
	if want <= 0 {
		return
	}
	slices.SortFunc(full, func(a, b claim) int {
		if a.counter < b.counter {
			return -1
		}
		return 1
	})
	freed := false
	for _, c := range full[:min(want, len(full))] {
		if !d.p.state(c.chunk).CompareAndSwap(stateFull, stateWriting) {
			continue
		}
		b := d.p.chunk(c.chunk)
		if used := seal(b); used > 0 {
			d.mu.Lock()
			d.stats.overwrote += countEvents(b[chunkHeader:used])
			d.mu.Unlock()
		}
		d.p.release(c.chunk, len(b))
		freed = true
	}
	if freed {
		d.p.announce()
	}
}

// reclaim takes the chunks of dead tasks: at intervals, and at once when tasks
// wait. It returns how many it took.
func (d *drainer) reclaim() int {
	interval := time.Second
	if d.p.word(hWaiters).Load() != 0 {
		interval = 5 * time.Millisecond
	}
	if time.Since(d.lastReclaim) < interval {
		return 0
	}
	n := d.reclaimOwned(d.live.dead)
	d.lastReclaim = time.Now()
	return n
}

// reclaimOwned turns the chunks of dead tasks into full ones.
func (d *drainer) reclaimOwned(dead func([]owner) []owner) int {
	var owners []owner
	for i := range d.p.n {
		// A task that has just taken the chunk has not filled in the header.
		if b := d.p.chunk(i); d.p.state(i).Load() == stateOwned && atomicMagic(b) == chunkMagic {
			owners = append(owners, owner{i, int(le.Uint32(b[cPID:])), int(le.Uint32(b[cTID:]))})
		}
	}
	if len(owners) == 0 {
		return 0
	}
	n := 0
	for _, o := range dead(owners) {
		if d.p.state(o.chunk).CompareAndSwap(stateOwned, stateFull) {
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
	d.round(true)
	if all {
		return
	}
	// Tasks that live on are told to stop, but may be in the middle of an event:
	// their chunks are copied and left to them.
	var copies [][]byte
	for i := range d.p.n {
		if d.p.state(i).Load() != stateOwned || atomicMagic(d.p.chunk(i)) != chunkMagic {
			continue
		}
		b := slices.Clone(d.p.chunk(i))
		le.PutUint32(b[cSize:], 0)
		if used := seal(b); used > chunkHeader && le.Uint16(b[cKind:]) == uint16(trace.ChunkEvents) {
			copies = append(copies, b[:used])
			d.mu.Lock()
			d.stats.events += countEvents(b[chunkHeader:used])
			d.stats.chunks++
			id := taskID{le.Uint32(b[cPID:]), le.Uint32(b[cTID:]), le.Uint64(b[cKey:])}
			if d.tasks[id] == nil {
				d.tasks[id] = new(taskStats)
			}
			d.mu.Unlock()
		}
	}
	for chunk := range slices.Chunk(copies, 256) {
		if err := d.w.write(chunk); err != nil {
			break
		}
	}
}

// countEvents counts entries and exits: words that are neither holes nor
// reserved events with what belongs to them. Nearly all words are events, so
// eight at a time are looked at for one that is not.
func countEvents(b []byte) uint64 {
	n := uint64(0)
	for len(b) >= 64 {
		c := b[:64:64]
		if ordinary(le.Uint64(c)) && ordinary(le.Uint64(c[8:])) && ordinary(le.Uint64(c[16:])) && ordinary(le.Uint64(c[24:])) &&
			ordinary(le.Uint64(c[32:])) && ordinary(le.Uint64(c[40:])) && ordinary(le.Uint64(c[48:])) && ordinary(le.Uint64(c[56:])) {
			n += 8
			b = b[64:]
			continue
		}
		for end := len(b) - 64; len(b) > end; {
			var one uint64
			one, b = countEvent(b)
			n += one
		}
	}
	for len(b) >= 8 {
		var one uint64
		one, b = countEvent(b)
		n += one
	}
	return n
}

// ordinary tells whether a word is an entry or an exit, in one comparison:
// shifted by the bit that says exit, reserved ids are the largest words, and
// less one, so is the hole.
func ordinary(w uint64) bool { return w<<1-1 < reservedBase<<33-1 }

// countEvent counts one word, and skips what belongs to it.
func countEvent(b []byte) (n uint64, rest []byte) {
	w := le.Uint64(b)
	b = b[8:]
	switch id := uint32(w>>32) & 0x7fffffff; {
	case w<<1 == 0:
		return 0, b
	case id < reservedBase:
		return 1, b
	case id-reservedBase < uint32(len(payload)):
		return 0, b[min(8*int(payload[id-reservedBase]), len(b)):]
	}
	return 0, b
}

// payload is how many words follow the reserved events.
var payload = [...]uint8{1, 1, 1, 1, 1, 0, 2, 0, 1}
