package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/cost"
	"github.com/fentry-dev/fentry/internal/format"
)

// withRanges is a header whose table has the given entries: image, first, count.
func withRanges(h Header, entries ...[3]uint64) []byte {
	b := AppendHeader(nil, h)
	le := binary.LittleEndian
	le.PutUint32(b[format.HRanges:], 1024)
	le.PutUint32(b[format.HRangesRoom:], 100)
	for i, e := range entries {
		at := b[1024+i*format.RangeEntry:]
		le.PutUint64(at[format.RImage:], e[0])
		le.PutUint32(at[format.RFirst:], uint32(e[1]))
		le.PutUint32(at[format.RCount:], uint32(e[2]))
	}
	return b
}

// events is a packed chunk of image's with entries of the given ids.
func events(image ImageID, number uint32, stack uint64, ids ...uint64) []byte {
	b := appendChunkHeader(nil, ChunkEvents, TaskID{PID: 1, TID: 1, Image: image, Stack: stack}, number, 100, 0)
	for i, id := range ids {
		b = binary.LittleEndian.AppendUint64(b, entry(uint32(100+i), id))
	}
	return Sealed(b)
}

// callsOf lists the functions entered, in order: image id and local id, or that the id
// is nobody's.
func callsOf(t *testing.T, tr *Trace) string {
	t.Helper()
	var s []string
	if err := tr.Walk(WalkOptions{}, func(ev *Event) error {
		if ev.Kind == Entry {
			s = append(s, fmt.Sprintf("%d:%d", tr.Images[ev.Func.Image].ID, ev.Func.ID))
		} else if ev.Kind == Unknown {
			s = append(s, "nobody")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return strings.Join(s, " ")
}

// TestRanges resolves ids by the header's table, by map chunks, and, where there is
// neither, by the chunk's own image.
func TestRanges(t *testing.T) {
	packed := Header{Layout: LayoutPacked, CounterHz: 1e9}
	mapChunk := func(pid int, images ...MapEntry) []byte {
		var b bytes.Buffer
		w, err := NewWriter(&b, packed)
		if err != nil {
			t.Fatal(err)
		}
		b.Reset()
		if err := w.WriteMap(pid, 100, images); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	ids := []uint64{1, 10, 11, 30, 31, 1, 40, format.IDMax}
	for _, c := range []struct {
		name    string
		file    [][]byte
		want    string
		problem string
	}{
		{"none", [][]byte{AppendHeader(nil, packed), events(7, 0, 0, ids...)}, "7:1 7:10 7:11 7:30 7:31 7:1 7:40 7:2147352575", ""},
		{"table", [][]byte{withRanges(packed, [3]uint64{7, 1, 10}, [3]uint64{8, 11, 20}, [3]uint64{9, 31, 5}), events(7, 0, 0, ids...)},
			"7:1 7:10 8:1 8:20 9:1 7:1 nobody nobody", ""},
		{"entry of nobody", [][]byte{withRanges(packed, [3]uint64{7, 1, 10}, [3]uint64{0, 11, 20}, [3]uint64{9, 31, 5}), events(7, 0, 0, ids...)},
			"7:1 7:10 nobody nobody 9:1 7:1 nobody nobody", ""},
		{"end of the table", [][]byte{withRanges(packed, [3]uint64{7, 1, 10}, [3]uint64{8, 0, 0}, [3]uint64{9, 31, 5}), events(7, 0, 0, ids...)},
			"7:1 7:10 nobody nobody nobody 7:1 nobody nobody", ""},
		{"map", [][]byte{AppendHeader(nil, packed), events(7, 0, 0, ids...), mapChunk(1, MapEntry{First: 1, Count: 10, Image: 7}, MapEntry{First: 11, Count: 20, Image: 8})},
			"7:1 7:10 8:1 8:20 nobody 7:1 nobody nobody", ""},
		{"map that ends early", [][]byte{AppendHeader(nil, packed), mapChunk(1, MapEntry{First: 1, Count: 10, Image: 7}, MapEntry{}, MapEntry{First: 11, Count: 20, Image: 8}), events(7, 0, 0, ids...)},
			"7:1 7:10 nobody nobody nobody 7:1 nobody nobody", ""},
		{"both, and again", [][]byte{withRanges(packed, [3]uint64{8, 11, 20}), mapChunk(1, MapEntry{First: 11, Count: 20, Image: 8}), mapChunk(2, MapEntry{First: 11, Count: 20, Image: 8}, MapEntry{First: 31, Count: 5, Image: 9}), events(8, 0, 0, ids...)},
			"nobody nobody 8:1 8:20 9:1 nobody nobody nobody", ""},
		{"an image twice", [][]byte{withRanges(packed, [3]uint64{7, 1, 10}, [3]uint64{7, 11, 10}), events(7, 0, 0, 1, 10, 11, 20)}, "7:1 7:10 7:1 7:10", ""},
		{"overlap", [][]byte{withRanges(packed, [3]uint64{7, 1, 10}, [3]uint64{8, 5, 20}), events(7, 0, 0, ids...)},
			"7:1 7:10 nobody nobody nobody 7:1 nobody nobody", "are also those of image"},
		{"too many", [][]byte{withRanges(packed, [3]uint64{7, 1, 1 << 31}, [3]uint64{8, format.IDMax, 2}, [3]uint64{9, 0, 3}, [3]uint64{10, 1 << 31, 3}), events(7, 0, 0, 1, 2)},
			"7:1 7:2", "ids from"},
		{"all", [][]byte{withRanges(packed, [3]uint64{9, 1, format.IDMax}), events(7, 0, 0, 1, format.IDMax)}, "9:1 9:2147352575", ""},
	} {
		tr := open(t, eventsFile(t, bytes.Join(c.file, nil)))
		if have := callsOf(t, tr); have != c.want {
			t.Errorf("%s: %s\nwant %s", c.name, have, c.want)
		}
		if have := fmt.Sprint(tr.Problems); (c.problem == "") != (len(tr.Problems) == 0) || !strings.Contains(have, c.problem) {
			t.Errorf("%s: problems %s", c.name, have)
		}
	}
	for _, at := range []uint32{4, 100, 4090, 1 << 31, 8 * 31} {
		b := withRanges(packed, [3]uint64{8, 1, 10})
		binary.LittleEndian.PutUint32(b[format.HRanges:], at)
		tr := open(t, eventsFile(t, append(b, events(7, 0, 0, 1)...)))
		if have := callsOf(t, tr); have != "7:1" || len(tr.Problems) != 1 {
			t.Errorf("table at %d: %s, problems %v", at, have, tr.Problems)
		}
	}
}

// TestMappings reads what map chunks say of processes.
func TestMappings(t *testing.T) {
	var b bytes.Buffer
	w, err := NewWriter(&b, Header{Counter: 100, CounterHz: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	one := MapEntry{First: 1, Count: 3, Image: 7, Bias: 0x1000, Loaded: 110}
	two := MapEntry{First: 4, Count: 5, Image: 8, Loaded: 150}
	gone := two
	gone.Unloaded = 170
	for _, err := range []error{
		w.WriteMap(20, 150, []MapEntry{one, two}), w.WriteMap(10, 110, []MapEntry{one}),
		w.WriteMap(20, 170, []MapEntry{one, gone}), w.WriteMap(20, 160, []MapEntry{one, two}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	tr := open(t, eventsFile(t, b.Bytes()))
	for i := range tr.Mappings {
		tr.Mappings[i].ticks = [2]uint64{}
	}
	want := []Mapping{
		{PID: 10, Image: 0, Bias: 0x1000, Loaded: 10}, {PID: 20, Image: 0, Bias: 0x1000, Loaded: 10},
		{PID: 20, Image: 1, Loaded: 50, Unloaded: 70},
	}
	if d := cmp.Diff(want, tr.Mappings, cmp.AllowUnexported(Mapping{})); d != "" {
		t.Error(d)
	}
	if len(tr.Images) != 2 || tr.Images[0].Sites != 3 || tr.Images[1].Sites != 5 {
		t.Errorf("%+v", tr.Images)
	}
}

// TestIDSpan compares spans with a search through all ranges.
func TestIDSpan(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var rs idRanges
		next := uint32(1)
		for n := rng.IntN(5); n > 0; n-- {
			first := next + uint32(rng.IntN(3))
			last := first + uint32(rng.IntN(4))
			rs = append(rs, idRange{first, last, uint32(len(rs) + 1)})
			next = last + 1
		}
		for id := uint32(0); id < next+3; id++ {
			want, known := FuncID{0, id}, len(rs) == 0
			for _, r := range rs {
				if id >= r.first && id <= r.last {
					want, known = FuncID{r.image, id - r.first + 1}, true
				}
			}
			s := rs.span(id, 0)
			if id == 0 || !known {
				if s.n != 0 {
					t.Fatalf("%v: id %d is nobody's, and has span %+v", rs, id, s)
				}
				continue
			}
			if id-s.lo >= s.n || (FuncID{s.image, id - s.base}) != want {
				t.Fatalf("%v: id %d has span %+v, want %v", rs, id, s, want)
			}
			// The whole span is of one image.
			for i := s.lo; i < min(s.lo+s.n, next+3); i++ {
				if o := rs.span(i, 0); o != s {
					t.Fatalf("%v: ids %d and %d of one span: %+v, %+v", rs, id, i, s, o)
				}
			}
		}
		if s := rs.span(format.IDMax+1, 0); s.n != 0 {
			t.Fatalf("%v: no id, span %+v", rs, s)
		}
	}
}

// TestManyRanges reads maps of thousands of images in time and memory linear in them.
func TestManyRanges(t *testing.T) {
	var b bytes.Buffer
	w, err := NewWriter(&b, Header{Counter: 100, CounterHz: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	const n = 20000
	var all []MapEntry
	for i := range uint32(n) {
		all = append(all, MapEntry{First: 1 + 3*i, Count: 3, Image: ImageID(i + 1)})
	}
	slices.Reverse(all)
	if err := w.WriteMap(1, 100, all); err != nil {
		t.Fatal(err)
	}
	k := w.Task(TaskID{PID: 1, TID: 1, Image: 1})
	for i := range uint64(n) {
		k.Enter(200+i, uint32(i*7919%(3*n)+1))
	}
	k.Flush()
	tr := &Trace{}
	cost.Check(t, b.Len(), perByte, func() { err = tr.load(bytes.NewReader(b.Bytes()), int64(b.Len()), Options{}) })
	if err != nil || len(tr.ranges) != n || len(tr.Images) != n {
		t.Fatalf("%d ranges, %d images, %v", len(tr.ranges), len(tr.Images), err)
	}
	i := uint64(0)
	if err := tr.Walk(WalkOptions{}, func(ev *Event) error {
		if ev.Kind == Entry {
			id := uint32(i*7919%(3*n) + 1)
			if tr.Images[ev.Func.Image].ID != ImageID((id-1)/3+1) || ev.Func.ID != (id-1)%3+1 {
				return fmt.Errorf("id %d is %+v", id, ev.Func)
			}
			i++
		}
		return nil
	}); err != nil || i != n {
		t.Errorf("%d entries, %v", i, err)
	}
}

// TestLargeRanges: images of which the table claims millions of functions, and nothing
// else is known, take no memory for them.
func TestLargeRanges(t *testing.T) {
	const n, count = 100, 20e6
	var entries [][3]uint64
	for i := range uint64(n) {
		entries = append(entries, [3]uint64{i + 1, 1 + i*count, count})
	}
	b := withRanges(Header{Layout: LayoutPacked, CounterHz: 1e9}, entries...)
	b = append(b, events(7, 0, 0, 1, n*count, n*count+1)...)
	unknown := func(Image) (SymTable, error) { return nil, errors.New("not known") }
	tr := &Trace{}
	cost.Check(t, len(b), perByte, func() {
		if err := tr.load(bytes.NewReader(b), int64(len(b)), Options{Resolve: unknown}); err != nil {
			t.Fatal(err)
		}
		tr.loadSymbols(Options{Resolve: unknown})
	})
	if have := callsOf(t, tr); have != "1:1 100:20000000 nobody" || tr.Name(FuncID{99, count}) == "" {
		t.Errorf("%s, %q", have, tr.Name(FuncID{99, count}))
	}
}

// TestRangedProfile has a profile chunk whose entries begin at an image's first id.
func TestRangedProfile(t *testing.T) {
	var b bytes.Buffer
	w, err := NewWriter(&b, Header{Counter: 100, CounterHz: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	w.WriteMap(1, 100, []MapEntry{{First: 1, Count: 10, Image: 7}, {First: 11, Count: 10, Image: 8}})
	k := w.Task(TaskID{PID: 1, TID: 1, Image: 7})
	k.Profile(100, 0, []ProfileCount{{Calls: 99}, {Calls: 5}})
	k.Profile(100, 11, []ProfileCount{{Calls: 6}, {Calls: 7}})
	k.Profile(100, 1<<32-1, []ProfileCount{{Calls: 98}, {Calls: 97}, {Calls: 1}}) // the last one is id 1
	rows, err := open(t, eventsFile(t, b.Bytes())).Report(ReportOptions{})
	have := map[FuncID]uint64{}
	for _, r := range rows {
		have[r.Func] = r.Calls
	}
	if d := cmp.Diff(map[FuncID]uint64{{0, 1}: 6, {1, 1}: 6, {1, 2}: 7}, have); d != "" || err != nil {
		t.Error(d, err)
	}
}

// TestFirstStack checks where a task is at its beginning, and behind a gap.
func TestFirstStack(t *testing.T) {
	b := AppendHeader(nil, Header{Layout: LayoutPacked, CounterHz: 1e9})
	b = append(b, events(7, 0, 5, 1)...)
	b = append(b, events(7, 1, 6, 2)...) // no gap: the records say where it is
	b = append(b, events(7, 3, 9, 3)...)
	b = append(b, events(7, 5, 0, 4)...) // not told
	tr := open(t, eventsFile(t, b))
	if tr.Tasks[0].Stack != 5 {
		t.Errorf("the task begins on stack %d", tr.Tasks[0].Stack)
	}
	var have []string
	if err := tr.Walk(WalkOptions{}, func(ev *Event) error {
		have = append(have, fmt.Sprint(ev.Kind, " ", ev.Func.ID, " on ", ev.Stack))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{"entry 1 on 5", "entry 2 on 5", "lost 0 on 9", "entry 3 on 9", "lost 0 on 9", "entry 4 on 9",
		"unfinished 4 on 9", "unfinished 3 on 9", "unfinished 2 on 5", "unfinished 1 on 5"}
	if d := cmp.Diff(want, have); d != "" {
		t.Error(d)
	}
}
