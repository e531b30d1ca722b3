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
		default:
			fmt.Fprintf(&s, "%#x:%d(%d) ", w.t, w.code-wReserved, w.arg)
		}
	}
	if d.bad > 0 {
		fmt.Fprintf(&s, "bad:%d", d.bad)
	}
	return strings.TrimSpace(s.String())
}

func entry(low uint32, id uint64) uint64   { return id<<32 | uint64(low) }
func exitOf(low uint32, id uint64) uint64  { return 1<<63 | id<<32 | uint64(low) }
func special(low uint32, id uint64) uint64 { return (format.ReservedBase+id)<<32 | uint64(low) }

func TestDecode(t *testing.T) {
	for _, c := range []struct {
		name  string
		start uint64
		words []uint64
		want  string
	}{
		{"plain", 0x5_00000010, []uint64{entry(0x20, 7), exitOf(0x30, 7)}, "0x500000020+7 0x500000030-7"},
		{"holes", 0x5_00000010, []uint64{0, entry(0x20, 7), 0, 0, exitOf(0x30, 7), 0}, "0x500000020+7 0x500000030-7"},
		{"largest id", 0, []uint64{entry(1, format.ReservedBase-1), exitOf(2, format.ReservedBase-1)}, "0x1+2147418111 0x2-2147418111"},
		{"announced wrap", 0x5_ffffff00, []uint64{entry(0xffffff10, 7), special(0x20, 0), 0x6_00000020, exitOf(0x20, 7)}, "0x5ffffff10+7 0x600000020-7"},
		{"announced, many wraps", 0x5_00000000, []uint64{special(0x20, 0), 0x99_00000020, exitOf(0x20, 7)}, "0x9900000020-7"},
		{"announced, back again", 0x5_ffffff00, []uint64{special(0x20, 0), 0x6_00000020, entry(0x20, 7), special(0xffffff80, 0), 0x5_ffffff80, entry(0xffffff80, 8)}, "0x600000020+7 0x5ffffff80+8"},
		{"most of a wrap, no change of the high half", 0x5_00000010, []uint64{entry(0x20, 7), exitOf(0xf0000000, 7)}, "0x500000020+7 0x5f0000000-7"},
		{"older", 0x5_00001000, []uint64{entry(0x2000, 7), exitOf(0x1f00, 8), exitOf(0x3000, 7)}, "0x500002000+7 0x500001f00-8 0x500003000-7"},
		{"older than the chunk", 0x5_00001000, []uint64{entry(0x20, 7), exitOf(0x1f00, 7)}, "0x500000020+7 0x500001f00-7"},
		{"older than the chunk by wraps", 0x5_00001000, []uint64{special(0x20, 0), 0x2_00000020, entry(0x20, 7), special(0x30, 0), 0x5_00001010, exitOf(0x1010, 7)}, "0x200000020+7 0x500001010-7"},
		{"from before the half", 0x5_00000100, []uint64{entry(0x200, 7), exitOf(0xffffff00, 8), exitOf(0x300, 7)}, "0x500000200+7 0x4ffffff00-8 0x500000300-7"},
		{"from before the half, behind a hole", 0x5_00000100, []uint64{entry(0x200, 7), exitOf(0xffffff00, 8), 0, exitOf(0x300, 7)}, "0x500000200+7 0x4ffffff00-8 0x500000300-7"},
		{"idle for nearly a whole wrap", 0x5_00000010, []uint64{entry(0x20, 7), exitOf(0xfffffff0, 7), entry(0xfffffff8, 7)}, "0x500000020+7 0x5fffffff0-7 0x5fffffff8+7"},
		{"every reserved event", 0x10, []uint64{
			special(0x11, 1), 5, special(0x12, 2), 6, special(0x13, 3), 0, special(0x14, 4), 9<<32 | 8, special(0x15, 5),
			special(0x16, 6), 0x41, 0, special(0x17, 7), special(0x18, 8), 1 << 63,
		}, "0x11:1(5) 0x12:2(6) 0x13:3(0) 0x14:4(38654705672) 0x15:5(0) 0x16:6(65) 0x17:7(0) 0x18:8(9223372036854775808)"},
		{"payload not written before the kill", 0x10, []uint64{special(0x11, 3)}, "0x11:3(0)"},
		{"sync not finished", 0x5_00000010, []uint64{special(0x11, 0), 0, entry(0x12, 1)}, "0x500000012+1"},
		{"words that mean nothing", 0x10, []uint64{entry(0x11, 0x7fff0009), exitOf(0x12, 0x7fff0001), entry(0x13, 0), exitOf(0x14, 0), entry(0x15, 1)}, "0x15+1 bad:4"},
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
		words = append(words, entry(16+8*i, 1), special(17+8*i, 8), uint64(i), exitOf(18+8*i, 1), special(19+8*i, 6), 0x41, 0x42)
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
			k.Mark(now, uint64(i))
			want = append(want, fmt.Sprint(now, "m", i))
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
			have = append(have, fmt.Sprint(w.t, "m", w.arg))
		default:
			t.Fatalf("code %d", w.code)
		}
	}
	if d := cmp.Diff(want, have); d != "" {
		t.Error(d)
	}
}
