package trace

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/names"
)

// eventsFile writes b as the events of a new trace directory.
func eventsFile(t testing.TB, b []byte) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, EventsFile), b, 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

// slot is a chunk as a runtime leaves it in its slot: entries and exits of the
// given function at the given counters, sealed or not.
func slot(kind ChunkKind, id TaskID, number uint32, sealed bool, fn uint64, counters ...uint32) []byte {
	b := appendChunkHeader(nil, kind, id, number, uint64(counters[0]), 0)
	for i, c := range counters {
		w := entry(c, fn)
		if i%2 == 1 {
			w = exitOf(c, fn)
		}
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	if sealed {
		binary.LittleEndian.PutUint32(b[format.CSize:], uint32(len(b)))
	}
	return append(b, make([]byte, minChunkSize-len(b))...)
}

var slotsHeader = Header{ChunkSize: minChunkSize, Counter: 100, CounterHz: 1e9}

// TestSlots reads a file as a patched program leaves it when it is killed: slots
// never used, chunks that are not sealed and some that are, in any order.
func TestSlots(t *testing.T) {
	a, b := TaskID{PID: 1, TID: 1, Image: 1, Comm: "a"}, TaskID{PID: 1, TID: 2, Image: 1, Comm: "b"}
	empty := make([]byte, minChunkSize)
	image := appendChunkHeader(nil, ChunkImage, TaskID{Image: 1}, 0, 0, 0)
	image = append(image, "path=/bin/prog\x00build-id=abcd\x00bias=0x55550000\x00exe=/bin/prog\x00cmdline=prog\x1f-x\x1f\x00nsites=9\x00mode=function_graph\x00"...)
	image = append(image, make([]byte, minChunkSize-len(image))...)
	file := AppendHeader(nil, slotsHeader)
	for _, c := range [][]byte{
		image,
		slot(ChunkEvents, b, 0, true, 3, 120, 130),
		empty,
		slot(ChunkEvents, a, 1, false, 2, 200, 210),
		slot(ChunkEvents, a, 0, false, 1, 100, 110),
		empty, empty,
	} {
		file = append(file, c...)
	}
	// What lies behind the slots that the header says were used is old.
	binary.LittleEndian.PutUint64(file[format.HNext:], 7)
	file = append(file, slot(ChunkEvents, a, 7, true, 9, 900, 910)...)
	tr := open(t, eventsFile(t, file))
	want := lines(
		"0 a-1 entry prog:#1 leaf", "10 a-1 exit prog:#1 10/10 leaf",
		"20 b-2 entry prog:#3 leaf", "30 b-2 exit prog:#3 10/10 leaf",
		"100 a-1 entry prog:#2 leaf", "110 a-1 exit prog:#2 10/10 leaf",
	)
	if d := cmp.Diff(want, text(t, tr, WalkOptions{})); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]Image{{ID: 1, Path: "/bin/prog", BuildID: "abcd", Sites: 9, Bias: 0x55550000, Exe: "/bin/prog", Command: []string{"prog", "-x"}, Mode: "function_graph"}}, tr.Images); d != "" {
		t.Error(d)
	}
	if len(tr.Problems) > 0 || tr.Chunks != 4 {
		t.Error(tr.Problems, tr.Chunks)
	}
}

// TestPool reads a dump of a shared pool: free chunks hold old events that are
// on disk already.
func TestPool(t *testing.T) {
	a := TaskID{PID: 1, TID: 1, Image: 1, Comm: "a"}
	const chunks = 1000 // so that the states need a second page
	file := AppendHeader(nil, slotsHeader)
	binary.LittleEndian.PutUint32(file[format.HChunks:], chunks)
	binary.LittleEndian.PutUint32(file[format.HHeaderSize:], 8192)
	file = append(file, make([]byte, 4096)...)
	for i, c := range []struct {
		state  uint32
		number uint32
	}{{format.StateFull, 1}, {format.StateFree, 0}, {format.StateOwned, 3}, {format.StateWriting, 2}, {format.StateFree, 9}} {
		binary.LittleEndian.PutUint32(file[format.StatesOff+4*i:], c.state)
		file = append(file, slot(ChunkEvents, a, c.number, false, 1+uint64(c.number), 100+100*c.number, 110+100*c.number)...)
	}
	tr := open(t, eventsFile(t, file))
	want := lines(
		"100 a-1 lost 0", // chunk 0 was free: its events are elsewhere
		"100 a-1 entry 0000000000000001:#2 leaf", "110 a-1 exit 0000000000000001:#2 10/10 leaf",
		"200 a-1 entry 0000000000000001:#3 leaf", "210 a-1 exit 0000000000000001:#3 10/10 leaf",
		"300 a-1 entry 0000000000000001:#4 leaf", "310 a-1 exit 0000000000000001:#4 10/10 leaf",
	)
	if d := cmp.Diff(want, text(t, tr, WalkOptions{})); d != "" {
		t.Error(d)
	}
	if tr.Tasks[0].Gaps != 1 {
		t.Errorf("%d gaps, want 1", tr.Tasks[0].Gaps)
	}
}

// TestSmallChunks reads a dump of a pool with a second area: a task begins in a small
// chunk, goes on in one of full size, and in a small one again.
func TestSmallChunks(t *testing.T) {
	a := TaskID{PID: 1, TID: 1, Image: 1, Comm: "a"}
	const full, small = 2 * minChunkSize, minChunkSize
	h := slotsHeader
	h.ChunkSize = full
	file := AppendHeader(nil, h)
	le := binary.LittleEndian
	le.PutUint32(file[format.HChunks:], 2)
	le.PutUint32(file[format.HSmallChunks:], 3)
	le.PutUint32(file[format.HSmallSize:], small)
	for i, state := range []uint32{format.StateFree, format.StateFull, format.StateOwned, format.StateFree, format.StateFull} {
		le.PutUint32(file[format.StatesOff+4*i:], state)
	}
	number := func(n uint32, size int) []byte {
		b := slot(ChunkEvents, a, n, false, 1+uint64(n), 100+100*n, 110+100*n)
		return append(b, make([]byte, size-len(b))...)
	}
	file = slices.Concat(file, number(7, full), number(1, full), number(2, small), number(8, small), number(0, small))
	tr := open(t, eventsFile(t, file))
	want := lines(
		"0 a-1 entry 0000000000000001:#1 leaf", "10 a-1 exit 0000000000000001:#1 10/10 leaf",
		"100 a-1 entry 0000000000000001:#2 leaf", "110 a-1 exit 0000000000000001:#2 10/10 leaf",
		"200 a-1 entry 0000000000000001:#3 leaf", "210 a-1 exit 0000000000000001:#3 10/10 leaf",
	)
	if d := cmp.Diff(want, text(t, tr, WalkOptions{})); d != "" {
		t.Error(d)
	}
	if len(tr.Problems) != 0 || tr.Tasks[0].Gaps != 0 {
		t.Errorf("%v, %d gaps", tr.Problems, tr.Tasks[0].Gaps)
	}
	for name, change := range map[string]func(b []byte){
		"size":     func(b []byte) { le.PutUint32(b[format.HSmallSize:], 4097) },
		"too many": func(b []byte) { le.PutUint32(b[format.HSmallChunks:], 1<<30) },
		"in a file": func(b []byte) {
			le.PutUint32(b[format.HChunks:], 0)
			le.PutUint32(b[format.HLayout:], uint32(LayoutSlots))
		},
	} {
		b := bytes.Clone(file[:format.HeaderSize])
		change(b)
		if h, err := ParseHeader(b); err == nil {
			t.Errorf("%s: %+v is accepted", name, h)
		}
	}
}

// TestDamage cuts and breaks a recorder's file: what is whole is read, the rest
// is named with its offset.
func TestDamage(t *testing.T) {
	dir := buildHeader(t, Header{Counter: 1000, CounterHz: 1e9, ChunkSize: minChunkSize}, func(w *Writer) {
		k := w.Task(TaskID{PID: 7, TID: 7, Image: testImage, Comm: "p"})
		for i := range uint64(2000) {
			k.Enter(1000+2*i, 1)
			k.Exit(1001+2*i, 1)
		}
		if err := k.Flush(); err != nil {
			t.Fatal(err)
		}
	})
	whole, err := os.ReadFile(filepath.Join(dir, EventsFile))
	if err != nil {
		t.Fatal(err)
	}
	calls := func(b []byte) (n uint64, tr *Trace) {
		tr = open(t, eventsFile(t, b))
		rows, err := tr.Report(ReportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			n += r.Calls
		}
		return n, tr
	}
	if n, tr := calls(whole); n != 2000 || len(tr.Problems) != 0 {
		t.Fatalf("%d calls, problems %v", n, tr.Problems)
	}
	first := int64(0)
	if n, tr := calls(whole); n > 0 {
		first = tr.Tasks[0].chunks[0].off
	}

	t.Run("truncated", func(t *testing.T) {
		last := uint64(0)
		for cut := int(first); cut <= len(whole); cut += 997 {
			n, tr := calls(whole[:cut])
			if n < last {
				t.Fatalf("%d calls in %d bytes, %d in fewer", n, cut, last)
			}
			last = n
			if len(tr.Problems) > 1 {
				t.Errorf("cut at %d: %v", cut, tr.Problems)
			}
		}
		if last < 1900 {
			t.Errorf("only %d calls", last)
		}
	})
	t.Run("zeros at the end", func(t *testing.T) {
		if n, tr := calls(append(bytes.Clone(whole), make([]byte, 1<<20)...)); n != 2000 || len(tr.Problems) != 0 {
			t.Errorf("%d calls, problems %v", n, tr.Problems)
		}
	})
	t.Run("broken chunk header", func(t *testing.T) {
		for _, off := range []int64{format.CMagic, format.CKind, format.CSize} {
			b := bytes.Clone(whole)
			second := first + minChunkSize
			for b[second] != 'F' { // chunks are a few bytes shorter than they may be
				second -= 8
			}
			b[second+off] = 0xff
			n, tr := calls(b)
			if n < 1400 || n >= 2000 {
				t.Errorf("offset %d: %d calls", off, n)
			}
			if len(tr.Problems) != 1 || !strings.Contains(tr.Problems[0].Error(), fmt.Sprintf("offset %#x", second)) {
				t.Errorf("offset %d: problems %v, want one at %#x", off, tr.Problems, second)
			}
			if tr.Tasks[0].Gaps != 1 {
				t.Errorf("offset %d: %d gaps", off, tr.Tasks[0].Gaps)
			}
		}
	})
	t.Run("shrinks while it is read", func(t *testing.T) {
		dir := eventsFile(t, whole)
		tr := open(t, dir)
		if err := os.Truncate(filepath.Join(dir, EventsFile), first+minChunkSize/2); err != nil {
			t.Fatal(err)
		}
		rows, err := tr.Report(ReportOptions{})
		if err != nil || len(rows) != 1 || rows[0].Calls == 0 || rows[0].Calls > 300 {
			t.Errorf("%v %v", rows, err)
		}
	})
}

// TestUnknownKinds checks that chunks of unknown kinds are skipped by their size, in both layouts.
func TestUnknownKinds(t *testing.T) {
	a := TaskID{PID: 1, TID: 1, Image: 1}
	unknown := func(size int) []byte {
		c := appendChunkHeader(nil, 77, a, 0, 1, 0)
		binary.LittleEndian.PutUint32(c[format.CSize:], uint32(size))
		for len(c) < size {
			c = append(c, slot(ChunkEvents, a, 9, true, 1, 5)[:ChunkHeaderSize]...) // would be found if it was looked for
		}
		return c[:size]
	}
	slots := AppendHeader(nil, slotsHeader)
	slots = append(slots, slot(ChunkEvents, a, 0, false, 1, 100, 110)...)
	big := int(slotsHeader.ChunkSize) + 1000
	slots = append(slots, unknown(big)...)
	slots = append(slots, make([]byte, 2*int(slotsHeader.ChunkSize)-big)...)
	slots = append(slots, slot(ChunkEvents, a, 1, false, 1, 120, 130)...)
	packed := AppendHeader(nil, Header{Layout: LayoutPacked})
	packed = append(packed, Sealed(slot(ChunkEvents, a, 0, false, 1, 100, 110))...)
	packed = append(packed, unknown(136)...)
	packed = append(packed, Sealed(slot(ChunkEvents, a, 1, false, 1, 120, 130))...)
	for name, b := range map[string][]byte{"slots": slots, "packed": packed} {
		tr := open(t, eventsFile(t, b))
		if tr.Unknown != 1 || len(tr.Tasks) != 1 || len(tr.Tasks[0].chunks) != 2 || tr.Tasks[0].Gaps != 0 {
			t.Errorf("%s: %d unknown, %d tasks, %d problems", name, tr.Unknown, len(tr.Tasks), len(tr.Problems))
		}
		if len(tr.Problems) != 1 || !strings.Contains(tr.Problems[0].Error(), "chunk of kind 77") {
			t.Errorf("%s: problems %v", name, tr.Problems)
		}
	}
}

// TestHeaderErrors checks that a header that cannot be used is refused by name.
func TestHeaderErrors(t *testing.T) {
	good := AppendHeader(nil, slotsHeader)
	put := func(off int, v uint32) []byte {
		b := bytes.Clone(good)
		binary.LittleEndian.PutUint32(b[off:], v)
		return b
	}
	for _, c := range []struct {
		name, want string
		b          []byte
	}{
		{"empty", "not a trace: 0 bytes", nil},
		{"short", "not a trace: 100 bytes", good[:100]},
		{"magic", "offset 0: magic", put(0, 1)},
		{"version 1", "trace format version 1, which was never released; this is a reader of version 2: record the program again", put(format.HVersion, 1)},
		{"version 3", "trace format version 3; this is a reader of version 2: a newer fentry is needed", put(format.HVersion, 3)},
		{"header size", "offset 12", put(format.HHeaderSize, 4097)},
		{"small header", "offset 12", put(format.HHeaderSize, 0)},
		{"chunk size", "offset 16", put(format.HChunkSize, 5000)},
		{"tiny chunks", "offset 16", put(format.HChunkSize, 64)},
		{"huge chunks", "offset 16", put(format.HChunkSize, 1<<31)},
		{"states without room", "offset 20", put(format.HChunks, 1<<30)},
		{"layout", "offset 112", put(format.HLayout, 2)},
	} {
		_, err := Open(eventsFile(t, c.b))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), EventsFile) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), `no file "events"`) {
		t.Errorf("directory without events: %v", err)
	}
	if _, err := Open("/nonexistent"); err == nil || !strings.Contains(err.Error(), "no such trace") {
		t.Errorf("no directory: %v", err)
	}
	tr := open(t, eventsFile(t, good))
	if rows, err := tr.Report(ReportOptions{}); err != nil || len(rows) != 0 || len(tr.Problems) != 0 {
		t.Errorf("no chunks: %v %v %v", rows, err, tr.Problems)
	}
	if err := tr.Walk(WalkOptions{}, func(*Event) error { return fmt.Errorf("event") }); err != nil {
		t.Errorf("no chunks: %v", err)
	}
}

// TestProfile reads profile chunks, one of which takes several slots.
func TestProfile(t *testing.T) {
	counts := make([]ProfileCount, 500)
	counts[1] = ProfileCount{10, 1000, 400, 300}
	counts[499] = ProfileCount{1, 50, 50, 50}
	var b bytes.Buffer
	w, err := NewWriter(&b, slotsHeader)
	if err != nil {
		t.Fatal(err)
	}
	for tid := range 2 {
		k := w.Task(TaskID{PID: 1, TID: 1 + tid, Image: testImage, Comm: "p"})
		if err := k.Profile(uint64(100+tid), 0, counts); err != nil {
			t.Fatal(err)
		}
	}
	want := []FuncStat{
		{Func: FuncID{0, 1}, Name: "0000000000001234:#1", Calls: 20, Total: 2000, Sum: 2000, Self: 800, Min: -1, Avg: 100, Max: 300, P99: -1, StdDev: -1},
		{Func: FuncID{0, 499}, Name: "0000000000001234:#499", Calls: 2, Total: 100, Sum: 100, Self: 100, Min: -1, Avg: 50, Max: 50, P99: -1, StdDev: -1},
	}
	check := func(file []byte) {
		t.Helper()
		tr := open(t, eventsFile(t, file))
		rows, err := tr.Report(ReportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, rows); d != "" {
			t.Error(d)
		}
		if len(tr.Problems) > 0 || len(tr.Tasks) != 2 {
			t.Error(tr.Problems, len(tr.Tasks))
		}
		rows, err = tr.Report(ReportOptions{PerTask: true})
		if err != nil || len(rows) != 4 || rows[0].Calls != 10 || rows[0].Task == nil {
			t.Errorf("per task: %v %v", rows, err)
		}
	}
	packed := b.Bytes()
	check(packed)
	// The same in slots, an events chunk behind each: found only if the profile
	// chunk's slots are counted right.
	file := AppendHeader(nil, slotsHeader)
	size := (len(packed) - format.HeaderSize) / 2
	for i := range 2 {
		file = append(file, packed[format.HeaderSize+i*size:][:size]...)
		file = append(file, make([]byte, format.HeaderSize-len(file)%minChunkSize)...)
		file = append(file, slot(ChunkEvents, TaskID{PID: 1, TID: 1 + i, Image: testImage, Comm: "p"}, 0, false, 2, 200, 210)...)
	}
	want = append(want, FuncStat{Func: FuncID{0, 2}, Name: "0000000000001234:#2", Calls: 2, Total: 20, Sum: 20, Self: 20, Min: 10, Avg: 10, Max: 10, P99: 10})
	tr := open(t, eventsFile(t, file))
	rows, err := tr.Report(ReportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		rows[i].Hist = nil
	}
	if d := cmp.Diff(want, rows); d != "" {
		t.Error(d)
	}
}

// TestEntriesOnly reads a trace of the function tracer: entries, and no exits that
// would close them.
func TestEntriesOnly(t *testing.T) {
	dir := buildHeader(t, slotsHeader, func(w *Writer) {
		if err := w.WriteImage(Image{ID: testImage, Mode: "function"}); err != nil {
			t.Fatal(err)
		}
		k := w.Task(TaskID{PID: 1, TID: 1, Image: testImage, Comm: "p"})
		for i := range uint64(1000) {
			k.Enter(100+i, uint32(1+i%4))
		}
		k.Mark(1100, 7, "seven")
		if err := k.Flush(); err != nil {
			t.Fatal(err)
		}
	})
	tr := open(t, dir)
	n := 0
	if err := tr.Walk(WalkOptions{}, func(ev *Event) error {
		n++
		if ev.Depth != 0 || ev.Caller != (FuncID{}) || ev.Kind == Entry && ev.Flags != FlagEntryOnly || ev.Kind != Entry && ev.Kind != Mark {
			return fmt.Errorf("%+v", *ev)
		}
		return nil
	}); err != nil || n != 1001 {
		t.Errorf("%d events, %v", n, err)
	}
	rows, err := tr.Report(ReportOptions{})
	if err != nil || len(rows) != 4 {
		t.Fatal(rows, err)
	}
	for i, r := range rows {
		want := FuncStat{Func: FuncID{0, uint32(i + 1)}, Name: string(rune('a' + i)), Calls: 250, Total: -1, Sum: -1, Self: -1, Min: -1, Avg: -1, Max: -1, P99: -1, StdDev: -1}
		if d := cmp.Diff(want, r); d != "" {
			t.Error(d)
		}
	}
	root, err := tr.Graph(GraphOptions{})
	if err != nil || len(root.Children) != 4 || root.Children[0].Calls != 250 || root.Children[0].Total != 0 {
		t.Errorf("%+v %v", root, err)
	}
}

// TestResolve checks where names come from without a .sym file.
func TestResolve(t *testing.T) {
	file := append(AppendHeader(nil, slotsHeader), slot(ChunkEvents, TaskID{PID: 1, TID: 1, Image: 5}, 0, false, 1, 100, 110)...)
	dir := eventsFile(t, file)
	tr, err := OpenWith(dir, Options{
		Resolve: func(im Image) (SymTable, error) {
			if im.ID != 5 {
				t.Errorf("image %v", im)
			}
			return &names.Table{Funcs: []names.Func{{ID: 1, Addr: 16, Name: "_Z1fv"}, {ID: 2, Addr: 0x401000}}}, nil
		},
		Name: func(raw string) string { return "<" + raw + ">" },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	for id, want := range map[FuncID]string{{0, 1}: "<_Z1fv>", {0, 2}: "func_401000", {0, 3}: "0000000000000005:#3", {7, 1}: "image:#1", {}: ""} {
		if have := tr.Name(id); have != want {
			t.Errorf("%v: %q, want %q", id, have, want)
		}
	}
	tr, err = OpenWith(dir, Options{Resolve: func(Image) (SymTable, error) { return nil, fmt.Errorf("gone") }})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if len(tr.Problems) != 1 || !strings.Contains(tr.Problems[0].Error(), "no symbols: gone") {
		t.Error(tr.Problems)
	}
}

// TestResolveRefuses: a trace decides about no file but its own program's.
func TestResolveRefuses(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		fifo: "not a regular file", "/dev/zero": "not a regular file", "/proc/self/exe": "not patched by fentry",
		"index_test.go": "not an ELF file", "": "the trace does not name the program's file",
	} {
		dir := buildHeader(t, slotsHeader, func(w *Writer) {
			if err := w.WriteImage(Image{ID: 5, Path: path}); err != nil {
				t.Fatal(err)
			}
		})
		tr, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(tr.Problems) != 1 || !strings.Contains(tr.Problems[0].Error(), want) {
			t.Errorf("%s: %v, want %q", path, tr.Problems, want)
		}
		if name := tr.Name(FuncID{1, 1}); !strings.HasSuffix(name, ":#1") {
			t.Errorf("%s: name %q", path, name)
		}
		if file, _, err := tr.Source(FuncID{1, 1}); file != "" || err == nil {
			t.Errorf("%s: source %q, %v", path, file, err)
		}
		tr.Close()
	}
}
