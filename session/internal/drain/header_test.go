//go:build linux

package drain

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
)

// A program that changes the header of a chunk after it was checked changes nothing of
// what the file says about where the chunk ends.
func TestHeaderIsCopied(t *testing.T) {
	h := newHeldPool(t)
	h.full(0, unix.Gettid())
	c, ok := h.d.inspect(0)
	if !ok {
		t.Fatal("the chunk makes no sense")
	}
	want := c.head
	clear(h.d.p.Chunk(0)[:format.ChunkHeader])
	h.d.batch = append(h.d.batch, c)
	h.d.flush()
	b, err := os.ReadFile(h.d.w.f.Name())
	if err != nil {
		t.Fatal(err)
	}
	if len(b) != format.ChunkSize || string(b[:format.ChunkHeader]) != string(want[:]) {
		t.Errorf("%d bytes, header %x, want %x", len(b), b[:min(len(b), format.ChunkHeader)], want)
	}
}
