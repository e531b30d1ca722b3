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
