//go:build linux

package drain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/cost"
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/adapt"
	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/session/internal/pool"
	"github.com/fentry-dev/fentry/session/internal/procfs"
	"github.com/fentry-dev/fentry/trace"
)

// FuzzPool: whatever traced processes put into the pool, what the drainer writes is a trace without a mistake.
func FuzzPool(f *testing.F) {
	const chunks = 6
	chunk := func(kind trace.ChunkKind, size, pid, number, counter uint32, payload ...uint64) []byte {
		b := make([]byte, format.ChunkHeader)
		le.PutUint32(b[format.CMagic:], format.ChunkMagic)
		le.PutUint16(b[format.CKind:], uint16(kind))
		le.PutUint32(b[format.CSize:], size)
		le.PutUint32(b[format.CPID:], pid)
		le.PutUint32(b[format.CTID:], pid)
		le.PutUint32(b[format.CNumber:], number)
		le.PutUint64(b[format.CCounter:], uint64(counter))
		for _, w := range payload {
			b = le.AppendUint64(b, w)
		}
		return b
	}
	self := uint32(os.Getpid())
	events := chunk(trace.ChunkEvents, 0, self, 1, 50, 1<<32|1, 1<<63|1<<32|2, 0, 2<<32|9)
	image := append(chunk(trace.ChunkImage, 0, self, 0, 0), "path=/bin/x\x00nsites=12\x00"...)
	f.Add([]byte{2, 2, 1, 0, 3, 2}, events, image, byte(0))
	f.Add([]byte{2, 2, 2, 2, 2, 2}, events, chunk(trace.ChunkEvents, format.ChunkSize, 1<<31, 0, 40, 5<<32), byte(2))
	f.Add([]byte{1, 2}, events, chunk(trace.ChunkCompressed, 0, self, 1, 50), byte(1)) // which programs do not write
	f.Add([]byte{1, 1, 2, 2, 9, 2}, chunk(trace.ChunkProfile, 1<<20, 1, 0, 9, 7), chunk(trace.ChunkEvents, 8, 0, 0, 40), byte(1))
	p, err := pool.New(chunks*format.ChunkSize, trace.PolicyBlock, clock.Reading{}, 1)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(p.Close)
	// The events below are of functions of an image.
	p.Word64(int(p.Word(format.HRanges).Load()) + format.RImage).Store(7)
	p.Word(int(p.Word(format.HRanges).Load()) + format.RFirst).Store(1)
	p.Word(int(p.Word(format.HRanges).Load()) + format.RCount).Store(1 << 20)
	dir := f.TempDir()
	file, err := os.Create(filepath.Join(dir, trace.EventsFile))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { file.Close() })
	header := make([]byte, format.HeaderSize)
	f.Fuzz(func(t *testing.T, states, one, two []byte, policy byte) {
		for i := range p.All {
			p.State(i).Store(format.StateWriting)
			p.Release(i, len(p.Chunk(i)))
		}
		for i := range chunks {
			from := [][]byte{one, two}[i%2]
			copy(p.Chunk(i), from)
			if i >= 2 && len(states) > 0 { // not all alike
				p.Chunk(i)[int(states[0])%len(p.Chunk(i))] ^= byte(i)
			}
			if i < len(states) {
				p.State(i).Store(uint32(states[i]))
			}
		}
		if err := file.Truncate(0); err != nil {
			t.Fatal(err)
		}
		pool.PutHeader(header, 0, format.HeaderSize, trace.Policy(policy%3), trace.LayoutPacked, 1, clock.Reading{}, 1e9)
		if _, err := file.Seek(0, 0); err != nil {
			t.Fatal(err)
		}
		w := &File{f: file}
		if _, err := w.write([]stored{{head: header}}); err != nil {
			t.Fatal(err)
		}
		d := New(p, w, trace.Policy(policy%3), NewLiveness(procfs.SharedFile{}))
		images := 0
		d.OnImage = func(trace.ImageID, int, []byte) { images++ }
		d.OnWriteError = func(err error) { t.Error(err) }
		m := adapt.New(adapt.Options{Limit: 1e-9, Event: 1e6, Window: 1}, clock.Reading{Counter: 1, Monotonic: 1})
		m.Tick(clock.Reading{Counter: 2, Monotonic: 1e9})
		d.Adapt = &Adapt{Meter: m, May: func(trace.ImageID) bool { return true }}
		list := p.RoomOff()
		cost.Check(t, chunks*format.ChunkSize, 20, func() {
			d.round(false)
			d.adapt()
			d.reclaim()
			d.Last(policy&4 != 0)
		})
		tr, err := trace.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		for _, err := range tr.Problems {
			// A mistake in what an image says of itself, or a kind of chunk that a later runtime may have.
			s := err.Error()
			if !strings.Contains(s, "image chunk") && !strings.Contains(s, "no symbols") && !strings.Contains(s, "not known and skipped") {
				t.Error(err)
			}
		}
		if n := list - p.RoomOff(); n != d.stats.SwitchedOff || len(tr.SwitchedOff) > n {
			t.Errorf("%d functions are switched off, %d listed, %d read", d.stats.SwitchedOff, n, len(tr.SwitchedOff))
		}
		if uint64(tr.Chunks) != d.stats.Chunks || tr.Bytes != w.size-format.HeaderSize {
			t.Errorf("%d chunks of %d bytes are written, %d of %d read", d.stats.Chunks, w.size-format.HeaderSize, tr.Chunks, tr.Bytes)
		}
		if images > int(d.stats.Chunks) {
			t.Errorf("%d images in %d chunks", images, d.stats.Chunks)
		}
		for i := range chunks {
			if s := p.State(i).Load(); s == format.StateFull || policy&4 != 0 && s == format.StateOwned && pool.AtomicMagic(p.Chunk(i)) == format.ChunkMagic {
				t.Errorf("chunk %d is left in state %d", i, s)
			}
		}
	})
}
