package view

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/sample"
	"github.com/fentry-dev/fentry/trace"
)

// testFunc is the id of a function of the traces of package sample.
func testFunc(n uint32) trace.FuncID { return trace.FuncID{ID: n} }

func newViewer(t testing.TB, tr *trace.Trace) *Viewer {
	t.Helper()
	v, err := New(tr)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// everything is the scope of a whole trace.
func everything(v *Viewer) Scope { return Scope{To: v.end + 1, Task: -1, Process: -1} }

// TestTiles compares the tiles of random traces with their events, at every zoom: each call that is as long as a unit
// is in each tile that it reaches into, as it is; all others are counted in the one that they begin in; and there are
// no more boxes than units.
func TestTiles(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 5))
		tr := sample.Random(t, rng, 4000)
		if seed%2 == 0 { // blocks of all sizes, so that tiles have few and many of them
			if _, err := tr.MakeIndex(trace.IndexOptions{Memory: true, Block: 1 << rng.IntN(9)}); err != nil {
				t.Fatal(err)
			}
		}
		v := newViewer(t, tr)
		calls := make([][]call, len(tr.Tasks))
		if err := tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
			switch ev.Kind {
			case trace.Exit, trace.Unwound, trace.Unfinished:
				calls[ev.Task.Index] = append(calls[ev.Task.Index],
					call{ev.Func, ev.Time - ev.Dur, ev.Time, ev.Stack, int32(ev.Depth), ev.Kind})
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for level := range 24 {
			unit := int64(1) << level
			width := unit * tileUnits
			for index := range min(v.end/width+1, 6) {
				for task := range tr.Tasks {
					tile, err := v.Tile(task, level, index, false)
					if err != nil {
						t.Fatal(err)
					}
					if d := compareTile(v, tile, calls[task], level); d != "" {
						t.Fatalf("seed %d, task %d, level %d, tile %d: %s", seed, task, level, index, d)
					}
				}
			}
		}
	}
}

// compareTile says how a tile differs from a task's calls.
func compareTile(v *Viewer, tile *Tile, calls []call, level int) string {
	type key struct {
		row   int
		start int64
		end   int64
		fn    string
		kind  trace.Kind
	}
	long, short := map[key]int{}, map[int]int{} // by row
	perRow := map[int]int{}
	for _, b := range tile.Boxes {
		perRow[b.Row]++
		if b.End-b.Start >= tile.Unit && b.Calls == 1 {
			long[key{b.Row, b.Start, b.End, tile.Funcs[b.Func].ID, b.Kind}]++
		} else {
			short[b.Row] += b.Calls
		}
	}
	from, to := tile.Start, tile.Start+tile.Unit*tileUnits
	for _, c := range calls {
		switch {
		case c.start >= to || c.end < from:
		case c.end-c.start >= tile.Unit:
			k := key{int(c.depth), c.start, c.end, FuncKey(c.fn), c.kind}
			if long[k]--; long[k] < 0 {
				return fmt.Sprintf("call %+v is missing", k)
			}
		case c.start >= from:
			short[int(c.depth)]--
		}
	}
	for k, n := range long {
		if n > 0 {
			return fmt.Sprintf("there is no call %+v", k)
		}
	}
	for row, n := range short {
		if n != 0 {
			return fmt.Sprintf("row %d has %d short calls too many", row, n)
		}
	}
	for row, n := range perRow {
		if n > 2*tileUnits+2 {
			return fmt.Sprintf("row %d has %d boxes", row, n)
		}
	}
	return ""
}

// TestTilesFromOutline: where a tile has more blocks than are decoded, calls that can be seen well are all there, and
// none that there is not.
func TestTilesFromOutline(t *testing.T) {
	tr := sample.Random(t, rand.New(rand.NewPCG(3, 4)), 200_000)
	if _, err := tr.MakeIndex(trace.IndexOptions{Memory: true, Block: 16}); err != nil {
		t.Fatal(err)
	}
	v := newViewer(t, tr)
	type key struct {
		fn         string
		start, end int64
		row        int
	}
	for task, k := range tr.Tasks {
		o := v.outline(k)
		if o == nil {
			t.Fatal("no outline")
		}
		if len(o.Borders) < 2*fewBlocks {
			t.Fatalf("an outline of %d borders is of no use here", len(o.Borders))
		}
		calls := map[key]bool{}
		tr.Walk(trace.WalkOptions{Tasks: []*trace.Task{k}}, func(ev *trace.Event) error {
			if ev.Kind == trace.Exit || ev.Kind == trace.Unwound || ev.Kind == trace.Unfinished {
				calls[key{FuncKey(ev.Func), ev.Time - ev.Dur, ev.Time, ev.Depth}] = true
			}
			return nil
		})
		decoded := false
		for level := 14; level < 28; level++ {
			tile, err := v.Tile(task, level, 0, false)
			if err != nil {
				t.Fatal(err)
			}
			seen := map[key]bool{}
			for _, b := range tile.Boxes {
				if b.Calls == 1 && b.End-b.Start >= tile.Unit {
					c := key{tile.Funcs[b.Func].ID, b.Start, b.End, b.Row}
					seen[c] = true
					if !calls[c] {
						t.Fatalf("level %d: there is no call %+v", level, c)
					}
				}
			}
			for c := range calls {
				if c.end-c.start >= wellSeen*tile.Unit && c.start < tile.Start+tile.Unit*tileUnits && !seen[c] {
					t.Fatalf("level %d: call %+v is missing", level, c)
				}
			}
			decoded = decoded || len(seen) > 0
		}
		if !decoded {
			t.Error("no call was seen")
		}
	}
}

// TestLateEntry: a call that begins and ends in one block of the index, because its entry was held back while the task
// was on another stack, is in each tile that it reaches into.
func TestLateEntry(t *testing.T) {
	const start, end = 50_000, 2_000_100
	tr := sample.Build(t, []string{"busy", "held"}, func(w *trace.Writer) {
		k := w.Task(trace.TaskID{PID: 7, TID: 7, Image: sample.Image, Comm: "prog"})
		k.Start(1000)
		for at := uint64(1000); at < 2_000_000; at += 100 {
			k.Enter(at+10, 1)
			k.Exit(at+60, 1)
			if at%1000 == 0 {
				k.Flush()
			}
		}
		k.Stack(1000+end-10, 1)
		k.Enter(1000+start, 2)
		k.Exit(1000+end, 2)
		k.Stack(1000+end+10, 0)
		k.Enter(1000+end+20, 1)
		k.Exit(1000+end+30, 1)
		k.End(1000 + end + 40)
		k.Flush()
	})
	if _, err := tr.MakeIndex(trace.IndexOptions{Memory: true, Block: 16}); err != nil {
		t.Fatal(err)
	}
	v := newViewer(t, tr)
	o := v.outline(tr.Tasks[0])
	if len(o.Borders) < 2*fewBlocks {
		t.Fatalf("an outline of %d borders is of no use here", len(o.Borders))
	}
	for i := range o.Calls {
		if o.Calls[i].Func == testFunc(2) {
			t.Fatal("the call crosses a border, which is of no use here")
		}
	}
	for _, level := range []int{2, 12} {
		tiles := int64(tileUnits) << level
		for i := start / tiles; i <= end/tiles; i++ {
			tile, err := v.Tile(0, level, i, false)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(tile.Boxes, func(b Box) bool {
				return tile.Funcs[b.Func].ID == FuncKey(testFunc(2)) && b.Start == start && b.End == end
			}) {
				t.Fatalf("level %d: tile %d is without the call", level, i)
			}
		}
	}
}

// TestManyLateEntries: where very many blocks have an entry that was held back since long before, a tile does not decode
// them all, and says so. Those are drawn that reach furthest into the tile.
func TestManyLateEntries(t *testing.T) {
	const blocks, level = 4 * fewBlocks, 12
	tr := sample.Build(t, []string{"busy", "held"}, func(w *trace.Writer) {
		k := w.Task(trace.TaskID{PID: 7, TID: 7, Image: sample.Image, Comm: "prog"})
		k.Start(1000)
		for i := range uint64(blocks) {
			at := 1000 + i*1000
			for n := range uint64(10) {
				k.Enter(at+10+n, 1)
				k.Exit(at+11+n, 1)
			}
			k.Stack(at+600, 1)
			k.Enter(1500+(i+7*64)%blocks, 2) // held back since then
			k.Exit(at+700, 2)
			k.Stack(at+710, 0)
			k.Flush()
		}
		k.End(1000 + blocks*1000)
		k.Flush()
	})
	if _, err := tr.MakeIndex(trace.IndexOptions{Memory: true, Block: 16}); err != nil {
		t.Fatal(err)
	}
	v := newViewer(t, tr)
	if n := len(v.outline(tr.Tasks[0]).Borders); n < blocks/2 {
		t.Fatalf("%d blocks are of no use here", n)
	}
	tile, err := v.Tile(0, level, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	if n := v.blocks.used.Len(); n > 2*fewBlocks+1 || n < fewBlocks {
		t.Errorf("%d blocks were decoded", n)
	}
	if tile.Deeper == 0 {
		t.Error("the tile does not say that calls are missing")
	}
	if last := int64((blocks-1)*1000 + 700); !slices.ContainsFunc(tile.Boxes, func(b Box) bool { return b.End == last }) {
		t.Error("the longest call is missing")
	}
}

// TestDamagedIndex: with an index of which bytes are wrong, tiles, flame graphs and calls are what they are without
// one.
func TestDamagedIndex(t *testing.T) {
	tr := sample.Random(t, rand.New(rand.NewPCG(5, 4)), 20_000)
	answers := func(tr *trace.Trace) string {
		v := newViewer(t, tr)
		s := NewServer(v, testAddr)
		all := ""
		for _, path := range []string{
			"about", "tile?task=0&level=0&tile=0", "tile?task=0&level=9&tile=1", "tile?task=0&level=17&tile=0",
			"flames?from=1000&to=900000", "functions?from=1000&to=900000", "slowest?n=9&from=0&to=900000",
		} {
			w := ask(s, "api/"+path, nil)
			all += fmt.Sprint(path, w.Code, w.Body)
		}
		return all
	}
	if ok, err := tr.MakeIndex(trace.IndexOptions{File: true, Block: 512}); !ok || err != nil {
		t.Fatal("no index", err)
	}
	want := answers(tr)
	name := filepath.Join(tr.Dir, trace.IndexFile)
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 1))
		b := slices.Clone(whole)
		for range 1 + rng.IntN(20) {
			b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		damaged, err := trace.Open(tr.Dir)
		if err != nil {
			t.Fatal(err)
		}
		if have := answers(damaged); have != want {
			t.Errorf("seed %d: answers differ with a damaged index: %s", seed, cmp.Diff(want, have))
		}
		damaged.Close()
	}
}

// TestAtOnce: what is answered before everything is decoded or counted has nothing that is not so, and says that
// there is more.
func TestAtOnce(t *testing.T) {
	tr := sample.Random(t, rand.New(rand.NewPCG(3, 4)), 200_000)
	if _, err := tr.MakeIndex(trace.IndexOptions{Memory: true, Block: 16}); err != nil {
		t.Fatal(err)
	}
	v := newViewer(t, tr)
	partial := 0
	for level := 10; level < 28; level++ {
		quick, err := v.Tile(0, level, 0, true)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := v.Tile(0, level, 0, false)
		if err != nil || whole.Partial {
			t.Fatal("not whole", err)
		}
		if quick.Partial {
			partial++
		} else if len(quick.Boxes) != len(whole.Boxes) {
			t.Errorf("level %d: %d boxes, and not partial; there are %d", level, len(quick.Boxes), len(whole.Boxes))
		}
		type key struct {
			row        int
			start, end int64
			name       string
		}
		calls := map[key]bool{}
		for _, b := range whole.Boxes {
			calls[key{b.Row, b.Start, b.End, whole.Funcs[b.Func].Name}] = true
		}
		for _, b := range quick.Boxes {
			if b.Calls == 1 && b.End-b.Start >= quick.Unit && !calls[key{b.Row, b.Start, b.End, quick.Funcs[b.Func].Name}] {
				t.Fatalf("level %d: there is no call %+v", level, b)
			}
		}
	}
	if partial == 0 {
		t.Error("no tile was partial")
	}

	s := everything(v)
	quick, err := v.Flames(s, true)
	if err != nil || quick.Samples < 100 {
		t.Fatalf("%d samples, %v", quick.Samples, err)
	}
	whole, err := v.Flames(s, false)
	if err != nil || whole.Samples != 0 {
		t.Fatal("still samples", err)
	}
	for name, f := range map[string]*Flames{"sampled": quick, "counted": whole} {
		if wide := tooWide(f.Root); wide != nil {
			t.Errorf("%s: what is inside of a node of %d ns is longer", name, wide.Total)
		}
	}
	share := func(f *Flames) map[string]float64 {
		shares := map[string]float64{}
		for _, k := range f.Root.Children {
			shares[f.Funcs[k.Func].Name] = float64(k.Total) / float64(f.Root.Total)
		}
		return shares
	}
	have := share(quick)
	for name, want := range share(whole) {
		if got := have[name]; want > 0.05 && (got < 0.6*want || got > 1.6*want) {
			t.Errorf("%s: %.3f of the time by samples, %.3f by counting", name, got, want)
		}
	}
	s.Func = testFunc(4)
	only, err := v.Flames(s, true)
	if err != nil || len(only.Root.Children) != 1 || only.Funcs[only.Root.Children[0].Func].ID != FuncKey(s.Func) {
		t.Errorf("inside of a function there are %d paths, %v", len(only.Root.Children), err)
	}
}

// tooWide returns a node that has not enough room for what is drawn below it; nil: all fits.
func tooWide(f *Flame) *Flame {
	room := f.Total
	for _, k := range f.Children {
		if wide := tooWide(k); wide != nil {
			return wide
		}
		room -= k.Total
	}
	if room < 0 {
		return f
	}
	return nil
}

// TestOneOfEverything reads answers of a small trace.
func TestOneOfEverything(t *testing.T) {
	v := newViewer(t, sample.Small(t))
	a := v.About()
	if len(a.Tasks) != 3 || a.Tasks[0].Name != "prog" || a.End < 6000 || len(a.Notes) == 0 {
		t.Errorf("%+v", a)
	}
	tile, err := v.Tile(0, 4, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(tile.Rows) != 2 { // the second stack is a lane of its own
		t.Errorf("%d lanes", len(tile.Rows))
	}
	kinds := map[string]bool{}
	for _, n := range tile.Notes {
		kinds[n.Kind] = true
	}
	if !kinds["mark"] || !kinds["lost"] {
		t.Errorf("notes: %+v", tile.Notes)
	}
	table, err := v.Functions(everything(v))
	if err != nil || len(table.Rows) != 3 {
		t.Errorf("%+v %v", table, err)
	}
	s := everything(v)
	s.Func = testFunc(2)
	inside := everything(v)
	inside.From, inside.To, inside.Task = 1035, 1036, 0
	if table, err := v.Functions(inside); err != nil || len(table.Rows) == 0 || table.Rows[0].Calls != 0 ||
		table.Rows[0].Max != -1 || table.Rows[0].Total != 1 {
		t.Errorf("around a time: %+v %v", table, err)
	}
	around, err := v.Around(s)
	if err != nil || around.Name != "fib" || len(around.Callers) != 2 || len(around.Callees) == 0 {
		t.Errorf("%+v %v", around, err)
	}
	slow, err := v.Slowest(s, 2)
	if err != nil || len(slow) != 2 || slow[0].Name != "fib" || slow[0].Dur < slow[1].Dur {
		t.Errorf("%+v %v", slow, err)
	}
	s.Task = slow[1].Task
	s.From, s.To = slow[1].Start, slow[1].Start
	d, err := v.Detail(s, slow[1].Row)
	if err != nil || d.Dur != slow[1].Dur || d.Self != slow[1].Self || len(d.Stack) != slow[1].Row {
		t.Errorf("%+v %v, want %+v", d, err, slow[1])
	}
	flames, err := v.Flames(everything(v), false)
	if err != nil || len(flames.Root.Children) == 0 {
		t.Errorf("%+v %v", flames, err)
	}
	text, err := json.Marshal(flames)
	if err != nil || len(text) == 0 {
		t.Error(err)
	}
}

// TestWhatCallsSay: system calls read as strace shows them, also those in which other calls are.
func TestWhatCallsSay(t *testing.T) {
	v := newViewer(t, sample.Build(t, []string{"main", "handler"}, func(w *trace.Writer) {
		k := w.Task(trace.TaskID{PID: 7, TID: 7, Image: sample.Image, Comm: "prog"})
		k.Enter(2000, 1)
		k.SysEnter(2100, 3, []uint64{5})
		k.SysExit(2150, 0)
		k.SysEnter(2200, 3, []uint64{9})
		k.Enter(2210, 2)
		k.Exit(2220, 2)
		k.SysExit(2300, ^uint64(8))
		k.Exit(9000, 1)
		k.Flush()
	}))
	s := everything(v)
	calls, err := v.Slowest(s, 10)
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{}
	for _, c := range calls {
		if !c.Sys {
			continue
		}
		one := Scope{From: c.Start, To: c.Start + c.Dur, Task: c.Task, Process: -1,
			Func: trace.FuncID{Image: trace.SyscallImage}}
		if _, err := fmt.Sscanf(c.ID, "4294967295.%d", &one.Func.ID); err != nil {
			t.Fatal(err)
		}
		d, err := v.Detail(one, c.Row)
		if err != nil || d.Dur != c.Dur || len(d.Stack) != 1 || d.Stack[0].Name != "main" {
			t.Errorf("%+v %v, want %+v", d, err, c)
		}
		said[d.Text] = true
	}
	want := map[string]bool{"close(5) = 0": true, "close(9) = -1 EBADF (Bad file descriptor)": true}
	if !maps.Equal(said, want) {
		t.Errorf("%v, want %v", said, want)
	}
}

// noted is a trace with a signal in a call, and a stack that was walked when another was made.
func noted(t testing.TB) *trace.Trace {
	return sample.Build(t, []string{"main", "handler", "work"}, func(w *trace.Writer) {
		k := w.Task(trace.TaskID{PID: 7, TID: 7, Image: sample.Image, Comm: "prog"})
		k.Enter(2000, 1)
		k.Mark(2100, 4, "begins")
		k.Signal(2500, trace.Signal{Number: 10, Code: -6, Address: 0x77, PC: 0x401010, Handler: trace.FuncID{ID: 2}})
		k.Enter(2510, 2)
		k.Exit(2700, 2)
		for i := range uint64(3) {
			at := 3000 + 1000*i
			k.Enter(at, 3)
			if i == 1 {
				k.Frames(at+3, 1, 0, 0x1200, 0x2001)
				k.Backtrace(at+3, 2, 3, 3)
			}
			k.Exit(at+500, 3)
		}
		k.Exit(9000, 1)
		k.Flush()
	})
}

// TestNotes: all that is known of what is no call, and the stack that was walked with the call that it is of.
func TestNotes(t *testing.T) {
	v := newViewer(t, noted(t))
	tile, err := v.Tile(0, 5, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, n := range tile.Notes {
		texts = append(texts, n.Kind+": "+n.Text)
		s := Scope{From: n.Time, To: n.Time, Process: -1}
		d, err := v.Note(s, n.Kind)
		if err != nil || d == nil || d.Note != n || len(d.Callers) == 0 || d.Callers[len(d.Callers)-1].Name != "main" {
			t.Errorf("%+v: %+v %v", n, d, err)
		}
		switch n.Kind {
		case "signal":
			want := [][2]string{{"Code", "-6"}, {"Address", "0x77"}, {"Interrupted at", "0x401010"}, {"Handler", "handler"}}
			if diff := cmp.Diff(want, d.Facts); diff != "" {
				t.Error(diff)
			}
		case "backtrace":
			if want := []Frame{{Name: "work"}, {Name: "0x2001"}, {Name: "0x1200"}}; !slices.Equal(d.Stack, want) || d.End == "" {
				t.Errorf("%+v, want %+v", d, want)
			}
		}
	}
	if want := []string{"mark: 4 begins", "signal: SIGUSR1", "backtrace: work"}; !slices.Equal(texts, want) {
		t.Errorf("%q, want %q", texts, want)
	}
	if d, err := v.Note(Scope{From: 5, Process: -1}, "mark"); d != nil || err != nil {
		t.Errorf("where there is none: %+v %v", d, err)
	}
	for i := range int64(3) {
		s := Scope{From: 2000 + 1000*i, Process: -1, Func: testFunc(3)}
		d, err := v.Detail(s, 1)
		if err != nil || d.Dur != 500 || (i == 1) != (len(d.Walked) == 3) {
			t.Errorf("call %d: %+v %v", i, d, err)
		}
	}
}

// TestGoroutines: goroutines are tasks of their own, called so, whichever threads they have run on.
func TestGoroutines(t *testing.T) {
	v := newViewer(t, goProgram(t))
	var names []string
	for _, k := range v.About().Tasks {
		names = append(names, fmt.Sprint(k.Name, " ", k.TID))
	}
	if want := []string{"prog 7", "goroutine 1", "goroutine 5"}; !slices.Equal(names, want) {
		t.Errorf("tasks are %q, want %q", names, want)
	}
	tile, err := v.Tile(1, 5, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(tile.Boxes) != 2 || tile.Boxes[0].End-tile.Boxes[0].Start != 6000 {
		t.Errorf("a goroutine on two threads has %+v", tile.Boxes)
	}
}

// goProgram is a trace of a Go program: goroutine 1 goes on on another thread.
func goProgram(t testing.TB) *trace.Trace {
	const goroutine = 1 << 63
	names := []string{"main.main", "main.work", "runtime.mstart"}
	h := trace.Header{Counter: 1000, CounterHz: 1e9, Closed: true}
	im := trace.Image{ID: sample.Image, Path: "/bin/prog", Sites: len(names), Stacks: trace.StacksGoroutines}
	return sample.BuildOf(t, h, im, names, func(w *trace.Writer) {
		k := w.Task(trace.TaskID{PID: 7, TID: 7, Image: sample.Image, Comm: "prog"})
		o := w.Task(trace.TaskID{PID: 7, TID: 8, Image: sample.Image, Comm: "prog"})
		k.Enter(1100, 3)
		k.Exit(1200, 3)
		k.Stack(2000, goroutine|1)
		k.Enter(2000, 1)
		k.Enter(3000, 2)
		o.Stack(4000, goroutine|1)
		o.Exit(5000, 2)
		k.Stack(5000, goroutine|5)
		k.Enter(5000, 2)
		o.Exit(8000, 1)
		k.Exit(9000, 2)
		k.Flush()
		o.Flush()
	})
}

// TestFind jumps through all calls of functions, forwards and backwards, with an index and without.
func TestFind(t *testing.T) {
	tr := sample.Random(t, rand.New(rand.NewPCG(8, 8)), 3000)
	if _, err := tr.MakeIndex(trace.IndexOptions{Memory: true, Block: 64}); err != nil {
		t.Fatal(err)
	}
	v := newViewer(t, tr)
	want := map[int64]bool{}
	tr.Walk(trace.WalkOptions{Tasks: tr.Tasks[:1]}, func(ev *trace.Event) error {
		if ev.Kind == trace.Entry && v.t.Name(ev.Func) == "main" && ev.Time > 0 {
			want[ev.Time] = true
		}
		return nil
	})
	for _, back := range []bool{false, true} {
		s := everything(v)
		s.Task = 0
		n := 0
		last := int64(-1)
		for {
			c, err := v.Find(context.Background(), s, "MAI", back)
			if err != nil {
				t.Fatal(err)
			}
			if c == nil {
				break
			}
			if n++; !want[c.Start] || n > len(want) || last >= 0 && (c.Start < last) != back {
				t.Fatalf("call %d is %+v, behind %d", n, c, last)
			}
			if last = c.Start; back {
				s.To = last
			} else {
				s.From = last
			}
		}
		if n != len(want) || n < 10 {
			t.Errorf("backwards %v: %d calls, want %d", back, n, len(want))
		}
	}
}
