//go:build linux

package drain

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/trace"
)

// TestMove: a mark moves with all that is written, and with nothing else.
func TestMove(t *testing.T) {
	h := newHeldPool(t)
	h.d.policy = trace.PolicyOverwrite
	const event = 7<<32 | 1
	record := func(open bool) uint64 {
		return uint64(format.Record{Type: format.RecSync, Words: 1, Open: open}.ID()) << 32
	}
	size := func(i, n int) { le.PutUint32(h.d.p.Chunk(i)[format.CSize:], uint32(n)) }
	var m Mark
	for _, step := range []struct {
		name  string
		do    func()
		moves bool
	}{
		{"at the beginning", func() {}, true},
		{"a chunk is begun", func() {
			h.full(3, unix.Gettid())
			size(3, 0)
			clear(h.d.p.Chunk(3)[format.ChunkHeader:])
			h.d.p.State(3).Store(format.StateOwned)
		}, true},
		{"an event", func() { h.slot(3, 0, event) }, true},
		{"the second slot of two", func() { h.slot(3, 2, event) }, false},
		{"the first one", func() { h.slot(3, 1, event) }, true},
		{"a record that is open", func() { h.slot(3, 3, record(true)) }, false},
		{"its payload", func() { h.slot(3, 4, 5) }, false},
		{"it is closed", func() { h.slot(3, 3, record(false)) }, true},
		{"a chunk is taken, and has no header", func() { h.d.p.State(1).Store(format.StateOwned) }, false},
		{"it is another task's", func() { h.full(1, unix.Gettid()) }, true},
		{"a chunk ends where it is written to", func() {
			size(3, format.ChunkHeader+5*8)
			h.d.p.State(3).Store(format.StateFull)
		}, false},
		{"it is used again, and is as long", func() {
			h.full(3, unix.Gettid())
			size(3, format.ChunkHeader+5*8)
		}, true},
		{"it is free", func() { h.d.p.Release(3, format.ChunkSize) }, true},
		{"a chunk that is none of events", func() {
			h.full(2, unix.Gettid())
			le.PutUint16(h.d.p.Chunk(2)[format.CKind:], uint16(trace.ChunkImage))
		}, true},
	} {
		step.do()
		if moved := h.d.Move(&m); moved != step.moves {
			t.Errorf("%s: the mark moves: %t", step.name, moved)
		}
		if h.d.Move(&m) {
			t.Errorf("%s: the mark moves again", step.name)
		}
	}
}
