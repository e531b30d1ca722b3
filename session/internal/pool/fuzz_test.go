//go:build linux

package pool

import (
	"bytes"
	"testing"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/trace"
)

// Whatever a traced process puts into a chunk, the drainer survives it.
func FuzzChunk(f *testing.F) {
	f.Add([]byte("path=/bin/x\x00bias=0x1000\x00nsites=12\x00cmdline=a\x1fb\x1f\x00mode=profile\x00"))
	f.Add(bytes.Repeat([]byte{1, 0, 0, 0, 0, 0, 0xff, 0x7f, 2, 0, 0, 0, 9, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x80}, 9))
	f.Add(bytes.Repeat([]byte{1, 2, 3, 4, 6, 0, 0xff, 0x7f}, 5))
	f.Fuzz(func(t *testing.T, payload []byte) {
		b := make([]byte, format.ChunkSize)
		le.PutUint32(b, format.ChunkMagic)
		n := copy(b[format.ChunkHeader:], payload)
		used := Seal(b)
		if used < format.ChunkHeader || used > len(b) || used > format.ChunkHeader+n+7 {
			t.Fatalf("%d bytes used of %d", used, n)
		}
		got, _ := CountEvents(b[format.ChunkHeader:used])
		if want := countSlowly(b[format.ChunkHeader:used]); got != want {
			t.Errorf("%d events, want %d", got, want)
		}
		im, _ := trace.ParseImage(1, payload)
		if im.Sites < 0 || im.Sites > format.IDMax {
			t.Errorf("%d sites", im.Sites)
		}
	})
}
