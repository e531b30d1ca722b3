//go:build linux

package drain

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/session/internal/pool"
	"github.com/fentry-dev/fentry/session/internal/procfs"
	"github.com/fentry-dev/fentry/trace"
)

// perChunk is how many events a full chunk holds.
const perChunk = (format.ChunkSize - format.ChunkHeader) / 8

// heldPool is a pool of 32 chunks, of which 4 may be held, and its drainer.
type heldPool struct {
	*testing.T
	d     *Drainer
	tasks uint32
}

func newHeldPool(t *testing.T) *heldPool {
	p, err := pool.New(32*format.ChunkSize, trace.PolicyBlock, clock.Reading{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	f, err := os.Create(filepath.Join(t.TempDir(), "events"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	// The task that all chunks are said to be of must live.
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	return &heldPool{T: t, d: New(p, &File{f: f}, trace.PolicyBlock, NewLiveness(procfs.SharedFile{}))}
}

// full fills chunk i with events of this thread, but for the slots given, and
// hands it over.
func (h *heldPool) full(i, tid int, unwritten ...int) {
	b := h.d.p.Chunk(i)
	h.tasks++
	le.PutUint16(b[format.CKind:], uint16(trace.ChunkEvents))
	le.PutUint32(b[format.CSize:], format.ChunkSize)
	le.PutUint32(b[format.CPID:], uint32(os.Getpid()))
	le.PutUint32(b[format.CTID:], uint32(tid))
	le.PutUint32(b[format.CNumber:], h.tasks)
	le.PutUint64(b[format.CCounter:], uint64(h.tasks))
	le.PutUint32(b[format.CMagic:], format.ChunkMagic)
	for k := range perChunk {
		h.slot(i, k, 7<<32|1)
	}
	for _, k := range unwritten {
		h.slot(i, k, 0)
	}
	h.d.p.State(i).Store(format.StateFull)
}

func (h *heldPool) slot(i, k int, word uint64) {
	le.PutUint64(h.d.p.Chunk(i)[format.ChunkHeader+8*k:], word)
}

// round drains, a while after the last time, and checks how much is in the file
// and which chunks are held.
func (h *heldPool) round(events int, held ...int) {
	h.Helper()
	h.d.lookedAtHeld = time.Time{}
	h.d.round(false)
	if h.d.stats.Events != uint64(events) {
		h.Errorf("%d events written, want %d", h.d.stats.Events, events)
	}
	want := map[int]bool{}
	for _, i := range held {
		want[i] = true
	}
	for i := range h.d.p.N {
		switch s := h.d.p.State(i).Load(); {
		case want[i] && s != format.StateWriting:
			h.Errorf("chunk %d is in state %d, not held", i, s)
		case !want[i] && s != format.StateFree:
			h.Errorf("chunk %d is in state %d, not free", i, s)
		}
	}
}

// A chunk with a slot that is not written yet is written when that is.
func TestHeldUntilWritten(t *testing.T) {
	h := newHeldPool(t)
	h.full(0, unix.Gettid())
	h.full(1, unix.Gettid(), 5, perChunk-1)
	h.round(perChunk, 1)
	h.round(perChunk, 1)
	h.slot(1, 5, 9<<32|1)
	h.round(perChunk, 1)
	h.slot(1, perChunk-1, 9<<32|1)
	h.round(2 * perChunk)
}

// Nobody will write what a dead task has not written.
func TestHeldByDead(t *testing.T) {
	h := newHeldPool(t)
	const nobody = 1 << 22 // more than the largest id there can be
	h.full(0, nobody, 5)
	h.full(1, unix.Gettid(), 5)
	h.round(0, 0, 1)
	h.round(perChunk-1, 1)
}

// Held chunks never keep a task waiting, and never are more than a part of the pool.
func TestHeldLimits(t *testing.T) {
	h := newHeldPool(t)
	for i := range 6 {
		h.full(i, unix.Gettid(), 5)
	}
	h.round(0, 0, 1, 2, 3, 4, 5)
	h.round(2*(perChunk-1), 2, 3, 4, 5)
	h.d.p.Word(format.HWaiters).Store(1)
	h.d.round(false) // at once
	h.d.p.Word(format.HWaiters).Store(0)
	h.round(6 * (perChunk - 1))
	h.full(0, unix.Gettid(), 5)
	h.round(6*(perChunk-1), 0)
	h.full(1, unix.Gettid(), 5)
	h.d.Last(true)
	h.round(8 * (perChunk - 1))
}

// A task that goes on to its next chunk while the last ones are drained has recorded all of what comes first: that which it had
// before is there in full, or was copied after the one behind it.
func TestLastSteps(t *testing.T) {
	const some = 3
	begun := func(h *heldPool, i, n int) {
		h.full(i, unix.Gettid())
		for k := n; k < perChunk; k++ {
			h.slot(i, k, 0)
		}
		h.d.p.State(i).Store(format.StateOwned)
	}
	for name, test := range map[string]struct {
		before, meanwhile func(h *heldPool)
		events            int
	}{
		"it stays":            {func(h *heldPool) { begun(h, 0, some) }, func(*heldPool) {}, some},
		"the step was before": {func(h *heldPool) { h.full(0, unix.Gettid()); begun(h, 1, some) }, func(*heldPool) {}, perChunk + some},
		"it comes meanwhile": {func(h *heldPool) { begun(h, 0, some) }, func(h *heldPool) {
			for k := some; k < perChunk; k++ {
				h.slot(0, k, 7<<32|1)
			}
			h.d.p.State(0).Store(format.StateFull)
			begun(h, 1, some)
		}, perChunk},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHeldPool(t)
			h.d.End()
			test.before(h)
			copies := h.d.copyOwned()
			test.meanwhile(h)
			h.d.round(true)
			h.d.keepCopies(copies)
			if h.d.stats.Events != uint64(test.events) {
				t.Errorf("%d events written, want %d", h.d.stats.Events, test.events)
			}
		})
	}
}
