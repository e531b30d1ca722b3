//go:build linux

package drain

import (
	"cmp"
	"slices"
	"time"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/pool"
	"github.com/fentry-dev/fentry/trace"
)

// makeRoom frees the oldest full chunks when few are free. Tasks that still run
// overwrite their own; those of tasks that have ended are overwritten here.
func (d *Drainer) makeRoom() {
	free := 0
	var full []claim
	for i := range d.p.N {
		switch d.p.State(i).Load() {
		case format.StateFree:
			free++
		case format.StateFull:
			full = append(full, claim{chunk: i, counter: d.p.Counter(i)})
		}
	}
	want := d.p.N/8 - free
	if want <= 0 {
		return
	}
	slices.SortFunc(full, func(a, b claim) int { return cmp.Compare(a.counter, b.counter) })
	freed := false
	for _, c := range full[:min(want, len(full))] {
		if !d.p.State(c.chunk).CompareAndSwap(format.StateFull, format.StateWriting) {
			continue
		}
		b := d.p.Chunk(c.chunk)
		if used := pool.Seal(b); used > 0 {
			n, _ := pool.CountEvents(b[format.ChunkHeader:used])
			d.stats.Overwrote += n
		}
		d.p.Release(c.chunk, len(b))
		freed = true
	}
	if freed {
		d.p.Announce()
	}
}

// reclaim takes the chunks of dead tasks: now and then, and soon when few chunks
// are free or tasks wait. It returns how many it took, and how long to wait
// before it is worth to try again.
func (d *Drainer) reclaim() (n int, wait time.Duration) {
	const soon, late = 2 * time.Millisecond, time.Second
	short := d.free < d.p.N/4 || d.p.Word(format.HWaiters).Load() != 0
	switch {
	case !short:
		d.patience = late
	case d.patience > IdleWait:
		d.patience = soon
	}
	if since := time.Since(d.lastReclaim); since < d.patience {
		return 0, min(d.patience-since, IdleWait)
	}
	n = d.reclaimOwned(d.live.dead)
	d.lastReclaim = time.Now()
	if short && n == 0 {
		// All have owners that live: trying again at once is no use.
		d.patience = min(2*d.patience, IdleWait)
	} else if short {
		d.patience = soon
	}
	return n, min(d.patience, IdleWait)
}

// reclaimOwned turns the chunks of dead tasks into full ones.
func (d *Drainer) reclaimOwned(dead func([]owner) []owner) int {
	var owners []owner
	for i := range d.p.N {
		// A task that has just taken the chunk has not filled in the header.
		if b := d.p.Chunk(i); d.p.State(i).Load() == format.StateOwned && pool.AtomicMagic(b) == format.ChunkMagic {
			owners = append(owners, owner{i, int(le.Uint32(b[format.CPID:])), int(le.Uint32(b[format.CTID:]))})
		}
	}
	if len(owners) == 0 {
		return 0
	}
	n := 0
	for _, o := range dead(owners) {
		if d.p.State(o.chunk).CompareAndSwap(format.StateOwned, format.StateFull) {
			n++
		}
	}
	return n
}

// Last drains everything when no traced process is left, or none records any
// more: full chunks, and what there is in owned ones.
func (d *Drainer) Last(all bool) {
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
	for i := range d.p.N {
		if d.p.State(i).Load() != format.StateOwned || pool.AtomicMagic(d.p.Chunk(i)) != format.ChunkMagic {
			continue
		}
		b := slices.Clone(d.p.Chunk(i))
		le.PutUint32(b[format.CSize:], 0)
		if used := pool.Seal(b); used > format.ChunkHeader && le.Uint16(b[format.CKind:]) == uint16(trace.ChunkEvents) {
			id := pool.TaskOf(b)
			d.tasks[id] = max(d.tasks[id], le.Uint64(b[format.CLost:]))
			n, _ := pool.CountEvents(b[format.ChunkHeader:used])
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
