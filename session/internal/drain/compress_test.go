//go:build linux

package drain

import (
	"bytes"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/columns"
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/trace"
)

// stored are the kinds of the chunks in the file, in its order. Compressed ones are those that they stand for.
func (h *heldPool) stored() (kinds []trace.ChunkKind) {
	h.Helper()
	b, err := os.ReadFile(h.d.w.f.Name())
	if err != nil {
		h.Fatal(err)
	}
	d, err := columns.NewDecoder()
	if err != nil {
		h.Fatal(err)
	}
	for len(b) > 0 {
		size := le.Uint32(b[format.CSize:])
		kind := trace.ChunkKind(le.Uint16(b[format.CKind:]))
		kinds = append(kinds, kind)
		if kind == trace.ChunkCompressed {
			words := make([]byte, le.Uint32(b[format.CPlain:])-format.ChunkHeader)
			err := d.Decode(words, b[format.ChunkHeader:size], le.Uint64(b[format.CCounter:]))
			if want := bytes.Repeat(le.AppendUint64(nil, 7<<32|1), perChunk); err != nil || !bytes.Equal(words, want) {
				h.Errorf("%v: % x", err, words[:min(64, len(words))])
			}
		}
		b = b[size:]
	}
	return kinds
}

func (h *heldPool) compressing(idle bool) *Compressor {
	h.Helper()
	c, err := NewCompressor(idle)
	if err != nil {
		h.Fatal(err)
	}
	h.d.Compress = c
	return c
}

func count(kinds []trace.ChunkKind, want trace.ChunkKind) (n int) {
	for _, k := range kinds {
		if k == want {
			n++
		}
	}
	return n
}

// While chunks are free, those that are written are compressed.
func TestCompress(t *testing.T) {
	h := newHeldPool(t)
	h.compressing(false)
	for i := range 8 {
		h.full(i, unix.Gettid())
	}
	h.round(8 * perChunk)
	if k := h.stored(); len(k) != 8 || count(k, trace.ChunkCompressed) != 8 || h.d.stats.Compressed != 8 {
		t.Errorf("kinds %v, %d said to be compressed", k, h.d.stats.Compressed)
	}
}

// Nothing is compressed while tasks wait for a chunk, or soon might; afterwards it is again.
func TestCompressKeepsUp(t *testing.T) {
	h := newHeldPool(t)
	h.compressing(false)
	waiters := h.d.p.Word(format.HWaiters)
	waiters.Store(1)
	h.full(0, unix.Gettid())
	h.round(perChunk)
	waiters.Store(0)
	if k := h.stored(); len(k) != 1 || k[0] != trace.ChunkEvents {
		t.Errorf("a task waits: kinds %v", k)
	}
	for i := range h.d.p.N - 3 {
		h.full(i, unix.Gettid())
	}
	h.round((h.d.p.N - 2) * perChunk)
	k := h.stored()[1:]
	plain := count(k, trace.ChunkEvents)
	// One batch of plain chunks is all that there was, and what is written makes room.
	if len(k) != h.d.p.N-3 || plain == 0 || k[0] != trace.ChunkEvents {
		t.Errorf("three chunks were free: kinds %v", k)
	}
	h.full(0, unix.Gettid())
	h.round((h.d.p.N - 1) * perChunk)
	if k := h.stored(); k[len(k)-1] != trace.ChunkCompressed {
		t.Errorf("all are free again: kinds %v", k)
	}
}

// A compressor for idle processors rests after it had to wait for one; the other does not.
func TestCompressRests(t *testing.T) {
	h := newHeldPool(t)
	c := h.compressing(true)
	c.until = time.Now().Add(time.Hour)
	h.full(0, unix.Gettid())
	h.round(perChunk)
	c.until = time.Time{}
	h.full(0, unix.Gettid())
	h.round(2 * perChunk)
	if k := h.stored(); len(k) != 2 || k[0] != trace.ChunkEvents || k[1] != trace.ChunkCompressed {
		t.Errorf("kinds %v", k)
	}
}

// Chunks that would not become smaller are written as they are, and what is no event, too.
func TestCompressNotSmaller(t *testing.T) {
	h := newHeldPool(t)
	h.compressing(false)
	h.full(0, unix.Gettid())
	le.PutUint32(h.d.p.Chunk(0)[format.CSize:], format.ChunkHeader+8)
	h.round(1)
	if k := h.stored(); len(k) != 1 || k[0] != trace.ChunkEvents {
		t.Errorf("kinds %v", k)
	}
}
