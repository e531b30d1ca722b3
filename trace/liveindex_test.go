package trace

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// A growingTrace has the files of a trace that is written bit by bit.
type growingTrace struct {
	dir                  string
	events, list         []byte
	eventsFile, listFile *os.File
	index                *os.File
}

// calmTrace is a trace of tasks that lose nothing and fork none.
func calmTrace(t *testing.T, rng *rand.Rand) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, Header{Counter: 1000, CounterHz: 1e9, ChunkSize: minChunkSize})
	if err != nil {
		t.Fatal(err)
	}
	w.WriteImage(Image{ID: testImage, Path: "/bin/prog", Sites: 20})
	w.WriteMap(1, 1000, []MapEntry{{First: 1, Count: 20, Image: testImage}})
	var ks []*TaskWriter
	for i := range 3 {
		ks = append(ks, w.Task(TaskID{PID: 1, TID: 1 + i, Key: uint64(i), Image: testImage}))
	}
	calls := make([][]uint32, len(ks))
	for now := uint64(1000); now < 40000; now++ {
		i := rng.IntN(len(ks))
		if n := len(calls[i]); n == 0 || n < 20 && rng.IntN(2) == 0 {
			fn := uint32(1 + rng.IntN(20))
			ks[i].Enter(now, fn)
			calls[i] = append(calls[i], fn)
		} else {
			ks[i].Exit(now, calls[i][n-1])
			calls[i] = calls[i][:n-1]
		}
	}
	for _, k := range ks {
		k.Flush()
	}
	return b.Bytes()
}

// growing returns a trace that is recorded: none of its bytes are there but the header.
func growing(t *testing.T, events []byte) *growingTrace {
	t.Helper()
	g := &growingTrace{dir: t.TempDir(), events: events}
	id := format.IdentityOf(g.events)
	tr := &Trace{}
	if err := tr.load(bytes.NewReader(g.events), int64(len(g.events)), noNames); err != nil {
		t.Fatal(err)
	}
	for off := tr.Header.Size; off < int64(len(g.events)); {
		var ch chunkHead
		if !parseChunkHead(g.events[off:], &ch) {
			t.Fatalf("no chunk at %#x", off)
		}
		g.list = format.AppendIndex(g.list, id, g.events[off:off+ChunkHeaderSize], off)
		off += int64(ch.size)
	}
	for name, f := range map[string]**os.File{EventsFile: &g.eventsFile, ChunksFile: &g.listFile, IndexFile: &g.index} {
		var err error
		if *f, err = os.Create(filepath.Join(g.dir, name)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { (*f).Close() })
	}
	if _, err := g.eventsFile.Write(g.events[:tr.Header.Size]); err != nil {
		t.Fatal(err)
	}
	return g
}

// grow writes more of the files: the list follows the events, and its last entry may not be whole.
func (g *growingTrace) grow(t *testing.T, events, list int) {
	t.Helper()
	_, err := g.eventsFile.WriteAt(g.events[:events], 0)
	_, lerr := g.listFile.WriteAt(g.list[:list], 0)
	if err := errors.Join(err, lerr); err != nil {
		t.Fatal(err)
	}
}

// TestIndexMaker: what a recorder has written of the index, wherever it was stopped or killed, is what a reader would
// have written, and is gone on with.
func TestIndexMaker(t *testing.T) {
	seeds := uint64(12)
	if testtool.Wide() {
		seeds = 500
	}
	wholes, parts := 0, 0
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 23))
		events := wildTrace(t, 2*seed+1)
		if seed%2 == 0 {
			events = calmTrace(t, rng)
		}
		if seed%4 == 0 {
			events = compressed(t, events, func(i int) bool { return i%3 > 0 })
		}
		g := growing(t, events)
		m, err := NewIndexMaker(g.eventsFile, g.listFile, g.index)
		if err != nil {
			t.Fatal(err)
		}
		m.sizes = blockSizes{50 + rng.IntN(300), rng.IntN(4), 1 + rng.IntN(6), 1 << 20}
		part := []int{3, 100}[rng.IntN(2)]
		killed, slow := rng.IntN(3) == 0, rng.IntN(3) == 0
		for events, list := 0, 0; list < len(g.list); {
			events = min(len(g.events), max(events, int(m.t.Header.Size))+rng.IntN(len(g.events)/part))
			for list < len(g.list) && len(g.list[list:]) >= ChunkHeaderSize {
				if end := listedEnd(g.list[list:]); end > events {
					break
				}
				list += ChunkHeaderSize
			}
			g.grow(t, events, min(len(g.list), list+rng.IntN(2)*77))
			if killed && list > len(g.list)/2 {
				break
			}
			for n := 0; !slow || n < 2; n++ {
				more, err := m.Step()
				if err != nil {
					t.Fatal(err)
				}
				if !more {
					break
				}
			}
		}
		g.grow(t, len(g.events), len(g.list))
		if !killed {
			for more := !slow; more; {
				if more, err = m.Step(); err != nil {
					t.Fatal(err)
				}
			}
			if err := m.Close(true); err != nil {
				t.Fatal(err)
			}
		}
		wholes, parts = wholes+g.compare(t, rng), parts+1
	}
	if wholes == 0 || wholes == parts {
		t.Errorf("%d of %d indexes were whole", wholes, parts)
	}
}

// listedEnd is where the chunk of an entry ends.
func listedEnd(entry []byte) int {
	var ch chunkHead
	parseChunkHead(entry, &ch)
	off, _ := format.IndexOffset(format.Identity{}, entry)
	return int(off) + int(ch.size)
}

// compare compares what is shown with the index, and without. It returns 1 if the index is whole.
func (g *growingTrace) compare(t *testing.T, rng *rand.Rand) (whole int) {
	t.Helper()
	plain, indexed := &Trace{}, open(t, g.dir)
	defer indexed.Close()
	if err := plain.load(bytes.NewReader(g.events), int64(len(g.events)), noNames); err != nil {
		t.Fatal(err)
	}
	switch {
	case indexed.blocks != nil:
		whole = 1
		tb, err := indexed.blocks.states(indexed.Tasks[0])
		if err != nil || len(tb.blocks) < 5 {
			t.Errorf("%d blocks are too few, %v", len(tb.blocks), err)
		}
	case indexed.part == nil:
		t.Errorf("what the recorder has written is not used: %v", indexed.Problems)
	}
	if ok, err := indexed.MakeIndex(IndexOptions{Memory: true, Block: 100}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for _, o := range randomWindows(rng, plain, 5) {
		o.Calls = randomCalls(rng)
		r := ReportOptions{From: o.From, To: o.To, Tasks: o.Tasks, Calls: o.Calls}
		rows := seeRows(t, plain, r)
		r.Tasks = inTrace(indexed, r.Tasks)
		if have := seeRows(t, indexed, r); have != rows {
			t.Fatalf("%+v: %s", r, cmp.Diff(rows, have))
		}
		o.Calls = Calls{}
		walk := seeWalk(plain, o)
		o.Tasks = inTrace(indexed, o.Tasks)
		if have := seeWalk(indexed, o); have != walk {
			t.Fatalf("%+v: %s", o, cmp.Diff(walk, have))
		}
	}
	return whole
}
