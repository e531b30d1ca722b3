package trace

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/cost"
	"github.com/fentry-dev/fentry/internal/format"
)

// Memory for an events file: its index, and a window for each task and way of reading.
const (
	perByte = 256
	windows = 16 << 10 // worth of bytes
)

// readAll reads a trace in every way and checks what must hold for any input.
func readAll(t *testing.T, b []byte) {
	tr, size := &Trace{}, len(b)
	var err error
	cost.Check(t, size+windows, perByte, func() { err = tr.load(bytes.NewReader(b), int64(size), noNames) })
	if err != nil {
		return
	}
	// A task has a window of its own, and a stack that is as deep as it has words.
	cost.Check(t, size+windows+len(tr.Tasks)*windowSize, perByte, func() { readLoaded(t, tr, size) })
}

// readLoaded is readAll for a trace whose index has been read.
func readLoaded(t *testing.T, tr *Trace, size int) {
	if len(tr.Tasks) > size/ChunkHeaderSize || tr.Chunks > size/ChunkHeaderSize {
		t.Errorf("%d tasks and %d chunks in %d bytes", len(tr.Tasks), tr.Chunks, size)
	}
	if u := tr.Losses().Uncounted; u != nil && (u.From < 0 || u.To < u.From) {
		t.Errorf("events were lost from %d to %d", u.From, u.To)
	}
	entries, opened := uint64(0), map[*Task]int{}
	events := 0
	err := tr.Walk(WalkOptions{}, func(ev *Event) error {
		events++
		if ev.Depth < 0 || ev.Dur < 0 || ev.Self < 0 {
			t.Fatalf("%+v", *ev)
		}
		switch ev.Kind {
		case Entry:
			entries++
			if ev.Flags&FlagEntryOnly == 0 {
				opened[ev.Task]++
			}
		case Exit, Unwound, Unfinished:
			if ev.Flags&(FlagNoEntry|FlagInherited|FlagResumed) == 0 {
				opened[ev.Task]--
			}
		}
		tr.Name(ev.Func)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if events > size/4 {
		t.Errorf("%d events in %d bytes", events, size)
	}
	for k, n := range opened {
		if n != 0 {
			t.Errorf("task %v: %d calls did not end", k, n)
		}
	}
	rows, err := tr.Report(ReportOptions{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	calls := uint64(0)
	for _, k := range tr.Tasks {
		if len(k.profiles)+len(k.counts) > 0 {
			return // counts of calls that no event stands for
		}
	}
	for _, r := range rows {
		if r.Hist != nil && r.Hist.Count() > r.Calls {
			t.Errorf("%d durations of %d calls", r.Hist.Count(), r.Calls)
		}
		calls += r.Calls
	}
	if calls != entries {
		t.Errorf("the report has %d calls, the walk %d", calls, entries)
	}
	root, err := tr.Graph(GraphOptions{MaxNodes: 1000, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	if n := countCalls(root); n != entries {
		t.Errorf("the graph has %d calls, the walk %d", n, entries)
	}
}

func countCalls(n *Node) uint64 {
	c := n.Calls
	for _, k := range n.Children {
		c += countCalls(k)
	}
	return c
}

// FuzzOpen reads any bytes as events.
func FuzzOpen(f *testing.F) {
	header := AppendHeader(nil, slotsHeader)
	a := TaskID{PID: 1, TID: 1, Image: 1, Comm: "a"}
	child := TaskID{PID: 2, TID: 2, Key: 9, ParentPID: 1, ParentTID: 1, Image: 1}
	f.Add(header)
	f.Add(append(bytes.Clone(header), slot(ChunkEvents, a, 0, false, 1, 100, 110, 120)...))
	f.Add(append(append(bytes.Clone(header), slot(ChunkEvents, a, 0, false, 1, 100)...), slot(ChunkEvents, child, 0, false, 1, 200, 210, 220)...))
	pool := bytes.Clone(header)
	binary.LittleEndian.PutUint32(pool[format.HChunks:], 2)
	binary.LittleEndian.PutUint32(pool[format.StatesOff:], format.StateFull)
	f.Add(append(pool, slot(ChunkEvents, a, 3, false, 1, 100, 110, 120)...))
	crowd := bytes.Clone(pool)
	binary.LittleEndian.PutUint32(crowd[format.HSmallChunks:], 2)
	binary.LittleEndian.PutUint32(crowd[format.HSmallSize:], minChunkSize)
	binary.LittleEndian.PutUint32(crowd[format.StatesOff+8:], format.StateOwned)
	crowd = append(crowd, make([]byte, 2*minChunkSize)...)
	f.Add(append(crowd, slot(ChunkEvents, a, 3, false, 1, 100, 110, 120)...))
	packed := bytes.Clone(header)
	binary.LittleEndian.PutUint32(packed[format.HLayout:], uint32(LayoutPacked))
	c := slot(ChunkEvents, a, 0, true, 1, 100, 110, 120)
	f.Add(append(bytes.Clone(packed), Sealed(c)...))
	calls := appendChunkHeader(nil, ChunkEvents, a, 0, 100, 0)
	for i := range uint64(200) {
		calls = binary.LittleEndian.AppendUint64(calls, i&1<<63|1<<32|100+i)
	}
	f.Add(compressed(f, append(bytes.Clone(packed), Sealed(calls)...), all))
	p := slot(ChunkProfile, a, 0, false, 1, 100, 110, 120)
	binary.LittleEndian.PutUint32(p[format.CSize:], 9000)
	f.Add(append(append(bytes.Clone(header), p...), make([]byte, 8192)...))
	n := bytes.Clone(p)
	binary.LittleEndian.PutUint16(n[format.CKind:], uint16(ChunkCount))
	f.Add(append(append(bytes.Clone(header), n...), make([]byte, 8192)...))
	im := appendChunkHeader(nil, ChunkImage, TaskID{Image: 1}, 0, 0, 0)
	f.Add(append(append(bytes.Clone(header), im...), "path=/x\x00nsites=9\x00mode=function\x00bias=zz\x00"...))
	ranged := withRanges(Header{Layout: LayoutPacked}, [3]uint64{1, 1, 10}, [3]uint64{2, 11, 5}, [3]uint64{3, 14, 1 << 31}, [3]uint64{0, 20, 4}, [3]uint64{1, 30, 2})
	f.Add(append(bytes.Clone(ranged), events(1, 2, 7, 1, 12, 16, 31, format.IDMax)...))
	m := appendChunkHeader(nil, ChunkMap, TaskID{PID: 1}, 0, 0, 0)
	for _, v := range []uint64{40<<32 | 2, 5, 0x1000, 110, 120, 10<<32 | 100, 6, 0, 130, 0} {
		m = binary.LittleEndian.AppendUint64(m, v)
	}
	f.Add(append(append(ranged, Sealed(m)...), events(1, 0, 0, 1, 41, 100)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<20 {
			return
		}
		readAll(t, b)
	})
}

// FuzzChunk reads any words as the events of two tasks, one forked from the other.
func FuzzChunk(f *testing.F) {
	var words []byte
	for _, w := range []uint64{
		entry(1, 1), entry(2, 2), record(3, format.RecResync, 1), 2, record(4, format.RecStack, 1), 1, entry(5, 1), exitOf(6, 2), record(7, format.RecStack, 1), 0, exitOf(8, 1),
		record(8, format.RecFork, 1), 1<<32 | 1, record(8, format.RecStart, 0), record(8, format.RecMark, 3), 5, 0x4142, 1, record(8, 1, 2), 7, 8,
		opened(record(8, format.RecMark, 2)), 0, 0, 0x7fff0003 << 32, entry(8, format.IDMax), record(9, format.RecSync, 0),
		record(9, format.RecSync, 1), 1 << 40, record(9, format.RecLost, 1), 4, record(10, format.RecComm, 2), 0x41, 0x42, record(11, format.RecThreadEnd, 0), entry(12, 5),
		record(12, format.RecSys, 3), 257, 0x7000, 5, record(12, format.RecData, 4), 8<<32 | 4<<16, 0x7000, 0x42, 0x43, sysExit(record(12, format.RecSys, 1)), 7,
		record(12, format.RecSignal, 4), 11, 0, 0, 1, opened(record(12, format.RecSys, 1)), 0, record(12, format.RecData, 9), 1, 1, record(13, 3, 255), 0,
	} {
		words = binary.LittleEndian.AppendUint64(words, w)
	}
	f.Add(words, uint16(40))
	f.Add(words, uint16(0))
	f.Fuzz(func(t *testing.T, words []byte, split uint16) {
		if len(words) > 1<<16 {
			return
		}
		words = words[:len(words)&^7]
		n := min(int(split)&^7, len(words))
		header := AppendHeader(nil, Header{Layout: LayoutPacked, CounterHz: 1e9})
		for i, part := range [][]byte{words[:n], words[n:]} {
			id := TaskID{PID: 1 + i, TID: 1 + i, Key: uint64(i), ParentPID: i, ParentTID: i, Image: 1}
			c := append(appendChunkHeader(nil, ChunkEvents, id, 0, uint64(i)<<20, 0), part...)
			binary.LittleEndian.PutUint32(c[format.CSize:], uint32(len(c)))
			header = append(header, c...)
		}
		readAll(t, header)
	})
}

// FuzzWriter: what is written is read, whatever was written.
func FuzzWriter(f *testing.F) {
	f.Add([]byte("\x00\x01\x05\x00\x02\x05\x01\x02\x09\x01\x01\x01\x03\x07\x01\x04\x08\x02\x07\x00\x00"), uint64(1000), uint32(1))
	f.Add([]byte("\x0d\x01\x05\x1d\x02\x05\x00\x02\x09\x0d\x09\x01\x07\x01\x04\x0d\x02\x07\x00\x00"), uint64(1000), uint32(1))
	f.Add([]byte("\x10\x01\xff\x20\x02\xff\x11\x01\xff\x05\x40\x07\x06\x40\x07\x07\x40\x07"), uint64(1)<<32-100, uint32(1)<<20)
	f.Fuzz(func(t *testing.T, script []byte, start uint64, scale uint32) {
		start &= 1<<60 - 1
		const tasks = 3
		type call struct {
			task int
			time uint64
			id   uint32
		}
		var b bytes.Buffer
		// Small chunks, so that there are many.
		w, err := NewWriter(&b, Header{Counter: start, CounterHz: 1e9, ChunkSize: minChunkSize})
		if err != nil {
			t.Fatal(err)
		}
		image := Image{ID: 7, Path: string(script), Exe: "/exe", Command: []string{"a", "b c"}, Sites: 99, Mode: "function_graph", Bias: start}
		if err := w.WriteImage(image); err != nil {
			t.Fatal(err)
		}
		var k [tasks]*TaskWriter
		for i := range k {
			k[i] = w.Task(TaskID{PID: 1, TID: 1 + i, Image: 7, Comm: "task"})
		}
		var calls []call
		var marks, lost [tasks][]uint64
		now := start
		for ; len(script) >= 3; script = script[3:] {
			now += uint64(script[2]) * uint64(scale)
			i, id := int(script[0]>>4)%tasks, uint32(script[1])+1
			switch script[0] & 15 {
			case 0, 8, 9, 10:
				k[i].Enter(now, id)
				calls = append(calls, call{i, now, id})
			case 1, 11, 12:
				k[i].Exit(now, id)
			case 2:
				k[i].Mark(now, now, string(script[:len(script)%70]))
				marks[i] = append(marks[i], now)
			case 13:
				text := script[:len(script)%300]
				k[i].SysEnter(now, now, make([]uint64, id%7), Data{Arg: 1, Asked: uint32(len(text)), Bytes: text})
				marks[i] = append(marks[i], now)
			case 3:
				k[i].Lost(now, uint64(id))
				lost[i] = append(lost[i], uint64(id))
			case 4:
				k[i].Resync(now, uint64(id))
			case 5:
				k[i].Stack(now, uint64(id%3))
			case 6:
				k[i].Comm(now, "another")
			case 7:
				if err := k[i].Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := range k {
			if err := k[i].Flush(); err != nil {
				t.Fatal(err)
			}
		}
		tr := &Trace{}
		if err := tr.load(bytes.NewReader(b.Bytes()), int64(b.Len()), noNames); err != nil {
			t.Fatal(err)
		}
		if len(tr.Problems) > 0 {
			t.Errorf("problems: %v", tr.Problems)
		}
		got := tr.Images[0]
		if image.Path = strings.ReplaceAll(image.Path, "\x00", ""); got.Path != image.Path || got.Exe != image.Exe || !slices.Equal(got.Command, image.Command) ||
			got.Sites != image.Sites || got.Mode != image.Mode || got.Bias != image.Bias || got.ID != image.ID {
			t.Errorf("image %+v, want %+v", got, image)
		}
		readAll(t, b.Bytes())
		var readCalls []call
		var readMarks, readLost [tasks][]uint64
		if err := tr.Walk(WalkOptions{}, func(ev *Event) error {
			i := int(ev.Task.TID) - 1
			switch ev.Kind {
			case Entry:
				if ev.Sys != nil {
					readMarks[i] = append(readMarks[i], ev.Sys.Value)
					break
				}
				readCalls = append(readCalls, call{i, uint64(ev.Time), ev.Func.ID})
			case Mark:
				readMarks[i] = append(readMarks[i], ev.Count)
			case Lost:
				readLost[i] = append(readLost[i], ev.Count)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for i := range tasks {
			mine := func(all []call) (out []call) {
				for _, c := range all {
					if c.task == i {
						out = append(out, c)
					}
				}
				return out
			}
			want := mine(calls)
			for n := range want {
				want[n].time -= start
			}
			if got := mine(readCalls); !slices.Equal(got, want) {
				t.Errorf("task %d: calls %v, want %v", i, got, want)
			}
			if !slices.Equal(readMarks[i], marks[i]) || !slices.Equal(readLost[i], lost[i]) {
				t.Errorf("task %d: marks %v, lost %v, want %v and %v", i, readMarks[i], readLost[i], marks[i], lost[i])
			}
		}
	})
}

// FuzzInfo parses any bytes as info.json; what it accepts, it writes and parses
// again to the same.
func FuzzInfo(f *testing.F) {
	f.Add([]byte(`{"version":2,"command":["a"],"images":[{"id":"00000000000000ff","sites":3}],"clock":{"hz":5,"pairs":[{"counter":1,"monotonic_ns":2}]}}`))
	f.Add([]byte(`{"version":3}`))
	f.Add([]byte(`{"version":2,"images":[{"id":"x"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var info *Info
		var err error
		cost.Check(t, len(b), perByte, func() { info, err = ParseInfo(b) })
		if err != nil {
			return
		}
		one, err := json.Marshal(info)
		if err != nil {
			return // a time that JSON cannot have
		}
		again, err := ParseInfo(one)
		if err != nil {
			t.Fatal(err)
		}
		two, err := json.Marshal(again)
		if err != nil || !bytes.Equal(one, two) {
			t.Errorf("%s\n%s", one, two)
		}
	})
}

// TestDeepParents has many children, with a few words each, of a parent that is deep in calls: they must not each take
// what all of it takes.
func TestDeepParents(t *testing.T) {
	var b bytes.Buffer
	w, err := NewWriter(&b, Header{Counter: 1000, CounterHz: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	const depth, children = 50000, 2000
	k := w.Task(TaskID{PID: 1, TID: 1})
	for i := range uint64(depth) {
		k.Enter(1000+i, 1)
	}
	k.Enter(1<<30, 2)
	k.Flush()
	for i := range children {
		c := w.Task(TaskID{PID: 2 + i, TID: 2 + i, ParentPID: 1, ParentTID: 1})
		c.Enter(uint64(500000+i), 3)
		c.Flush()
	}
	tr := &Trace{}
	if err := tr.load(bytes.NewReader(b.Bytes()), int64(b.Len()), noNames); err != nil {
		t.Fatal(err)
	}
	limit := tr.inheritLimit()
	if tr.forked != children || limit < minInherited || limit > 1<<12 {
		t.Fatalf("%d children inherit at most %d calls each", tr.forked, limit)
	}
	cost.Check(t, b.Len(), 4*perByte, func() {
		rows, err := tr.Report(ReportOptions{Workers: 1})
		if err != nil || len(rows) != 3 {
			t.Errorf("%d rows, %v", len(rows), err)
		}
	})
	deep := 0
	cost.Check(t, b.Len()+children*windowSize/perByte, 8*perByte, func() {
		err = tr.Walk(WalkOptions{}, func(ev *Event) error {
			if ev.Kind == Entry && ev.Func.ID == 3 && ev.Depth == limit {
				deep++
			}
			return nil
		})
	})
	if err != nil || deep != children {
		t.Errorf("%d of %d children are %d calls deep, %v", deep, children, limit, err)
	}
}

// TestInfo writes an info.json and reads it back, and checks what is refused.
func TestInfo(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadInfo(dir); !missing(err) {
		t.Errorf("no file: %v", err)
	}
	info := &Info{Command: []string{"a", "b"}, ExitStatus: 3, Images: []Image{{ID: 0xff, Path: "/bin/a", Sites: 7}}, Clock: InfoClock{Hz: 5, Pairs: []ClockPair{{1 << 63, 2}}}}
	for range 2 { // the second replaces the first
		if err := WriteInfo(dir, info); err != nil {
			t.Fatal(err)
		}
	}
	have, err := ReadInfo(dir)
	if err != nil {
		t.Fatal(err)
	}
	if have.Version != 2 || have.Images[0].ID != 0xff || have.Clock.Pairs[0].Counter != 1<<63 || have.ExitStatus != 3 {
		t.Errorf("%+v", have)
	}
	if fs, _ := os.ReadDir(dir); len(fs) != 1 {
		t.Errorf("files left behind: %v", fs)
	}
	for text, want := range map[string]string{
		`{`:                                    "offset 1",
		`{"version":1}`:                        "record the program again",
		`{"version":3}`:                        "a newer fentry",
		`{"version":2,"pid":"x"}`:              "field pid: want int",
		`{"version":2,"images":[{"id":"12"}]}`: "16 hex digits",
		`{"version":2,"images":[{"id":"0000000000000001","sites":-1}]}`: "images[0]: -1 sites",
	} {
		if err := os.WriteFile(filepath.Join(dir, InfoFile), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadInfo(dir); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), InfoFile) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}
