//go:build linux

package drain

import (
	"slices"
	"testing"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/pool"
)

// TestWindow: what is kept of a task's chunks is the newest ones without a gap, and of these what reaches into the time
// that is asked for.
func TestWindow(t *testing.T) {
	for _, tt := range []struct {
		numbers, want []uint32
		from          uint64 // chunk n begins at 100*n
		complete      uint64
	}{
		{[]uint32{0}, []uint32{0}, 0, 0},
		{[]uint32{2, 0, 1}, []uint32{2, 1, 0}, 0, 0},
		{[]uint32{7}, []uint32{7}, 0, 700},
		{[]uint32{0, 5, 6, 7}, []uint32{7, 6, 5}, 0, 500},
		{[]uint32{0, 1, 3}, []uint32{3}, 0, 300},
		{[]uint32{5, 6, 7}, []uint32{7, 6}, 650, 500},
		{[]uint32{5, 6, 7}, []uint32{7, 6}, 699, 500},
		{[]uint32{5, 6, 7}, []uint32{7}, 700, 500},
		{[]uint32{5, 6, 7}, []uint32{7}, 9999, 500},
		{[]uint32{1, 0}, []uint32{1, 0}, 50, 0},
	} {
		var chunks []copied
		for _, n := range tt.numbers {
			var c copied
			le.PutUint32(c.head[format.CNumber:], n)
			le.PutUint64(c.head[format.CCounter:], uint64(100*n))
			chunks = append(chunks, c)
		}
		kept, complete := window(chunks, tt.from)
		var got []uint32
		for i := range kept {
			got = append(got, kept[i].number())
		}
		if !slices.Equal(got, tt.want) || complete != tt.complete {
			t.Errorf("%v from %d: %v, complete from %d, want %v and %d", tt.numbers, tt.from, got, complete, tt.want, tt.complete)
		}
	}
}

// TestWritten: a chunk that is written to is copied up to the first slot that is not whole.
func TestWritten(t *testing.T) {
	const event, exit = 5<<32 | 1, 1<<63 | 5<<32 | 2
	record := func(words int, open bool) uint64 {
		return uint64(format.Record{Type: format.RecSync, Words: words, Open: open}.ID()) << 32
	}
	for _, tt := range []struct {
		name  string
		words []uint64
		want  int
	}{
		{"nothing", []uint64{0, 0}, 0},
		{"events", []uint64{event, exit, 0, 0}, 2},
		{"all of it", []uint64{event, exit}, 2},
		{"a hole", []uint64{event, 0, exit}, 1},
		{"a record with a payload of 0", []uint64{event, record(2, false), 0, 0, exit, 0}, 5},
		{"an open record", []uint64{event, record(2, true), 1, 2, exit}, 1},
		{"a record that reaches beyond the end", []uint64{event, record(3, false), 1, 2}, 1},
	} {
		b := make([]byte, format.ChunkHeader+8*len(tt.words))
		le.PutUint32(b[format.CMagic:], format.ChunkMagic)
		for i, w := range tt.words {
			le.PutUint64(b[format.ChunkHeader+8*i:], w)
		}
		got := pool.Written(b)
		if want := format.ChunkHeader + 8*tt.want; len(got) != want || int(le.Uint32(got[format.CSize:])) != want {
			t.Errorf("%s: %d bytes, size %d, want %d", tt.name, len(got), le.Uint32(got[format.CSize:]), want)
		}
	}
}
