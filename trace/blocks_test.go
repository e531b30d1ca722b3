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
	var m memoryFile
	for _, tr := range []**Trace{&plain, &indexed} {
		*tr = &Trace{}
		if err := (*tr).load(bytes.NewReader(events), int64(len(events)), noNames); err != nil {
			t.Fatal(err)
		}
	}
	size, err := plain.writeIndex(&m, sizes)
	if err != nil {
		t.Fatal(err)
	}
	if err := indexed.useIndex(&m, size); err != nil {
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
		for _, sizes := range []blockSizes{{2, 0}, {200 + rng.IntN(1000), rng.IntN(8)}} {
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
	if ok, err := tr.MakeIndex(IndexOptions{File: true}); !ok || err != nil {
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
	same := func(what string, b []byte, used bool) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		tr := open(t, dir)
		if used != (tr.blocks != nil) || used == strings.Contains(fmt.Sprint(tr.Problems), "index") {
			t.Errorf("%s: used %v, %v", what, tr.blocks != nil, tr.Problems)
		}
		for i, o := range shown {
			o.Tasks = inTrace(tr, o.Tasks)
			if have := seeWalk(tr, o); have != want[i] {
				t.Errorf("%s: %s", what, cmp.Diff(want[i], have))
			}
		}
	}
	same("whole", index, true)
	heads := format.IndexHeader + len(plain.Tasks)*format.IndexTask
	for _, n := range []int{0, 1, 63, 64, heads - 1, heads, len(index) - 1} {
		same(fmt.Sprint("cut at ", n), index[:n], false)
	}
	for range 20 {
		b := bytes.Clone(index)
		i := rng.IntN(heads)
		b[i] ^= 1 << rng.IntN(8)
		same(fmt.Sprint("bit of byte ", i), b, false)
		b = bytes.Clone(index)
		i = heads + rng.IntN(len(b)-heads)
		b[i] ^= 1 << rng.IntN(8)
		same(fmt.Sprint("bit of byte ", i), b, true) // noticed when it is read
	}
	_, other := indexFiles(t, 4)
	same("another trace's", other, false)
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
	_, indexed := withBlocks(f, events, blockSizes{100, 0})
	for _, k := range indexed.Tasks[:min(2, len(indexed.Tasks))] {
		e := indexed.blocks.entry(k)
		off, n := binary.LittleEndian.Uint64(e[format.TOffset:]), binary.LittleEndian.Uint64(e[format.TStates:])
		m := binary.LittleEndian.Uint64(e[format.TFunctions:])
		b := indexed.blocks.r.(*memoryFile).b[off:]
		f.Add(b[:n], b[n:n+m], uint16(k.Index), int64(5000))
	}
	f.Fuzz(func(t *testing.T, states, functions []byte, task uint16, from int64) {
		tr := &Trace{}
		if err := tr.load(bytes.NewReader(events), int64(len(events)), noNames); err != nil {
			t.Fatal(err)
		}
		k := tr.Tasks[int(task)%len(tr.Tasks)]
		tasks := make([]byte, len(tr.Tasks)*format.IndexTask)
		for i := range tr.Tasks {
			binary.LittleEndian.PutUint64(tasks[i*format.IndexTask+format.TLast:], math.MaxUint64)
			if i == k.Index {
				e := tasks[i*format.IndexTask:]
				binary.LittleEndian.PutUint64(e[format.TStates:], uint64(len(states)))
				binary.LittleEndian.PutUint64(e[format.TFunctions:], uint64(len(functions)))
				binary.LittleEndian.PutUint32(e[format.TStatesCrc:], format.CRC(0, states))
				binary.LittleEndian.PutUint32(e[format.TFunctionsCrc:], format.CRC(0, functions))
			}
		}
		tr.blocks = &blockIndex{r: bytes.NewReader(append(bytes.Clone(states), functions...)), tasks: tasks}
		_ = tr.Walk(WalkOptions{From: max(1, from), Tasks: []*Task{k}, Open: true}, func(*Event) error { return nil })
		if tb, err := tr.blocks.states(k); err == nil {
			eachBounds(functions, len(tb.blocks), func(int, FuncID, uint64) {})
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
		if _, err := t.writeIndex(&m, usualBlocks); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(m.b))/10e6, "B/event")
	})
}
