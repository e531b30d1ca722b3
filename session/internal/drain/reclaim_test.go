//go:build linux

package drain

import (
	"testing"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/trace"
)

// TestMakeRoom: when the newest events are to be kept, the oldest full chunks make room,
// but not those that say what events mean.
func TestMakeRoom(t *testing.T) {
	h := newHeldPool(t)
	for i := range h.d.p.N {
		h.full(i, 1)
	}
	le.PutUint16(h.d.p.Chunk(0)[format.CKind:], uint16(trace.ChunkMap))
	le.PutUint16(h.d.p.Chunk(2)[format.CKind:], uint16(trace.ChunkImage))
	h.d.free = 0
	h.d.makeRoom()
	for i := range h.d.p.N {
		want := uint32(format.StateFull)
		if i == 1 || i > 2 && i < 6 {
			want = format.StateFree
		}
		if s := h.d.p.State(i).Load(); s != want {
			t.Errorf("chunk %d has state %d, want %d", i, s, want)
		}
	}
	if h.d.stats.Overwrote != 4*perChunk {
		t.Errorf("%d events given up, want %d", h.d.stats.Overwrote, 4*perChunk)
	}
}

// TestUnused: chunks that a dead task has prepared and not come to are free again, and are not in the trace. Its first
// chunk is, also if it is empty.
func TestUnused(t *testing.T) {
	h := newHeldPool(t)
	for i := range 4 {
		h.full(i, 1)
		clear(h.d.p.Chunk(i)[format.ChunkHeader:])
		le.PutUint32(h.d.p.Chunk(i)[format.CSize:], 0)
		le.PutUint32(h.d.p.Chunk(i)[format.CNumber:], uint32(i))
		h.d.p.State(i).Store(format.StateOwned)
	}
	h.slot(1, 0, 7<<32|1)
	gone, _ := h.d.owners(0, 4)
	if left := h.d.leaveUnused(gone); len(left) != 2 || left[0].chunk != 0 || left[1].chunk != 1 {
		t.Errorf("%v are left", left)
	}
	for i, want := range []uint32{format.StateOwned, format.StateOwned, format.StateFree, format.StateFree} {
		if s := h.d.p.State(i).Load(); s != want {
			t.Errorf("chunk %d has state %d, want %d", i, s, want)
		}
	}
}

// TestOverwriteOther: a chunk that was full of old events has been taken back by its thread since it was looked at, and holds newer
// events, or what events mean: it stays.
func TestOverwriteOther(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(chunk []byte)
		is     bool
	}{
		{"the same", func([]byte) {}, true},
		{"newer events", func(b []byte) { le.PutUint64(b[format.CCounter:], le.Uint64(b[format.CCounter:])+1) }, false},
		{"an image", func(b []byte) { le.PutUint16(b[format.CKind:], uint16(trace.ChunkImage)) }, false},
	} {
		h := newHeldPool(t)
		h.full(0, 1)
		counter := h.d.p.Counter(0)
		tt.change(h.d.p.Chunk(0))
		want := uint32(format.StateFull)
		if tt.is {
			want = format.StateFree
		}
		if is := h.d.overwrite(0, counter); is != tt.is || h.d.p.State(0).Load() != want {
			t.Errorf("%s: %t, state %d", tt.name, is, h.d.p.State(0).Load())
		}
	}
}
