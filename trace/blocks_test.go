package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// withBlocks opens the trace twice: without an index, and with one of blocks of the
// given sizes.
func withBlocks(t testing.TB, events []byte, sizes blockSizes) (plain, indexed *Trace) {
	t.Helper()
	for _, tr := range []**Trace{&plain, &indexed} {
		*tr = &Trace{}
		if err := (*tr).load(bytes.NewReader(events), int64(len(events)), noNames); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if indexed.blocks, err = indexed.writeIndex(&memoryFile{}, sizes); err != nil {
		t.Fatal(err)
	}
	return plain, indexed
}

// seeWalk is what a walk shows, in text.
func seeWalk(tr *Trace, o WalkOptions) string {
	var s strings.Builder
	err := tr.Walk(o, func(ev *Event) error {
		seeEvent(&s, ev)
		return nil
	})
	if err != nil {
		fmt.Fprintln(&s, err)
	}
	return s.String()
}

// seeEvent is an event in text.
func seeEvent(s *strings.Builder, ev *Event) {
	e := *ev
	e.Task, e.Sys = nil, nil
	fmt.Fprintf(s, "%d %v %+v", ev.Task.Index, ev.Kind, e)
	for sys := ev.Sys; sys != nil; sys = sys.End {
		fmt.Fprintf(s, " sys %d %x %v", sys.Value, sys.Args, sys.Open)
	}
	s.WriteByte('\n')
}

// randomWindows are random windows of the trace, some where its tasks begin and end.
func randomWindows(rng *rand.Rand, tr *Trace, n int) (out []WalkOptions) {
	last := int64(0)
	var at []int64
	tr.Walk(WalkOptions{}, func(ev *Event) error {
		last = max(last, ev.Time)
		if rng.IntN(100) == 0 {
			at = append(at, ev.Time)
		}
		return nil
	})
	for _, k := range tr.Tasks {
		at = append(at, k.Start)
	}
	for range n {
		o := WalkOptions{Open: rng.IntN(3) > 0}
		o.From = at[rng.IntN(len(at))] + rng.Int64N(3) - 1
		switch rng.IntN(4) {
		case 0:
			o.From = rng.Int64N(last + 100)
		case 1:
			o.From = 0
		}
		o.From = max(o.From, 0)
		switch rng.IntN(4) {
		case 0:
		case 1:
			o.To = o.From + 1 + rng.Int64N(last)
		default:
			o.To = o.From + 1 + rng.Int64N(500)
		}
		if rng.IntN(4) == 0 {
			o.Tasks = []*Task{tr.Tasks[rng.IntN(len(tr.Tasks))]}
		}
		out = append(out, o)
	}
	return out
}

func inTrace(tr *Trace, ks []*Task) []*Task {
	var out []*Task
	for _, k := range ks {
		out = append(out, tr.Tasks[k.Index])
	}
	return out
}

// TestBlocksWalk compares walks of random windows of random traces: with an index they
// show what they show without.
func TestBlocksWalk(t *testing.T) {
	seeds := []uint64{1791} // the second chunk of a block has another name
	n := uint64(6)
	if testtool.Wide() {
		n = 3000
	}
	for seed := range n {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 9))
		events := wildTrace(t, seed)
		for _, sizes := range []blockSizes{{2, 0, 3, 1 << 20}, {200 + rng.IntN(1000), rng.IntN(8), 1 + rng.IntN(9), 1 << 20}} {
			plain, indexed := withBlocks(t, events, sizes)
			for _, o := range randomWindows(rng, plain, 12) {
				want := seeWalk(plain, o)
				o.Tasks = inTrace(indexed, o.Tasks)
				if have := seeWalk(indexed, o); have != want {
					t.Fatalf("seed %d, blocks %+v, %+v: %s", seed, sizes, o, cmp.Diff(want, have))
				}
			}
		}
	}
}

// TestWalkLate: an entry that a task wrote long after later events is in its window, with an index and without. Blocks
// between are not visited.
func TestWalkLate(t *testing.T) {
	const late = 3 << 30
	dir := build(t, func(w *Writer) {
		a, b := w.Task(TaskID{PID: 1, TID: 1, Image: testImage}), w.Task(TaskID{PID: 1, TID: 2, Image: testImage})
		b.Enter(1700, 3)
		b.Exit(1800, 3)
		for i := range uint64(20) {
			at := 1100 + i*late/20
			a.Stack(at, 5)
			a.Enter(at+10, 1)
			a.Exit(at+20, 1)
			a.Stack(at+30, 0)
			a.Flush()
		}
		a.Enter(1500, 2)
		a.Exit(1500+late, 2)
		a.Flush()
		b.Flush()
	})
	events, err := os.ReadFile(filepath.Join(dir, EventsFile))
	if err != nil {
		t.Fatal(err)
	}
	plain, indexed := withBlocks(t, events, blockSizes{2, 0, 3, 1 << 20})
	for _, o := range []WalkOptions{{To: 900}, {From: 400, To: 600}, {From: 50, To: 2000, Open: true}} {
		want := seeWalk(plain, o)
		if !strings.Contains(want, "Time:500") {
			t.Errorf("%+v: the late entry is missing:\n%s", o, want)
		}
		if have := seeWalk(indexed, o); have != want {
			t.Errorf("%+v: %s", o, cmp.Diff(want, have))
		}
	}
}

// TestRoundTicks checks that bounds are never too small, and close.
func TestRoundTicks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	values := []uint64{0, 1, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4097, math.MaxUint64, math.MaxUint64 - 1, 1 << 63}
	for range 10000 {
		values = append(values, rng.Uint64()>>rng.IntN(64))
	}
	for _, v := range values {
		r := ticksOf(roundTicks(v))
		if r < v || float64(r) > float64(v)*1.001 {
			t.Errorf("%d becomes %d", v, r)
		}
		if roundTicks(v) == anyTicks && v != math.MaxUint64 {
			t.Errorf("%d is stored as no bound", v)
		}
	}
}

// indexFiles writes a trace into a directory, and makes its index.
func indexFiles(t testing.TB, seed uint64) (dir string, index []byte) {
	t.Helper()
	dir = eventsFile(t, wildTrace(t, seed))
	tr := open(t, dir)
	if ok, err := tr.MakeIndex(IndexOptions{File: true, Block: 300}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	index, err := os.ReadFile(filepath.Join(dir, IndexFile))
	if err != nil {
		t.Fatal(err)
	}
	return dir, index
}

// TestIndexFile: with the file index, with a part of it, a damaged one or another
// trace's, a window shows the same; nothing is left beside it.
func TestIndexFile(t *testing.T) {
	dir, index := indexFiles(t, 3)
	if names, _ := filepath.Glob(filepath.Join(dir, "index*")); len(names) != 1 {
		t.Error(names)
	}
	path := filepath.Join(dir, IndexFile)
	os.Remove(path)
	plain := open(t, dir)
	rng := rand.New(rand.NewPCG(1, 1))
	shown := randomWindows(rng, plain, 3)
	var want []string
	for _, o := range shown {
		want = append(want, seeWalk(plain, o))
	}
	const ignored, part, whole = "ignored", "part", "whole"
	same := func(what string, b []byte, how string) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		tr := open(t, dir)
		defer tr.Close()
		have := ignored
		switch {
		case tr.blocks != nil:
			have = whole
		case tr.part != nil:
			have = part
		}
		if have != how || (have == ignored) != strings.Contains(fmt.Sprint(tr.Problems), "index") {
			t.Errorf("%s: %s, want %s; %v", what, have, how, tr.Problems)
		}
		see := func() {
			t.Helper()
			for i, o := range shown {
				o.Tasks = inTrace(tr, o.Tasks)
				if have := seeWalk(tr, o); have != want[i] {
					t.Errorf("%s: %s", what, cmp.Diff(want[i], have))
				}
			}
		}
		see()
		if ok, err := tr.MakeIndex(IndexOptions{Memory: true}); !ok || err != nil {
			t.Errorf("%s: not made whole: %v, %v", what, ok, err)
		}
		see()
	}
	same("whole", index, whole)
	heads := segmentHeads(index)
	for _, n := range []int{0, 1, 63, 64, heads[1], heads[1] + 71, heads[len(heads)-1] + 1, len(index) - 1} {
		how := part
		if n < format.IndexHeader {
			how = ignored
		}
		same(fmt.Sprint("cut at ", n), index[:n], how)
	}
	same("with more behind it", append(bytes.Clone(index), "more"...), whole)
	for range 5 {
		flip := func(i int, how string) {
			b := bytes.Clone(index)
			b[i] ^= 1 << rng.IntN(8)
			same(fmt.Sprint("bit of byte ", i), b, how)
		}
		flip(rng.IntN(format.IndexHeader), ignored)
		n := rng.IntN(len(heads)-1) + 1
		flip(heads[n]+rng.IntN(format.SegmentSize), part)
		if at := heads[n] + format.SegmentSize; at < len(index) {
			flip(at, whole) // noticed when it is read
		}
	}
	flipped := bytes.Clone(index)
	flipped[heads[0]+format.SegmentSize+2] ^= 1
	same("another image", flipped, ignored)
	_, other := indexFiles(t, 5)
	copy(other, index[:format.IndexHeader])
	same("another trace's", other, part)
}

// TestIndexOfSlots: a trace that its programs wrote alone has an index, too, which is not used for what they write
// later.
func TestIndexOfSlots(t *testing.T) {
	dir := slotsTrace(t, 3000)
	tr := open(t, dir)
	if ok, err := tr.MakeIndex(IndexOptions{File: true, Block: 100}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	tr.Close()
	calls := Calls{Threshold: 1}
	rows := func(tr *Trace) string { return seeRows(t, tr, ReportOptions{From: 100, Calls: calls}) }
	tr = open(t, dir)
	if tr.blocks == nil {
		t.Error("the index is not used")
	}
	with := rows(tr)
	tr.blocks = nil
	if plain := rows(tr); with != plain {
		t.Error(cmp.Diff(plain, with))
	}
	tr.Close()
	// An event more in a chunk that is not sealed, then more chunks.
	path := filepath.Join(dir, EventsFile)
	for _, grown := range [][]byte{slotsEvents(3001), slotsEvents(5000)} {
		if err := os.WriteFile(path, grown, 0o600); err != nil {
			t.Fatal(err)
		}
		tr = open(t, dir)
		if tr.blocks != nil {
			t.Fatal("an index of less is used")
		}
		plain := rows(tr)
		if ok, err := tr.MakeIndex(IndexOptions{Memory: true}); !ok || err != nil {
			t.Error(ok, err)
		}
		if have := rows(tr); have != plain {
			t.Error(cmp.Diff(plain, have))
		}
		tr.Close()
	}
}

// slotsTrace is a trace of so many calls in a file that its program wrote itself.
func slotsTrace(t *testing.T, calls int) string { return eventsFile(t, slotsEvents(calls)) }

func slotsEvents(calls int) []byte {
	le := binary.LittleEndian
	b := make([]byte, format.HeaderSize)
	copy(b, format.FileMagic)
	le.PutUint32(b[format.HVersion:], format.Version)
	le.PutUint32(b[format.HHeaderSize:], format.HeaderSize)
	le.PutUint32(b[format.HChunkSize:], minChunkSize)
	le.PutUint64(b[format.HCounter:], 1000)
	le.PutUint64(b[format.HCounterHZ:], 1e9)
	const room = (minChunkSize - format.ChunkHeader) / 16 // calls in a chunk
	for i := range calls {
		if i%room == 0 {
			h := make([]byte, format.ChunkHeader)
			le.PutUint32(h[format.CMagic:], format.ChunkMagic)
			le.PutUint16(h[format.CKind:], uint16(ChunkEvents))
			le.PutUint32(h[format.CPID:], 7)
			le.PutUint32(h[format.CTID:], 7)
			le.PutUint32(h[format.CNumber:], uint32(i/room))
			le.PutUint64(h[format.CCounter:], uint64(1000+10*i))
			le.PutUint64(h[format.CImage:], uint64(testImage))
			b = append(b[:format.HeaderSize+i/room*minChunkSize], h...)
		}
		b = le.AppendUint64(b, uint64(1000+10*i)|uint64(1+i%5)<<32)
		b = le.AppendUint64(b, uint64(1000+10*i+i%7)|uint64(1+i%5)<<32|1<<63)
		if i%room == room-1 {
			b = append(b, make([]byte, minChunkSize)...)[:format.HeaderSize+(i/room+1)*minChunkSize]
		}
	}
	n := (len(b) - format.HeaderSize + minChunkSize - 1) / minChunkSize
	return append(b, make([]byte, minChunkSize)...)[:format.HeaderSize+n*minChunkSize]
}

// segmentHeads are where the segments of an index begin.
func segmentHeads(index []byte) (at []int) {
	for off := format.IndexHeader; off < len(index); {
		at = append(at, off)
		size := format.SegmentSize
		for _, field := range []int{format.GStates, format.GFunctions, format.GLists, format.GSums, format.GGists} {
			size += int(binary.LittleEndian.Uint32(index[off+field:]))
		}
		off += size
	}
	return at
}

// TestIndexGoesOn: an index that ends anywhere is made whole from there, and shows what one shows that was made at
// once.
func TestIndexGoesOn(t *testing.T) {
	seeds := []uint64{444} // a window begins in the pause in which a task forks
	n := uint64(4)
	if testtool.Wide() {
		n = 500
	}
	for seed := range n {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 17))
		events := wildTrace(t, seed)
		sizes := blockSizes{50 + rng.IntN(300), rng.IntN(4), 1 + rng.IntN(6), 1 << 20}
		plain, _ := withBlocks(t, events, sizes)
		var m memoryFile
		size, err := plain.writeBlocks(&m, sizes)
		if err != nil {
			t.Fatal(err)
		}
		heads := append(segmentHeads(m.b[:size]), int(size))
		for range 3 {
			indexed := &Trace{}
			if err := indexed.load(bytes.NewReader(events), int64(len(events)), noNames); err != nil {
				t.Fatal(err)
			}
			cut := m.b[:min(heads[rng.IntN(len(heads))]+rng.IntN(100), int(size))]
			x, _, err := indexed.readBlocks(bytes.NewReader(cut), int64(len(cut)))
			if err != nil {
				t.Fatal(err)
			}
			indexed.part = x
			sizes.least, sizes.segment = 50+rng.IntN(300), 1+rng.IntN(6) // another writer's
			if indexed.blocks, err = indexed.writeIndex(&memoryFile{}, sizes); err != nil {
				t.Fatal(err)
			}
			for _, o := range randomWindows(rng, plain, 4) {
				o.Calls = randomCalls(rng)
				r := ReportOptions{From: o.From, To: o.To, Tasks: o.Tasks, Calls: o.Calls}
				rows := seeRows(t, plain, r)
				r.Tasks = inTrace(indexed, r.Tasks)
				if have := seeRows(t, indexed, r); have != rows {
					t.Fatalf("seed %d, %d of %d bytes, %+v: %s", seed, len(cut), size, r, cmp.Diff(rows, have))
				}
				o.Calls = Calls{}
				walk := seeWalk(plain, o)
				o.Tasks = inTrace(indexed, o.Tasks)
				if have := seeWalk(indexed, o); have != walk {
					t.Fatalf("seed %d, %d of %d bytes, %+v: %s", seed, len(cut), size, o, cmp.Diff(walk, have))
				}
			}
		}
	}
}

// TestMakeIndexRefused: where an index must not be made, there is none, and where
// somebody makes one, there is one maker.
func TestMakeIndexRefused(t *testing.T) {
	for what, c := range map[string]func(dir string) error{
		"a directory that others can write": func(dir string) error { return os.Chmod(dir, 0o777) },
		"somebody makes it": func(dir string) error {
			f, err := os.Create(filepath.Join(dir, format.FileNewIndex))
			t.Cleanup(func() { f.Close() })
			return errors.Join(err, unix.Flock(int(f.Fd()), unix.LOCK_EX))
		},
		"a link": func(dir string) error { return os.Symlink("elsewhere", filepath.Join(dir, format.FileNewIndex)) },
	} {
		dir := eventsFile(t, wildTrace(t, 1))
		if err := c(dir); err != nil {
			t.Fatal(err)
		}
		tr := open(t, dir)
		if ok, err := tr.MakeIndex(IndexOptions{File: true}); ok || err != nil {
			t.Errorf("%s: made %v, %v", what, ok, err)
		}
		for _, name := range []string{IndexFile, "elsewhere"} {
			if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
				t.Errorf("%s: %s is there", what, name)
			}
		}
		if ok, err := tr.MakeIndex(IndexOptions{Memory: true}); !ok || err != nil {
			t.Errorf("%s: in memory: %v, %v", what, ok, err)
		}
	}
	// What a killed maker has left is in nobody's way.
	dir := eventsFile(t, wildTrace(t, 1))
	if err := os.WriteFile(filepath.Join(dir, format.FileNewIndex), []byte("left"), 0o600); err != nil {
		t.Fatal(err)
	}
	if ok, err := open(t, dir).MakeIndex(IndexOptions{File: true}); !ok || err != nil {
		t.Error(ok, err)
	}
}

// BenchmarkWindow shows 100 us of ten million events, with an index and without.
func BenchmarkWindow(b *testing.B) {
	for _, tasks := range []int{1, 16} {
		tr := open(b, synthetic(b, tasks, 10_000_000/tasks))
		span := int64(0)
		for _, k := range tr.Tasks {
			span = max(span, tr.Clock.Time(k.chunks[len(k.chunks)-1].counter))
		}
		for _, name := range []string{"without", "with"} {
			if name == "with" {
				if ok, err := tr.MakeIndex(IndexOptions{File: true}); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
			b.Run(fmt.Sprintf("tasks=%d/%s", tasks, name), func(b *testing.B) {
				for b.Loop() {
					from := span / 10 * 9
					if err := tr.Walk(WalkOptions{From: from, To: from + 100_000, Open: true}, func(*Event) error { return nil }); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkMakeIndex makes the index of ten million events.
func BenchmarkMakeIndex(b *testing.B) {
	benchTraces(b, func(b *testing.B, t *Trace) {
		var m memoryFile
		if _, err := t.writeBlocks(&m, usualBlocks); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(m.b))/10e6, "B/event")
	})
}

// TestSyscallsAlone: what the index has of a block or a run of system calls alone is theirs, not that of the first image's functions.
func TestSyscallsAlone(t *testing.T) {
	open := SyscallFunc(257)
	b := &blockBuilder{fns: []builderFunc{{fn: open}}}
	var have []FuncID
	err := eachBounds(append(b.appendBounds(nil, []callBound{{max: 1, inside: 1}}), 0), nil, 0, 1, func(_ int, fn FuncID, _, _ uint64) {
		have = append(have, fn)
	})
	if err != nil || len(have) != 1 || have[0] != open {
		t.Errorf("bounds of %v, %v", have, err)
	}
}
