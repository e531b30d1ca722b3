//go:build linux

package drain

import (
	"time"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/pool"
)

// A held chunk is full but for a slot that its task has reserved and not written
// yet: a signal handler came in between, and has filled the rest of the chunk and
// further ones, or a coroutine was left there. It is not written before the slot
// is, and, what matters more, not cleared and given to another task, into whose
// events the word would fall.
type held struct {
	claim
	owner
	hole int // offset of the first slot that is not written
}

const (
	heldPart  = 8                     // at most one in so many chunks of the pool is held
	heldNap   = 10 * time.Millisecond // between looks at their holes
	heldAlive = time.Second           // between looks whether their tasks live
)

// hold keeps a claimed chunk back.
func (d *Drainer) hold(c claim, hole int) {
	id := c.head.Task()
	o := owner{c.chunk, int(id.PID), int(id.TID)}
	d.held = append(d.held, held{c, o, hole})
}

// ripe puts held chunks into the batch: those that have no hole any more, those of
// dead tasks, and the oldest where too many are held; all of them when all is set
// or tasks wait for a chunk.
func (d *Drainer) ripe(all bool) {
	all = all || d.p.Word(format.HWaiters).Load() != 0
	now := time.Now()
	if len(d.held) == 0 || !all && now.Sub(d.lookedAtHeld) < heldNap {
		return
	}
	d.lookedAtHeld = now
	gone := d.heldByDead(now)
	excess := len(d.held) - d.p.N/heldPart
	keep := d.held[:0]
	for i, h := range d.held {
		if !all && i >= excess && !gone[h.claim.chunk] && d.open(&h) {
			keep = append(keep, h)
			continue
		}
		h.events, _ = pool.CountEvents(d.p.Chunk(h.claim.chunk)[format.ChunkHeader:h.used])
		d.batch = append(d.batch, h.claim)
	}
	d.held = keep
}

// open tells whether a held chunk still has a hole.
func (d *Drainer) open(h *held) bool {
	_, next := pool.CountEvents(d.p.Chunk(h.claim.chunk)[h.hole:h.used])
	h.hole += max(next, 0)
	return next >= 0
}

// heldByDead returns which held chunks have owners that are dead, if it is time to
// ask.
func (d *Drainer) heldByDead(now time.Time) map[int]bool {
	if now.Sub(d.askedHeld) < heldAlive {
		return nil
	}
	d.askedHeld = now
	owners := make([]owner, len(d.held))
	for i := range d.held {
		owners[i] = d.held[i].owner
	}
	gone := make(map[int]bool)
	for _, o := range d.live.dead(owners) {
		gone[o.chunk] = true
	}
	return gone
}
