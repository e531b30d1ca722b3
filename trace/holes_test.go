package trace

import (
	"encoding/binary"
	"io"
	"maps"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
)

// A sparseFile is a file of a few pieces with holes between them, which counts what is read of it.
type sparseFile struct {
	pieces map[int64][]byte
	size   int64
	read   int64
}

func (f *sparseFile) ReadAt(b []byte, off int64) (int, error) {
	n := int(min(int64(len(b)), max(0, f.size-off)))
	clear(b[:n])
	for at, p := range f.pieces {
		if at < off+int64(n) && off < at+int64(len(p)) {
			copy(b[max(0, at-off):n], p[max(0, off-at):])
		}
	}
	f.read += int64(n) + 64 // a read costs something, however little it brings
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// Seek knows SEEK_DATA, in blocks of 4 KiB.
func (f *sparseFile) Seek(off int64, whence int) (int64, error) {
	if whence != unix.SEEK_DATA {
		return 0, unix.EINVAL
	}
	f.read += 64
	for _, at := range slices.Sorted(maps.Keys(f.pieces)) {
		if end := (at + int64(len(f.pieces[at])) + 4095) &^ 4095; off < end {
			return max(off, at&^4095), nil
		}
	}
	return 0, unix.ENXIO
}

// chunk is a chunk header of the test's image.
func holeChunk(kind ChunkKind, size, tid int, payload ...uint64) []byte {
	b := appendChunkHeader(nil, kind, TaskID{PID: 1, TID: tid, Image: testImage, Comm: "t"}, 0, 1000, 1000)
	binary.LittleEndian.PutUint32(b[format.CSize:], uint32(size))
	if kind == ChunkProfile {
		binary.LittleEndian.PutUint32(b[format.CFirst:], 1)
	}
	for _, v := range payload {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// TestHoles: what a file takes follows from its data, not from its size.
func TestHoles(t *testing.T) {
	const tib = 1 << 40
	const entry, exit = 1<<32 | 1100, (1|1<<31)<<32 | 1200
	header := func(layout Layout) []byte {
		return AppendHeader(nil, Header{Counter: 1000, Monotonic: 1000, CounterHz: 1e9, Layout: layout})
	}
	pool := func(chunks, small uint32, states ...uint32) []byte {
		b := header(0)
		le := binary.LittleEndian
		le.PutUint32(b[format.HHeaderSize:], 0xfffff000)
		le.PutUint32(b[format.HChunks:], chunks)
		le.PutUint32(b[format.HSmallChunks:], small)
		le.PutUint32(b[format.HSmallSize:], minChunkSize)
		for i, s := range states {
			le.PutUint32(b[format.StatesOff+4*i:], s)
		}
		return b
	}
	state := binary.LittleEndian.AppendUint32(nil, 1)
	for _, c := range []struct {
		name   string
		size   int64
		pieces map[int64][]byte
		calls  uint64
	}{
		{"packed", 8 * tib, map[int64][]byte{0: header(LayoutPacked)}, 0},
		{"packed, chunk behind a hole", 8 * tib, map[int64][]byte{
			0: header(LayoutPacked), 5 * tib: holeChunk(ChunkEvents, 144, 1, entry, exit)}, 1},
		{"slots", 8 * tib, map[int64][]byte{
			0: header(0), 4096 + 7*tib: holeChunk(ChunkEvents, 0, 1, entry, exit)}, 1},
		{"chunk of holes", 8 * tib, map[int64][]byte{
			0: header(LayoutPacked), 4096: holeChunk(ChunkEvents, 0xfffffff8, 1, entry),
			4096 + 0xf0000000: binary.LittleEndian.AppendUint64(nil, exit)}, 1},
		{"profile of holes", 8 * tib, map[int64][]byte{
			0: header(LayoutPacked), 4096: holeChunk(ChunkProfile, 0xffffff80, 1, 3, 0, 0, 0)}, 3},
		{"pool", 8 * tib, map[int64][]byte{
			0: pool(1<<30-4096, 0, 0, 1), 0xfffff000 + DefaultChunkSize: holeChunk(ChunkEvents, 0, 1, entry, exit)}, 1},
		{"pool, small chunks", 1 << 62, map[int64][]byte{
			0: pool(1<<29, 1<<29-4096), format.StatesOff + 4<<29 + 40: state,
			0xfffff000 + DefaultChunkSize<<29 + 10*minChunkSize: holeChunk(ChunkEvents, 0, 1, entry, exit)}, 1},
	} {
		f := &sparseFile{pieces: c.pieces, size: c.size}
		tr := &Trace{}
		if err := tr.load(f, f.size, noNames); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		rows, err := tr.Report(ReportOptions{})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		calls := uint64(0)
		for _, r := range rows {
			calls += r.Calls
		}
		if calls != c.calls {
			t.Errorf("%s: %d calls, want %d; problems %v", c.name, calls, c.calls, tr.Problems)
		}
		if err := tr.Walk(WalkOptions{}, func(*Event) error { return nil }); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if f.read > 2<<20 {
			t.Errorf("%s: read %d bytes", c.name, f.read)
		}
	}
}
