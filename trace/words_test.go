package trace

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/format"
)

// decode decodes one chunk of the given words that begins at counter start.
func decode(start uint64, window int, words ...uint64) string {
	b := appendChunkHeader(nil, ChunkEvents, TaskID{Image: 1}, 0, start, 0)
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	d := (&Trace{file: bytes.NewReader(b)}).newDecoder([]chunkRef{{size: uint32(len(b))}}, make([]byte, window))
	d.chunks[0].counter = start
	var s strings.Builder
	var w word
	for d.next(&w) {
		switch w.code {
		case wEntry:
			fmt.Fprintf(&s, "%#x+%d ", w.t, w.fn.ID)
		case wExit:
			fmt.Fprintf(&s, "%#x-%d ", w.t, w.fn.ID)
		case wComm, wMark:
			n := d.note(w.arg)
			fmt.Fprintf(&s, "%#x:%s(%d %q) ", w.t, codeNames[w.code], n.value, n.text)
		case wSysEnter, wSysExit:
			c := *d.note(w.arg).sys
			fmt.Fprintf(&s, "%#x:%s(%d %#x %t", w.t, codeNames[w.code], int64(c.Value), c.Args, c.Open)
			for _, m := range c.Data {
				fmt.Fprintf(&s, " %d@%#x %d/%d %q", m.Arg, m.Address, m.Flags, m.Asked, m.Bytes)
			}
			s.WriteString(") ")
		case wSignal:
			fmt.Fprintf(&s, "%#x:signal%+v ", w.t, *d.note(w.arg).signal)
		default:
			fmt.Fprintf(&s, "%#x:%s(%d) ", w.t, codeNames[w.code], w.arg)
		}
	}
	return strings.TrimSpace(s.String())
}

var codeNames = map[uint8]string{
	wLost: "lost", wResync: "resync", wStack: "stack", wFork: "fork", wStart: "start", wThreadEnd: "end",
	wComm: "comm", wMark: "mark", wSysEnter: "sys", wSysExit: "ret", wCut: "cut", wUnknown: "unknown",
}

func entry(low uint32, id uint64) uint64  { return id<<32 | uint64(low) }
func exitOf(low uint32, id uint64) uint64 { return 1<<63 | id<<32 | uint64(low) }

// record is the header of a record.
func record(low uint32, typ uint8, words int) uint64 {
	return uint64(format.Record{Type: typ, Words: words}.ID())<<32 | uint64(low)
}

// open is the header of a record that is still open.
func opened(head uint64) uint64 { return head | format.RecordOpen<<32 }

func TestDecode(t *testing.T) {
	for _, c := range []struct {
		name  string
		start uint64
		words []uint64
		want  string
	}{
		{"plain", 0x5_00000010, []uint64{entry(0x20, 7), exitOf(0x30, 7)}, "0x500000020+7 0x500000030-7"},
		{"holes", 0x5_00000010, []uint64{0, entry(0x20, 7), 0, 0, exitOf(0x30, 7), 0}, "0x500000020+7 0x500000030-7"},
		{"largest id", 0, []uint64{entry(1, format.IDMax), exitOf(2, format.IDMax)}, "0x1+2147352575 0x2-2147352575"},
		{"announced wrap", 0x5_ffffff00, []uint64{entry(0xffffff10, 7), record(0x20, format.RecSync, 1), 0x6_00000020, exitOf(0x20, 7)}, "0x5ffffff10+7 0x600000020-7"},
		{"announced, many wraps", 0x5_00000000, []uint64{record(0x20, format.RecSync, 1), 0x99_00000020, exitOf(0x20, 7)}, "0x9900000020-7"},
		{"announced, back again", 0x5_ffffff00, []uint64{record(0x20, format.RecSync, 1), 0x6_00000020, entry(0x20, 7), record(0xffffff80, format.RecSync, 1), 0x5_ffffff80, entry(0xffffff80, 8)}, "0x600000020+7 0x5ffffff80+8"},
		{"most of a wrap, no change of the high half", 0x5_00000010, []uint64{entry(0x20, 7), exitOf(0xf0000000, 7)}, "0x500000020+7 0x5f0000000-7"},
		{"older", 0x5_00001000, []uint64{entry(0x2000, 7), exitOf(0x1f00, 8), exitOf(0x3000, 7)}, "0x500002000+7 0x500001f00-8 0x500003000-7"},
		{"older than the chunk", 0x5_00001000, []uint64{entry(0x20, 7), exitOf(0x1f00, 7)}, "0x500000020+7 0x500001f00-7"},
		{"older than the chunk by wraps", 0x5_00001000, []uint64{record(0x20, format.RecSync, 1), 0x2_00000020, entry(0x20, 7), record(0x30, format.RecSync, 1), 0x5_00001010, exitOf(0x1010, 7)}, "0x200000020+7 0x500001010-7"},
		{"from before the half", 0x5_00000100, []uint64{entry(0x200, 7), exitOf(0xffffff00, 8), exitOf(0x300, 7)}, "0x500000200+7 0x4ffffff00-8 0x500000300-7"},
		{"from before the half, behind a hole", 0x5_00000100, []uint64{entry(0x200, 7), exitOf(0xffffff00, 8), 0, exitOf(0x300, 7)}, "0x500000200+7 0x4ffffff00-8 0x500000300-7"},
		{"idle for nearly a whole wrap", 0x5_00000010, []uint64{entry(0x20, 7), exitOf(0xfffffff0, 7), entry(0xfffffff8, 7)}, "0x500000020+7 0x5fffffff0-7 0x5fffffff8+7"},
		{"every record", 0x10, []uint64{
			record(0x11, format.RecLost, 1), 5, record(0x12, format.RecResync, 1), 6, record(0x13, format.RecStack, 1), 0,
			record(0x14, format.RecFork, 1), 9<<32 | 8, record(0x15, format.RecStart, 0), record(0x16, format.RecComm, 2), 0x41, 0,
			record(0x17, format.RecThreadEnd, 0), record(0x18, format.RecMark, 1), 1 << 63, record(0x19, format.RecMark, 3), 7, 0x4443424142434445, 0x46,
		}, `0x11:lost(5) 0x12:resync(6) 0x13:stack(0) 0x14:fork(38654705672) 0x15:start(0) 0x16:comm(0 "A") 0x17:end(0) ` +
			`0x18:mark(9223372036854775808 "") 0x19:mark(7 "EDCBABCDF")`},
		{"payload behind the end", 0x10, []uint64{record(0x11, format.RecStack, 1)}, "0x11:stack(0)"},
		{"less payload than known", 0x10, []uint64{record(0x11, format.RecComm, 1), 0x41, record(0x12, format.RecMark, 0), entry(0x13, 1)},
			`0x11:comm(0 "A") 0x12:mark(0 "") 0x13+1`},
		{"more payload than known", 0x10, []uint64{record(0x11, format.RecStack, 3), 2, entry(1, 1), entry(1, 1), record(0x12, format.RecThreadEnd, 1), 5<<32 | 1, entry(0x13, 1)},
			"0x11:stack(2) 0x12:end(21474836481) 0x13+1"},
		{"unknown", 0x10, []uint64{record(0x11, 12, 2), entry(1, 5), exitOf(2, 5), record(0x12, 127, 0), record(0x13, 0, 1), record(1, format.RecStack, 9), entry(0x14, 1)},
			"0x11:unknown(12) 0x12:unknown(127) 0x13:unknown(0) 0x14+1"},
		{"unknown, longer than the chunk", 0x10, []uint64{entry(0x11, 1), record(0x12, 12, 255), entry(1, 5)}, "0x11+1 0x12:unknown(12)"},
		{"open", 0x10, []uint64{opened(record(0x11, format.RecStack, 1)), 0, opened(record(0x12, format.RecMark, 3)), 7, 0x41, 0, opened(record(0x13, 99, 1)), 5<<32 | 1, entry(0x14, 1)},
			"0x11:cut(19) 0x12:cut(24) 0x13:cut(99) 0x14+1"},
		{"open, nothing behind", 0x10, []uint64{entry(0x11, 1), opened(record(0x12, format.RecMark, 200))}, "0x11+1 0x12:cut(24)"},
		{"sync not finished", 0x5_00000010, []uint64{opened(record(0x11, format.RecSync, 1)), 0, entry(0x12, 1)}, "0x500000011:cut(16) 0x500000012+1"},
		{"words that mean nothing", 0x10, []uint64{entry(0x11, 0x7fff0009), exitOf(0x12, 0x7fff0001), entry(0x13, 0), exitOf(0x14, 0), entry(0x15, 1)}, "0x11:unknown(128) 0x12:unknown(128) 0x13:unknown(128) 0x14:unknown(128) 0x15+1"},
	} {
		for _, window := range []int{4096, 136, 8 * 17} {
			if have := decode(c.start, window, c.words...); have != c.want {
				t.Errorf("%s, window of %d:\nhave %s\nwant %s", c.name, window, have, c.want)
			}
		}
	}
}

// TestWindows checks that the window's size does not show, with payloads across
// every border.
func TestWindows(t *testing.T) {
	words := []uint64{}
	for i := range uint32(2000) {
		words = append(words, entry(16+8*i, 1), record(17+8*i, format.RecMark, 1), uint64(i), exitOf(18+8*i, 1), record(19+8*i, format.RecComm, 2), 0x41, 0x42,
			record(20+8*i, 5, 3), 1, 2, 3, record(21+8*i, format.RecMark, 4), 0, 0x4847464544434241, 0x4847464544434241, 0x41)
	}
	want := decode(0x10, 1<<20, words...)
	for window := ChunkHeaderSize; window < ChunkHeaderSize+80; window += 8 {
		if have := decode(0x10, window, words...); have != want {
			t.Fatalf("window of %d: other events", window)
		}
	}
}

// TestWriterRoundTrip checks that what a TaskWriter writes is what comes back,
// over many chunks, wraps of the counter's low half included.
func TestWriterRoundTrip(t *testing.T) {
	var want []string
	dir := buildHeader(t, Header{Counter: 1, CounterHz: 1e9, ChunkSize: minChunkSize}, func(w *Writer) {
		k := w.Task(TaskID{PID: 7, TID: 7, Image: testImage})
		now := uint64(0xff00_0000)
		for i := range uint32(5000) {
			k.Enter(now, i%26+1)
			want = append(want, fmt.Sprint(now, "+", i%26+1))
			now += uint64(i%7) * 0x1100_0000
			k.Mark(now, uint64(i), strings.Repeat("x", int(i%3000)))
			want = append(want, fmt.Sprint(now, "m", i, " ", min(i%3000, maxMark)))
			k.Exit(now, i%26+1)
			want = append(want, fmt.Sprint(now, "-", i%26+1))
			now += 3
		}
		if err := k.Flush(); err != nil {
			t.Fatal(err)
		}
	})
	tr := open(t, dir)
	if n := len(tr.Tasks[0].chunks); n < 40 {
		t.Fatalf("%d chunks, want many", n)
	}
	d := tr.newDecoder(tr.Tasks[0].chunks, make([]byte, windowSize))
	var have []string
	var w word
	for d.next(&w) {
		switch w.code {
		case wEntry:
			have = append(have, fmt.Sprint(w.t, "+", w.fn.ID))
		case wExit:
			have = append(have, fmt.Sprint(w.t, "-", w.fn.ID))
		case wMark:
			n := d.note(w.arg)
			have = append(have, fmt.Sprint(w.t, "m", n.value, " ", len(n.text)))
		default:
			t.Fatalf("code %d", w.code)
		}
	}
	if d := cmp.Diff(want, have); d != "" {
		t.Error(d)
	}
}
