//go:build linux

package drain

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/session/internal/pool"
	"github.com/fentry-dev/fentry/trace"
)

// makeRoom frees the oldest full chunks of a size when few of that are free. Tasks
// that still run overwrite their own; those of tasks that have ended are overwritten
// here.
func (d *Drainer) makeRoom() {
	freed := d.makeRoomAmong(0, d.p.N, d.free) + d.makeRoomAmong(d.p.N, d.p.N+d.p.Small, d.p.FreeSmall())
	if freed > 0 {
		d.p.Announce(freed)
	}
}

// makeRoomAmong does it for the chunks from one to another, of which free are free. What
// is no events is no older events: the next round writes it.
func (d *Drainer) makeRoomAmong(from, to, free int) (freed int) {
	want := (to-from)/8 - free
	if want <= 0 {
		return 0
	}
	type begun struct {
		chunk   int
		counter uint64
	}
	var full []begun
	for i := from; i < to; i++ {
		if d.p.State(i).Load() == format.StateFull && d.p.Kind(i) == trace.ChunkEvents {
			full = append(full, begun{i, d.p.Counter(i)})
		}
	}
	slices.SortFunc(full, func(a, b begun) int { return cmp.Compare(a.counter, b.counter) })
	for _, c := range full[:min(want, len(full))] {
		if d.overwrite(c.chunk, c.counter) {
			freed++
		}
	}
	return freed
}

// overwrite frees a full chunk of events that begins at a counter. It returns false if the chunk is another one by now: its thread
// has taken it back, and can have handed over newer events in it, or something else, which is to be written.
func (d *Drainer) overwrite(chunk int, counter uint64) bool {
	s := d.p.State(chunk)
	if !s.CompareAndSwap(format.StateFull, format.StateWriting) {
		return false
	}
	if d.p.Kind(chunk) != trace.ChunkEvents || d.p.Counter(chunk) != counter {
		s.Store(format.StateFull)
		return false
	}
	b := d.p.Chunk(chunk)
	if used := pool.Seal(b); used > 0 {
		n, _ := pool.CountEvents(b[format.ChunkHeader:used])
		d.stats.Overwrote += n
	}
	d.p.Release(chunk, len(b))
	return true
}

// leaveOld takes chunks of events out of the batch, which holds all there are, behind which chunks of their task have
// been used again: a task's first chunk is a small one, which nobody has needed since. Of the calls that are open at its
// end nobody knows how they went on, so it would only mislead.
func (d *Drainer) leaveOld() {
	slices.SortStableFunc(d.batch, func(a, b claim) int { return cmp.Compare(b.number(), a.number()) })
	oldest := make(map[pool.Task]uint32) // that is kept
	freed := 0
	d.batch = slices.DeleteFunc(d.batch, func(c claim) bool {
		if c.head.Kind() != trace.ChunkEvents {
			return false
		}
		id := c.head.Task()
		if next, ok := oldest[id]; ok && c.number()+1 != next {
			d.stats.Overwrote += c.events
			d.p.Release(c.chunk, c.used)
			freed++
			return true
		}
		oldest[id] = c.number()
		return false
	})
	if freed > 0 {
		d.p.Announce(freed)
	}
}

// askAtOnce is how many tasks are asked at a time whether they live. With tens of
// thousands, asking all of them takes longer than chunks take to fill.
const askAtOnce = 1024

// reclaim takes the chunks of dead tasks: now and then, and soon when few chunks
// are free or tasks wait. It returns how many it took, and how long to wait
// before it is worth to try again.
func (d *Drainer) reclaim() (n int, wait time.Duration) {
	const soon, late = 2 * time.Millisecond, time.Second
	short := d.free < d.p.N/4 || d.p.FreeSmall() < d.p.Small/4 || d.p.Word(format.HWaiters).Load() != 0
	switch {
	case !short:
		d.patience = late
	case d.patience > IdleWait:
		d.patience = soon
	}
	if since := time.Since(d.lastReclaim); since < d.patience {
		return 0, min(d.patience-since, IdleWait)
	}
	n, more := d.reclaimSome()
	d.lastReclaim = time.Now()
	if short && n == 0 && !more {
		// All have owners that live: trying again at once is no use.
		d.patience = min(2*d.patience, IdleWait)
	} else if short {
		d.patience = soon
	}
	return n, min(d.patience, IdleWait)
}

// owners are the tasks that have a chunk to themselves, by chunk, from a chunk on and
// so many at most. next is where to go on; 0: these were the last.
func (d *Drainer) owners(from, most int) (owners []owner, next int) {
	for i := range d.chunks() {
		// A task that has just taken the chunk has not filled in the header.
		if i < from || d.p.State(i).Load() != format.StateOwned {
			continue
		}
		if b := d.p.Chunk(i); pool.AtomicMagic(b) == format.ChunkMagic {
			if len(owners) == most {
				return owners, i
			}
			owners = append(owners, owner{i, int(le.Uint32(b[format.CPID:])), int(le.Uint32(b[format.CTID:]))})
		}
	}
	return owners, 0
}

// reclaimSome turns chunks of dead tasks into full ones, of the next tasks that have
// not been asked for in this turn. more is false when the turn is over.
func (d *Drainer) reclaimSome() (n int, more bool) {
	owners, next := d.owners(d.asked, askAtOnce)
	d.asked = next
	gone := d.leaveUnused(d.live.dead(owners))
	d.endThreads(gone)
	return d.take(gone), next != 0
}

// leaveUnused frees the chunks among those of dead tasks that they have prepared and not come to, and returns the others. A
// task's first chunk is there as soon as the task is.
func (d *Drainer) leaveUnused(gone []owner) []owner {
	freed := 0
	gone = slices.DeleteFunc(gone, func(o owner) bool {
		b := d.p.Chunk(o.chunk)
		if d.p.Kind(o.chunk) != trace.ChunkEvents || le.Uint32(b[format.CNumber:]) == 0 || le.Uint32(b[format.CSize:]) != 0 ||
			len(format.Contents(b[format.ChunkHeader:])) != 0 ||
			!d.p.State(o.chunk).CompareAndSwap(format.StateOwned, format.StateWriting) {
			return false
		}
		d.p.Release(o.chunk, format.ChunkHeader)
		freed++
		return true
	})
	if freed > 0 {
		d.p.Announce(freed)
	}
	return gone
}

// take turns chunks that nobody writes to any more into full ones.
func (d *Drainer) take(gone []owner) int {
	n := 0
	for _, o := range gone {
		if d.p.State(o.chunk).CompareAndSwap(format.StateOwned, format.StateFull) {
			n++
		}
	}
	return n
}

// endThreads says in the last chunk of each of the dead tasks that it has ended. An
// emulated machine's counter is not known here.
func (d *Drainer) endThreads(gone []owner) {
	if len(gone) == 0 || d.p.Word64(format.HCounter).Load() == 0 {
		return
	}
	last := make(map[pool.Task][]byte)
	for _, o := range gone {
		b := d.p.Chunk(o.chunk)
		id := pool.TaskOf(b)
		if l := last[id]; l == nil || le.Uint32(b[format.CNumber:]) > le.Uint32(l[format.CNumber:]) {
			last[id] = b
		}
	}
	now := clock.Read().Counter
	for _, b := range last {
		pool.EndThread(b, now)
	}
}

// Last drains everything when no traced process is left, or none records any
// more: full chunks, and what there is in owned ones.
func (d *Drainer) Last(all bool) {
	d.End()
	gone, _ := d.owners(0, math.MaxInt)
	if !all {
		gone = d.live.dead(gone)
	}
	gone = d.leaveUnused(gone)
	// Threads of processes that were detached from record nothing any more, and go on.
	d.endThreads(slices.DeleteFunc(slices.Clone(gone), d.live.lives))
	d.take(gone)
	d.round(true)
	defer d.own(true)
	if all {
		return
	}
	// Tasks that live on are told to stop, but may be in the middle of an event, and of the step from one chunk to the next:
	// what they own is copied and left to them, and what has become full meanwhile is drained.
	copies := d.copyOwned()
	d.round(true)
	d.keepCopies(copies)
}

// ownedCopy is the copy of a chunk that a task was writing to.
type ownedCopy struct {
	claim
	copied stored
}

// copyOwned copies what tasks have written to chunks that they own: of each task the newest one first, so that a copy has all
// that was recorded before what is in the copy of a later one.
func (d *Drainer) copyOwned() (copies []ownedCopy) {
	type owned struct {
		chunk  int
		number uint32
	}
	var all []owned
	for i := range d.chunks() {
		if d.p.State(i).Load() == format.StateOwned && pool.AtomicMagic(d.p.Chunk(i)) == format.ChunkMagic {
			all = append(all, owned{i, le.Uint32(d.p.Chunk(i)[format.CNumber:])})
		}
	}
	slices.SortFunc(all, func(a, b owned) int { return cmp.Compare(b.number, a.number) })
	for _, o := range all {
		b := pool.Written(d.p.Chunk(o.chunk))
		used := pool.Seal(b)
		if used <= format.ChunkHeader || le.Uint16(b[format.CKind:]) != uint16(trace.ChunkEvents) || le.Uint32(b[format.CNumber:]) != o.number {
			continue
		}
		c := claim{chunk: o.chunk, head: pool.HeaderOf(b, used), used: used}
		c.events, _ = pool.CountEvents(b[format.ChunkHeader:used])
		copies = append(copies, ownedCopy{c, stored{b[:format.ChunkHeader], b[format.ChunkHeader:used]}})
	}
	return copies
}

// keepCopies writes copies of chunks that have not been drained since.
func (d *Drainer) keepCopies(copies []ownedCopy) {
	slices.SortFunc(copies, func(a, b ownedCopy) int { return cmp.Compare(a.head.Counter(), b.head.Counter()) })
	for i := range copies {
		c := &copies[i]
		if newest, ok := d.newest[c.head.Task()]; ok && le.Uint32(c.head[format.CNumber:]) <= newest {
			continue
		}
		d.saw(&c.head)
		kept, _ := d.w.append([]stored{c.copied})
		d.count(c.claim, kept == 1)
	}
}
