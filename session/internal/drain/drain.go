//go:build linux

package drain

import (
	"cmp"
	"encoding/binary"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/session/internal/pool"
	"github.com/fentry-dev/fentry/trace"
)

var le = binary.LittleEndian

// Drainer moves full chunks from the pool to the events file.
//
// It runs in a goroutine of its own; what it counted is read when that has ended.
type Drainer struct {
	p      *pool.Pool
	w      *File
	policy trace.Policy
	live   *Liveness

	// OnImage gets what every image chunk says, OnWriteError the first error of w.
	OnImage      func(id trace.ImageID, pid int, payload []byte)
	OnWriteError func(error)
	// Looked, if not nil, is called each time that it was looked what programs have done: when there is something, and every
	// IdleWait. It must not wait.
	Looked func()

	Adapt    *Adapt      // nil: nothing is switched off
	Compress *Compressor // nil: nothing is compressed

	stop    atomic.Bool
	mu      sync.Mutex
	running bool // guarded by mu

	asks   chan func()   // for the goroutine that drains
	over   chan struct{} // closed when it does not any more
	batch  []claim
	held   []held               // oldest first
	newest map[pool.Task]uint32 // number of the newest chunk of a task in a round
	vec    []stored
	nap    time.Duration
	roused chan struct{} // has something when a nap is to end
	free   int           // chunks of full size that were free in the last round

	lastReclaim time.Time
	patience    time.Duration // until the next
	asked       int           // chunk whose owner is the next to be asked for

	lookedAtHeld, askedHeld time.Time
	final                   bool // no task goes on: nothing is held any more

	stats Counts
	tasks map[pool.Task]uint64 // events they lost
	pids  map[uint32]bool      // of tasks
	owned time.Time            // when the following were asked

	ownMu sync.Mutex
	owns  []func(want func(pid, host uint32) bool) [][]byte // see AddOwn
}

// claim is a chunk the drainer has to itself, as far as honest programs go. What decides
// how the file is read, the header, is copied once and written from the copy.
type claim struct {
	chunk  int
	head   pool.Header
	used   int // bytes, header included
	events uint64
}

func (c *claim) number() uint32 { return le.Uint32(c.head[format.CNumber:]) }

// Counts is what a drainer has done.
type Counts struct {
	Events    uint64 // written
	Lost      uint64 // that tasks say they lost
	Unwritten uint64 // that could not be written
	Failed    uint64 // counter when tracing ended because of Err; 0: it did not
	Overwrote uint64 // given up for newer ones
	Chunks    uint64 // written
	// Compressed counts the chunks that were compressed to be written.
	Compressed uint64
	Own        uint64 // chunks of the recorder's own written
	Bad        uint64 // chunks that made no sense
	Bytes      int64  // size of the events file
	Tasks      int    // threads that recorded something
	Processes  int
	// SwitchedOff is how many functions were, because recording them cost too much.
	SwitchedOff int
	Err         error // the first error writing the file
}

// Counts says what has been done. Run must have returned.
func (d *Drainer) Counts() Counts {
	c := d.stats
	c.Bytes, c.Err, c.Tasks = d.w.size, d.w.err, len(d.tasks)
	for _, lost := range d.tasks {
		c.Lost += lost
	}
	c.Processes = len(d.pids)
	return c
}

// PIDs are the processes that recorded something. Run must have returned.
func (d *Drainer) PIDs() map[int]bool {
	pids := make(map[int]bool)
	for pid := range d.pids {
		pids[int(pid)] = true
	}
	return pids
}

// Fail ends the writing for good.
func (d *Drainer) Fail(err error) { d.w.fail(err, nil, 0) }

// Close ends the list of chunks, and Do. The events file is its maker's. Run must have returned.
func (d *Drainer) Close() {
	d.End()
	d.w.close()
}

// End ends Do: Run has returned, and is not called again.
func (d *Drainer) End() {
	if !d.final {
		d.final = true
		close(d.over)
	}
}

// batchBytes is how much is written at once: large enough for the file system to
// use large folios, small enough to be in the second-level cache when it is
// cleared, and to come back to the tasks soon.
const batchBytes = 1 << 20

// batchChunks is how many chunks one system call writes: each is two pieces of memory,
// of which it takes 1024 (IOV_MAX).
const batchChunks = 512

// IdleWait bounds the sleep when nothing happens.
const IdleWait = 100 * time.Millisecond

// New returns a drainer of a pool to an events file.
func New(p *pool.Pool, w *File, policy trace.Policy, live *Liveness) *Drainer {
	d := &Drainer{
		p: p, w: w, policy: policy, live: live,
		tasks: make(map[pool.Task]uint64), pids: make(map[uint32]bool), newest: make(map[pool.Task]uint32),
		asks: make(chan func(), 1), over: make(chan struct{}), roused: make(chan struct{}, 1),
	}
	// While events flow, the drainer sleeps for a time in which one task, at its
	// fastest, fills a small part of the pool, and takes what has come since in
	// one go. Nobody has to wake it: that would cost every task a system call
	// that does something for every chunk.
	const fastest = 1e9 // bytes a second
	fill := time.Duration(float64(p.N*format.ChunkSize) / 16 / fastest * 1e9)
	d.nap = min(fill, 4*time.Millisecond)
	return d
}

// Run drains until Stop.
func (d *Drainer) Run() {
	d.run(true)
	defer d.run(false)
	filled := d.p.Word(format.HFilled)
	for !d.stop.Load() {
		val := filled.Load()
		select {
		case f := <-d.asks:
			f()
		default:
		}
		if d.Adapt != nil {
			d.Adapt.Meter.Tick(clock.Read())
		}
		n := d.round(false)
		d.adapt()
		d.own(false)
		took, wait := d.reclaim()
		if d.Looked != nil {
			d.Looked()
		}
		switch {
		case n+took == 0:
			pool.FutexWait(filled, val, int64(wait))
		case d.nap >= 100*time.Microsecond && d.free > d.p.N/4:
			d.sleep()
		}
	}
	d.stop.Store(false)
}

// soonNap is the longest nap while something may have to be switched off.
const soonNap = time.Millisecond

// sleep is a nap, which programs do not end by what they fill.
func (d *Drainer) sleep() {
	nap := d.nap
	if d.Adapt != nil && d.Adapt.Meter.Soon() {
		nap = min(nap, soonNap)
	}
	select {
	case <-time.After(nap):
	case <-d.roused:
	}
}

// Stop tells Run to return soon.
func (d *Drainer) Stop() {
	d.stop.Store(true)
	d.wake()
}

// round writes all full chunks and returns how many there were. When the newest
// events are to be kept, full chunks stay where they are, unless all is set,
// until there is no room.
//
// The chunks of a task are written in their order. While the states are read,
// tasks go on: the chunk behind one that is seen to be full can have been passed
// when it was not yet. So the states are read twice, and of what only the second
// reading sees, that is taken what belongs before something of the first.
func (d *Drainer) round(all bool) int {
	d.ripe(all)
	keep := d.policy == trace.PolicyOverwrite && !all
	clear(d.newest)
	n := d.claim(keep, func(b []byte) bool {
		id := pool.TaskOf(b)
		d.newest[id] = max(d.newest[id], le.Uint32(b[format.CNumber:]))
		return true
	})
	if n > 0 {
		n += d.claim(keep, func(b []byte) bool {
			newest, ok := d.newest[pool.TaskOf(b)]
			return ok && le.Uint32(b[format.CNumber:]) < newest
		})
	}
	if d.policy == trace.PolicyOverwrite {
		d.leaveOld()
	}
	d.flush()
	if keep {
		d.makeRoom()
	}
	return n
}

// claim takes the full chunks that want says yes to, and counts those of full size
// that are free, and that tasks own.
func (d *Drainer) claim(keep bool, want func(b []byte) bool) int {
	n, owned := 0, 0
	d.free = 0
	for i := range d.chunks() {
		s := d.p.State(i)
		switch s.Load() {
		case format.StateFree:
			if i < d.p.N {
				d.free++
			}
			continue
		case format.StateOwned:
			if i < d.p.N {
				owned++
			}
			continue
		case format.StateFull:
		default:
			continue
		}
		events := d.p.Kind(i) == trace.ChunkEvents // others have no order, and are kept
		if keep && events || events && !want(d.p.Chunk(i)) || !s.CompareAndSwap(format.StateFull, format.StateWriting) {
			continue
		}
		n++
		if c, ok := d.inspect(i); ok {
			d.batch = append(d.batch, c)
		}
	}
	d.tellScarce(owned)
	return n
}

// chunks are those to look at: before the end, those that may be in use.
func (d *Drainer) chunks() iter.Seq[int] {
	if d.final {
		return d.p.All
	}
	return d.p.InUse
}

// tellScarce tells tasks to take small chunks while they own most of the others.
// They go back to those of full size only when that has changed by much: a task that
// is idle keeps what it has.
func (d *Drainer) tellScarce(owned int) {
	switch scarce := d.p.Word(format.HScarce); {
	case owned >= d.p.N-d.p.N/4:
		scarce.Store(1)
	case owned < d.p.N/2:
		scarce.Store(0)
	}
}

// recordersOwn tells of a kind of chunk that no program writes.
func recordersOwn(kind trace.ChunkKind) bool {
	return kind == trace.ChunkSwitchedOff || kind == trace.ChunkSched || kind == trace.ChunkCompressed
}

// inspect checks and seals a claimed chunk, and counts it. A chunk that makes no
// sense is given back.
func (d *Drainer) inspect(i int) (claim, bool) {
	b := d.p.Chunk(i)
	used := pool.Seal(b)
	c := claim{chunk: i, head: pool.HeaderOf(b, used), used: used}
	kind := c.head.Kind()
	if used == 0 || kind == 0 || kind > format.MaxKind || recordersOwn(kind) {
		d.stats.Bad++
		d.p.Release(i, len(b))
		d.p.Announce(1)
		return claim{}, false
	}
	hole := -1
	if kind == trace.ChunkEvents {
		c.events, hole = pool.CountEvents(b[format.ChunkHeader:used])
		if d.Adapt != nil {
			d.Adapt.Meter.Chunk(c.head.Task(), c.head.Counter(), b[format.ChunkHeader:used], c.events)
		}
	}
	d.saw(&c.head)
	d.live.saw(int(c.head.Task().PID))
	if kind == trace.ChunkImage && d.OnImage != nil {
		d.OnImage(c.head.Image(), int(c.head.Task().PID), slices.Clone(b[format.ChunkHeader:used]))
	}
	if hole >= 0 && !d.final {
		d.hold(c, format.ChunkHeader+hole)
		return claim{}, false
	}
	return c, true
}

// saw notes whose chunk it is.
func (d *Drainer) saw(h *pool.Header) {
	id := h.Task()
	d.tasks[id] = max(d.tasks[id], h.Lost())
	d.pids[id.PID] = true
}

// flush writes the claimed chunks, oldest first, and frees them.
func (d *Drainer) flush() {
	slices.SortFunc(d.batch, func(a, b claim) int { return cmp.Compare(a.head.Counter(), b.head.Counter()) })
	for rest := d.batch; len(rest) > 0; {
		n, bytes, most := 0, 0, batchChunks
		compress := d.compressible()
		if compress > 0 {
			most = min(most, compress)
		}
		for n < min(len(rest), most) && bytes < batchBytes {
			bytes += rest[n].used
			n++
		}
		d.write(rest[:n], compress > 0)
		rest = rest[n:]
	}
	d.batch = d.batch[:0]
}

func (d *Drainer) write(batch []claim, compress bool) {
	d.vec = d.vec[:0]
	for i := range batch {
		c := &batch[i]
		d.vec = append(d.vec, stored{c.head[:], d.p.Chunk(c.chunk)[format.ChunkHeader:c.used]})
	}
	if compress {
		d.stats.Compressed += d.Compress.compress(batch, d.vec)
	}
	kept := d.append(d.vec, batch)
	for i, c := range batch {
		d.count(c, i < kept)
	}
	for _, c := range batch {
		d.p.Release(c.chunk, c.used)
	}
	d.p.Announce(len(batch))
}

// append writes chunks, those of batch or the recorder's own, and returns how many are kept.
func (d *Drainer) append(vec []stored, batch []claim) (kept int) {
	first := d.w.err == nil
	kept, err := d.w.append(vec)
	if err != nil && first {
		// From now on programs switch their tracing off: what they do then nobody counts.
		d.stats.Failed = d.now(batch)
		d.p.Shut()
		d.OnWriteError(err)
	}
	return kept
}

// AddOwn has the drainer write chunks of the recorder's own, too: take returns those of processes that want says yes to. It
// can be called at any time.
func (d *Drainer) AddOwn(take func(want func(pid, host uint32) bool) [][]byte) {
	d.ownMu.Lock()
	defer d.ownMu.Unlock()
	d.owns = append(d.owns, take)
}

// own writes chunks of the recorder's own, of processes that recorded something: those have the ids that they see
// themselves, which in a PID namespace can be those of others here. When the newest events are to be kept,
// they wait for the end.
func (d *Drainer) own(last bool) {
	d.ownMu.Lock()
	owns := slices.Clone(d.owns)
	d.ownMu.Unlock()
	if len(owns) == 0 || !last && (d.policy == trace.PolicyOverwrite || time.Since(d.owned) < IdleWait) {
		return
	}
	d.owned = time.Now()
	var chunks [][]byte
	for _, take := range owns {
		chunks = append(chunks, take(func(pid, host uint32) bool { return d.pids[pid] && d.live.is(int(pid), int(host)) })...)
	}
	for len(chunks) > 0 {
		n := min(len(chunks), batchChunks)
		d.vec = d.vec[:0]
		for _, b := range chunks[:n] {
			d.vec = append(d.vec, stored{b[:format.ChunkHeader], b[format.ChunkHeader:]})
		}
		d.stats.Own += uint64(d.append(d.vec, nil))
		chunks = chunks[n:]
	}
}

// now is the counter, or that of the newest chunk of a batch: an emulated machine's is
// not known here.
func (d *Drainer) now(batch []claim) uint64 {
	if d.p.Word64(format.HCounter).Load() != 0 {
		return clock.Read().Counter
	}
	return batch[len(batch)-1].head.Counter()
}

// count counts a chunk that was written, or could not be.
func (d *Drainer) count(c claim, written bool) {
	if !written {
		d.stats.Unwritten += c.events
		return
	}
	d.stats.Events += c.events
	d.stats.Chunks++
}
