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
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// A wildTask does everything that a task can do, and some things that none does.
type wildTask struct {
	k     *TaskWriter
	rng   *rand.Rand
	now   uint64
	stack uint64
	calls map[uint64][]uint32 // by stack
	deep  bool
	coro  uint64 // number of stacks it changes between
}

func (p *wildTask) step(lossy bool) {
	r := p.rng
	p.now += r.Uint64N(40)
	if r.IntN(300) == 0 {
		p.now += r.Uint64N(1 << 33)
	}
	cur := p.calls[p.stack]
	fn := func() uint32 { return uint32(1 + r.IntN(20)) }
	most := 12
	if p.deep {
		most = 3000
	}
	switch n := r.IntN(1000); {
	case n < 880 && (len(cur) == 0 || len(cur) < most && r.IntN(40) < 21):
		f := fn()
		p.k.Enter(p.now, f)
		p.calls[p.stack] = append(cur, f)
	case n < 880:
		f := cur[len(cur)-1]
		p.k.Exit(p.now, f)
		p.calls[p.stack] = cur[:len(cur)-1]
		if r.IntN(6) == 0 { // a tail call
			f = fn()
			p.k.Enter(p.now, f)
			p.calls[p.stack] = append(cur[:len(cur)-1], f)
		}
	case n < 900:
		p.k.Mark(p.now, p.now, "m")
	case n < 930 && len(cur) > 0: // aside: for ever, or until an exit
		n := 1 + r.IntN(min(4, len(cur)))
		p.k.Resync(p.now, uint64(n))
		if r.IntN(2) == 0 {
			p.now++
			p.k.Exit(p.now, cur[len(cur)-1-r.IntN(n)])
		}
		p.calls[p.stack] = cur[:len(cur)-n]
	case n < 965 && p.coro > 0:
		p.stack = r.Uint64N(p.coro + 1)
		p.k.Stack(p.now, p.stack)
	case n < 972:
		p.k.Comm(p.now, fmt.Sprint("c", r.IntN(3)))
	case n < 975 && len(cur) > 2: // an exit further out, without a word
		n := 1 + r.IntN(2)
		p.k.Exit(p.now, cur[len(cur)-1-n])
		p.calls[p.stack] = cur[:len(cur)-1-n]
	case n < 978:
		p.k.Exit(p.now, fn()) // of whatever
	case n < 981 && lossy:
		p.k.Lost(p.now, r.Uint64N(9))
	case n < 984 && lossy:
		p.k.Flush()
		p.k.number += r.Uint32N(3)
	case n < 987:
		p.k.Enter(p.now-min(p.now-1, r.Uint64N(300)), fn()) // held back: an older time; nobody expects its exit
	case n < 989:
		p.k.End(p.now + r.Uint64N(2000))
		clear(p.calls)
	case n < 991:
		p.k.Flush() // a short chunk
	}
}

// wildTrace is a trace of several wild tasks; some are forked from others.
func wildTrace(t testing.TB, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 3))
	var b bytes.Buffer
	w, err := NewWriter(&b, Header{Counter: 1000, Monotonic: 9, Realtime: 8, CounterHz: 1e9, ChunkSize: minChunkSize})
	if err != nil {
		t.Fatal(err)
	}
	w.WriteImage(Image{ID: testImage, Path: "/bin/prog", Sites: 20})
	if seed%2 == 1 {
		w.WriteMap(1, 1000, []MapEntry{{First: 1, Count: 20, Image: testImage}})
	}
	var all []*wildTask
	add := func(parent *wildTask, now uint64) {
		id := TaskID{PID: 1 + len(all)/2, TID: 1 + len(all), Key: uint64(len(all)), Image: testImage, Comm: fmt.Sprint("c", rng.IntN(3))}
		p := &wildTask{rng: rng, now: now, calls: map[uint64][]uint32{}, deep: rng.IntN(4) == 0}
		if rng.IntN(2) == 0 {
			p.coro = 1 + rng.Uint64N(6)
		}
		if parent != nil {
			id.ParentPID, id.ParentTID = parent.k.id.PID, parent.k.id.TID
			p.calls[parent.stack] = slices.Clone(parent.calls[parent.stack])
			p.stack = parent.stack
		}
		id.Stack = p.stack
		p.k = w.Task(id)
		all = append(all, p)
	}
	for range 1 + rng.IntN(3) {
		add(nil, 1000+rng.Uint64N(2000))
	}
	lossy := rng.IntN(2) == 0
	for range 300 {
		p := all[rng.IntN(len(all))]
		for range rng.IntN(80) {
			p.step(lossy)
		}
		if rng.IntN(40) == 0 && len(all) < 8 {
			add(p, p.now+rng.Uint64N(30))
		}
	}
	for _, p := range all {
		p.k.Flush()
		from := rng.Uint64N(p.now)
		if err := w.WriteSched(p.k.id, from, p.now, randomOffs(rng, from, p.now)); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

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
		e := *ev
		e.Task = nil
		fmt.Fprintf(&s, "%d %v %+v\n", ev.Task.Index, ev.Kind, e)
		return nil
	})
	if err != nil {
		fmt.Fprintln(&s, err)
	}
	return s.String()
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
	seeds := uint64(6)
	if testtool.Wide() {
		seeds = 3000
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 9))
		events := wildTrace(t, seed)
		for _, sizes := range []blockSizes{{2, 0, 3}, {200 + rng.IntN(1000), rng.IntN(8), 1 + rng.IntN(9)}} {
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

// TestIndexOfSlots: a trace that its programs wrote alone has an index, too, which is not used for what they write later.
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
		off += format.SegmentSize + int(binary.LittleEndian.Uint32(index[off+format.GStates:])) +
			int(binary.LittleEndian.Uint32(index[off+format.GFunctions:]))
	}
	return at
}

// TestIndexGoesOn: an index that ends anywhere is made whole from there, and shows what one shows that was made at once.
func TestIndexGoesOn(t *testing.T) {
	seeds := uint64(4)
	if testtool.Wide() {
		seeds = 500
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 17))
		events := wildTrace(t, seed)
		sizes := blockSizes{50 + rng.IntN(300), rng.IntN(4), 1 + rng.IntN(6)}
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
			cut := m.b[:heads[rng.IntN(len(heads))]+rng.IntN(100)%int(size)]
			cut = cut[:min(len(cut), int(size))]
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

// FuzzIndex reads any bytes as the states and functions of a task: with right
// checksums, so that nothing but the readers' own checks stands in their way.
func FuzzIndex(f *testing.F) {
	events := wildTrace(f, 1)
	_, indexed := withBlocks(f, events, blockSizes{100, 0, 4})
	section := func(off int64, n uint32) []byte {
		b := make([]byte, n)
		if err := indexed.blocks.r.read(b, off); err != nil {
			f.Fatal(err)
		}
		return b
	}
	for _, ss := range indexed.blocks.tasks[:min(2, len(indexed.Tasks))] {
		for i := range ss[:min(3, len(ss))] {
			s := &ss[i]
			f.Add(section(s.off, s.states), section(s.off+int64(s.states), s.functions), uint16(0), s.chunks, int64(5000))
		}
	}
	f.Fuzz(func(t *testing.T, states, functions []byte, task uint16, chunks uint32, from int64) {
		tr := &Trace{}
		if err := tr.load(bytes.NewReader(events), int64(len(events)), noNames); err != nil {
			t.Fatal(err)
		}
		k := tr.Tasks[int(task)%len(tr.Tasks)]
		b := append(bytes.Clone(states), functions...)
		s := segment{
			last: math.MaxUint64, chunks: chunks, states: uint32(len(states)), functions: uint32(len(functions)),
			statesCRC: format.CRC(0, states), functionsCRC: format.CRC(0, functions), end: true,
		}
		for i := range k.chunks[:min(int64(len(k.chunks)), int64(chunks))] {
			s.chunksCRC = k.chunks[i].crc(s.chunksCRC)
		}
		x := &blockIndex{
			r: segmentReader{bytes.NewReader(b), int64(len(b))}, images: []uint32{0},
			listed: append(binary.LittleEndian.AppendUint64(nil, uint64(tr.Images[0].ID)), 0), tasks: make([][]segment, len(tr.Tasks)),
		}
		x.tasks[k.Index] = []segment{s}
		tr.blocks = x
		o := WalkOptions{From: max(1, from), Tasks: []*Task{k}, Open: true, Calls: Calls{Threshold: from & 1023}}
		_ = tr.Walk(o, func(*Event) error { return nil })
		if _, err := tr.Report(ReportOptions{From: o.From, Tasks: o.Tasks, Calls: o.Calls}); err != nil {
			t.Error(err)
		}
		// What is not whole is gone on with, or made anew.
		x.tasks[k.Index][0].end = false
		tr.blocks, tr.part = nil, x
		if _, err := tr.writeIndex(&memoryFile{}, usualBlocks); err != nil && int64(chunks) <= int64(len(k.chunks)) {
			t.Error(err)
		}
	})
}

// FuzzIndexFile reads any bytes as the segments of an index.
func FuzzIndexFile(f *testing.F) {
	events := wildTrace(f, 1)
	plain, _ := withBlocks(f, events, blockSizes{100, 0, 4})
	var m memoryFile
	size, err := plain.writeBlocks(&m, blockSizes{200, 0, 2})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(m.b[format.IndexHeader:size], true)
	f.Add(m.b[format.IndexHeader:size/2], false)
	f.Fuzz(func(t *testing.T, segments []byte, seal bool) {
		tr := &Trace{}
		if err := tr.load(bytes.NewReader(events), int64(len(events)), noNames); err != nil {
			t.Fatal(err)
		}
		b := append(bytes.Clone(m.b[:format.IndexHeader]), segments...)
		for off := format.IndexHeader; seal && off+format.SegmentSize <= len(b); { // headers with right checksums
			h := b[off : off+format.SegmentSize]
			binary.LittleEndian.PutUint32(h[format.GMagic:], format.SegmentMagic)
			binary.LittleEndian.PutUint32(h[format.GCrc:], format.CRC(format.CRC(0, tr.identity[:]), h[:format.GCrc]))
			off += format.SegmentSize + int(binary.LittleEndian.Uint32(h[format.GStates:])&0xffff) +
				int(binary.LittleEndian.Uint32(h[format.GFunctions:])&0xffff)
		}
		x, whole, err := tr.readBlocks(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		if whole {
			tr.blocks = x
		} else {
			tr.part = x
			if tr.blocks, err = tr.writeIndex(&memoryFile{}, usualBlocks); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := tr.Report(ReportOptions{From: 1000, Calls: Calls{Threshold: 100}}); err != nil {
			t.Error(err)
		}
	})
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
