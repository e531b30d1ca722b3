package trace

import (
	"encoding/binary"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// A bigFile is an events file that is too large to exist: every chunk is made
// from one when it is read, with its own number and time.
type bigFile struct {
	header []byte
	chunk  []byte
	n      int64 // chunks
	ticks  uint64
	tasks  int64
}

func newBigFile(size int64, tasks int) *bigFile {
	f := &bigFile{header: AppendHeader(nil, Header{Layout: LayoutPacked, Counter: 1, CounterHz: 1e9}), tasks: int64(tasks)}
	f.chunk = appendChunkHeader(nil, ChunkEvents, TaskID{PID: 1, TID: 1, Image: 1, Comm: "big"}, 0, 0, 0)
	var stack []uint64
	for i := uint64(0); len(f.chunk) < DefaultChunkSize; i++ {
		w := entry(uint32(20*i), i%500+1)
		if left := (DefaultChunkSize - len(f.chunk)) / 8; len(stack) > 0 && (i%5 > 2 || len(stack) >= left) {
			w = exitOf(uint32(20*i), stack[len(stack)-1])
			stack = stack[:len(stack)-1]
		} else {
			stack = append(stack, i%500+1)
		}
		f.chunk = binary.LittleEndian.AppendUint64(f.chunk, w)
		f.ticks = 20 * i
	}
	f.ticks += 20
	binary.LittleEndian.PutUint32(f.chunk[format.CSize:], uint32(len(f.chunk)))
	f.n = (size - int64(len(f.header))) / DefaultChunkSize
	return f
}

func (f *bigFile) size() int64 { return int64(len(f.header)) + f.n*DefaultChunkSize }

// ReadAt is only good for reads that do not cross a chunk's border, as all are.
func (f *bigFile) ReadAt(b []byte, off int64) (int, error) {
	if off < int64(len(f.header)) {
		return copy(b, f.header[off:]), nil
	}
	off -= int64(len(f.header))
	i := off / DefaultChunkSize
	if i >= f.n {
		return 0, io.EOF
	}
	n := copy(b, f.chunk[off%DefaultChunkSize:])
	if off%DefaultChunkSize == 0 && n >= ChunkHeaderSize {
		binary.LittleEndian.PutUint32(b[format.CTID:], uint32(1+i%f.tasks))
		binary.LittleEndian.PutUint32(b[format.CNumber:], uint32(i/f.tasks))
		// One wrap of the low half a chunk, so that the words need no change.
		binary.LittleEndian.PutUint64(b[format.CCounter:], uint64(i/f.tasks)<<32)
		binary.LittleEndian.PutUint64(b[format.CMonotonic:], uint64(i/f.tasks)<<32)
	}
	return n, nil
}

// TestMemory reads a large trace in every way and looks at the memory that takes.
// FENTRY_WIDE=1 makes it 10 GB.
func TestMemory(t *testing.T) {
	size, limit := int64(96<<20), uint64(24<<20)
	if testtool.Wide() {
		size = 10 << 30
	}
	f := newBigFile(size, 8)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	tr := &Trace{}
	if err := tr.load(f, f.size(), noNames); err != nil {
		t.Fatal(err)
	}
	if len(tr.Problems) > 0 || len(tr.Tasks) != 8 || int64(tr.Chunks) != f.n {
		t.Fatalf("%d tasks, %d chunks, problems %v", len(tr.Tasks), tr.Chunks, tr.Problems)
	}
	words := uint64(f.n) * uint64(len(f.chunk)-ChunkHeaderSize) / 8
	check := func(what string, start time.Time) {
		t.Helper()
		runtime.GC()
		runtime.ReadMemStats(&after)
		used := int64(after.HeapAlloc) - int64(before.HeapAlloc)
		sys := after.Sys - before.Sys
		t.Logf("%s: %.0f M events/s, %d KiB in use, %d KiB from the system", what, float64(words)/1e6/time.Since(start).Seconds(), used>>10, sys>>10)
		if sys > limit {
			t.Errorf("%s took %d bytes for a trace of %d", what, sys, size)
		}
	}
	start := time.Now()
	rows, err := tr.Report(ReportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var calls uint64
	for _, r := range rows {
		calls += r.Calls
		if r.Unfinished+r.NoEntry+r.Unwound != 0 {
			t.Fatalf("%+v", r)
		}
	}
	if calls != words/2 {
		t.Errorf("%d calls, want %d", calls, words/2)
	}
	check("report", start)
	start = time.Now()
	if _, err := tr.Graph(GraphOptions{}); err != nil {
		t.Fatal(err)
	}
	check("graph", start)
	start = time.Now()
	var events uint64
	if err := tr.Walk(WalkOptions{}, func(*Event) error { events++; return nil }); err != nil {
		t.Fatal(err)
	}
	if events != words {
		t.Errorf("%d events, want %d", events, words)
	}
	check("walk", start)
}
