package columns

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/fentry-dev/fentry/internal/format"
)

func words(vs ...uint64) (b []byte) {
	for _, v := range vs {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

func entry(t uint32, id uint64) uint64 { return id<<32 | uint64(t) }
func exit(t uint32, id uint64) uint64  { return 1<<63 | entry(t, id) }

func record(t uint32, typ uint8, n int) uint64 {
	return entry(t, uint64(format.Record{Type: typ, Words: n}.ID()))
}

func codec(t testing.TB) (*Encoder, *Decoder) {
	e, err := NewEncoder()
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	return e, d
}

// calls are n words of a program that calls some functions again and again.
func calls(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	var b []byte
	var open []uint64
	t := uint32(0xfffff000)
	for range n {
		t += 40 + r.Uint32N(30)
		if len(open) > 20 || len(open) > 0 && r.IntN(2) == 0 {
			b = append(b, words(exit(t, open[len(open)-1]))...)
			open = open[:len(open)-1]
		} else {
			open = append(open, 1+uint64(r.IntN(40)))
			b = append(b, words(entry(t, open[len(open)-1]))...)
		}
	}
	return b
}

var wordTests = []struct {
	name  string
	words []byte
}{
	{"nothing", nil},
	{"one", words(entry(7, 1))},
	{"calls", calls(8000)},
	{"exits of what was open before", words(exit(1, 5), exit(2, 6), entry(3, 5), exit(4, 5))},
	{"an exit of an outer call", words(entry(1, 5), entry(2, 6), exit(3, 5), exit(4, 6))},
	{"holes", words(0, entry(1, 5), 0, 0, exit(4, 5), 0)},
	{"times of each size, and backwards", words(entry(250, 1), entry(501, 1), entry(502+65535, 1),
		entry(503+65535+1<<24, 1), entry(0xfffffff0, 1), entry(2, 1), entry(1, 1))},
	{"records", words(record(9, format.RecSync, 1), 1<<40, record(9, format.RecStart, 0), entry(10, 3),
		record(11, format.RecMark, 3), 0, 0, ^uint64(0), exit(12, 3))},
	{"a record that is cut off", words(entry(1, 1), record(9, format.RecMark, 200), 5)},
	{"no function and no record", words(entry(5, 0), exit(6, 0), entry(7, 0x7fff0000), exit(8, 0x7fffffff))},
	{"the first and last id", words(entry(5, 1), entry(6, format.IDMax), exit(6, format.IDMax), exit(6, 1))},
	{"all others", func() (b []byte) {
		for i := range uint64(70_000) {
			b = append(b, words(entry(uint32(i), 1+i), entry(uint32(i), 1+i%3000), exit(uint32(i), 1+i/2))...)
		}
		return b
	}()},
}

// What was taken apart is put together as it was.
func TestRoundTrip(t *testing.T) {
	e, d := codec(t)
	for _, test := range wordTests {
		b := e.Append([]byte("before"), test.words, 0xfffffff00)
		contents, ok := bytes.CutPrefix(b, []byte("before"))
		if !ok || len(contents)%8 != 0 {
			t.Fatalf("%s: %d bytes behind %.10q", test.name, len(contents), b)
		}
		got := bytes.Repeat([]byte{0xaa}, len(test.words))
		if err := d.Decode(got, contents, 0xfffffff00); err != nil || !bytes.Equal(got, test.words) {
			t.Errorf("%s: %v\n% x\nwant\n% x", test.name, err, got[:min(80, len(got))], test.words[:min(80, len(got))])
		}
	}
}

// A call takes less than a quarter of its two words.
func TestSize(t *testing.T) {
	e, _ := codec(t)
	b := calls(8000)
	if got := len(e.Append(nil, b, 0)); got > len(b)/4 {
		t.Errorf("%d bytes of %d", got, len(b))
	}
}

// contents is a compressed chunk of the given columns.
func contents(t testing.TB, operations, ids, records, times []byte) []byte {
	var out bytes.Buffer // a stream, because a frame that is encoded as a whole asks for a window of its size
	z, err := zstd.NewWriter(&out, zstd.WithWindowSize(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	_, err = z.Write(bytes.Join([][]byte{operations, ids, records, times}, nil))
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	frame := out.Bytes()
	b := make([]byte, format.CompressedHead)
	for at, n := range map[int]int{
		format.ZFrame: len(frame), format.ZOperations: len(operations), format.ZIds: len(ids), format.ZRecords: len(records),
	} {
		binary.LittleEndian.PutUint32(b[at:], uint32(n))
	}
	return append(b, frame...)
}

// Columns that do not fit together are refused, and what a frame makes of few bytes is bounded by the words.
func TestRefused(t *testing.T) {
	_, d := codec(t)
	bytesOf := func(b ...byte) []byte { return b }
	bomb := bytes.Repeat([]byte{format.ColumnHole}, 64<<20)
	flipped := contents(t, bytesOf(format.ColumnHole), nil, nil, nil)
	flipped[len(flipped)-1] ^= 1
	long := contents(t, bytesOf(format.ColumnHole), nil, nil, nil)
	binary.LittleEndian.PutUint32(long[format.ZFrame:], ^uint32(0))
	window := contents(t, bytesOf(format.ColumnHole), nil, nil, nil)
	window[format.CompressedHead+5] = 0xff // the frame's window descriptor: 3.75 TiB
	wide := contents(t, bytesOf(format.ColumnHole), nil, nil, nil)
	binary.LittleEndian.PutUint32(wide[format.ZIds:], ^uint32(0))
	for _, test := range []struct {
		name     string
		words    int
		contents []byte
		want     string
	}{
		{"empty", 1, nil, "0 bytes, without the sizes of columns"},
		{"a frame that is too long", 1, long, "frame of 4294967295 bytes in"},
		{"a checksum", 1, flipped, "zstd frame"},
		{"a column that is too long", 1, wide, "column of 4294967295 bytes in 0"},
		{"a bomb", 8176, contents(t, bomb, nil, nil, nil), "zstd frame: "},
		{"a frame that asks for memory", 1, window, "zstd frame: " + zstd.ErrWindowSizeExceeded.Error()},
		{"too few words", 2, contents(t, bytesOf(format.ColumnHole), nil, nil, nil), "another number of words"},
		{"too many words", 1, contents(t, bytesOf(format.ColumnHole, format.ColumnHole), nil, nil, nil), "another number of words"},
		{"no time", 1, contents(t, bytesOf(format.ColumnExit), nil, nil, nil), "column of times"},
		{"half a time", 1, contents(t, bytesOf(format.ColumnExit), nil, nil, bytesOf(format.DeltaTwo, 1)), "column of times"},
		{"an unknown time", 1, contents(t, bytesOf(format.ColumnExit), nil, nil, bytesOf(254)), "column of times"},
		{"a time too many", 1, contents(t, bytesOf(format.ColumnHole), nil, nil, bytesOf(1)), "column of times: 1 bytes too many"},
		{"an exit of nothing", 1, contents(t, bytesOf(format.ColumnExit), nil, nil, bytesOf(1)), "column of ids"},
		{"a position without a list", 1, contents(t, bytesOf(format.ColumnEntry), nil, nil, bytesOf(1)), "column of ids"},
		{"a position behind the list", 1, contents(t, bytesOf(format.ColumnEntryOf), bytesOf(0, 0), nil, bytesOf(1)), "column of ids"},
		{"no id", 1, contents(t, bytesOf(format.ColumnExitOf), nil, nil, bytesOf(1)), "column of ids"},
		{"half an id", 1, contents(t, bytesOf(format.ColumnEntryOf), bytesOf(0xff, 0xff, 1), nil, bytesOf(1)), "column of ids"},
		{"an id of none", 1, contents(t, bytesOf(format.ColumnEntryOf), bytesOf(0xff, 0xff, 0, 0, 0, 0), nil, bytesOf(1)), "column of ids"},
		{"half a record", 1, contents(t, bytesOf(format.ColumnRecord), nil, bytesOf(1), bytesOf(1)), "column of records"},
		{"a record without payload", 2, contents(t, bytesOf(format.ColumnRecord), nil,
			binary.LittleEndian.AppendUint32(nil, format.Record{Type: format.RecSync, Words: 1}.ID()), bytesOf(1)), "column of records"},
	} {
		err := d.Decode(make([]byte, 8*test.words), test.contents, 0)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
	small, w := contents(t, bomb, nil, nil, nil), make([]byte, 8)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := d.Decode(w, small, 0)
	runtime.ReadMemStats(&after)
	if err == nil || after.TotalAlloc-before.TotalAlloc > 1<<20 {
		t.Errorf("a bomb: %v, %d bytes allocated", err, after.TotalAlloc-before.TotalAlloc)
	}
}

// FuzzDecode looks for contents that the decoder does not refuse and yet are no words, and for panics.
func FuzzDecode(f *testing.F) {
	e, d := codec(f)
	for _, test := range wordTests {
		if len(test.words) < 1<<10 {
			f.Add(e.Append(nil, test.words, 0), uint16(len(test.words)/8))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, n uint16) {
		w := make([]byte, 8*int(n))
		if d.Decode(w, b, 5) != nil {
			return
		}
		again := make([]byte, len(w))
		if err := d.Decode(again, e.Append(nil, w, 5), 5); err != nil || !bytes.Equal(again, w) {
			t.Errorf("%v\n% x\nwant\n% x", err, again, w)
		}
	})
}

// FuzzRoundTrip looks for words that are not the same afterwards.
func FuzzRoundTrip(f *testing.F) {
	e, d := codec(f)
	for _, test := range wordTests {
		if len(test.words) < 1<<10 {
			f.Add(test.words, uint64(5))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, counter uint64) {
		b = b[:len(b)&^7]
		got := make([]byte, len(b))
		if err := d.Decode(got, e.Append(nil, b, counter), counter); err != nil || !bytes.Equal(got, b) {
			t.Errorf("%v\n% x\nwant\n% x", err, got, b)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	e, _ := codec(b)
	w := calls(8176)
	var out []byte
	b.SetBytes(int64(len(w)))
	for b.Loop() {
		out = e.Append(out[:0], w, 0)
	}
}

func BenchmarkDecode(b *testing.B) {
	e, d := codec(b)
	w := calls(8176)
	c := e.Append(nil, w, 0)
	b.SetBytes(int64(len(w)))
	for b.Loop() {
		if err := d.Decode(w, c, 0); err != nil {
			b.Fatal(err)
		}
	}
}
