package format

import (
	"encoding/binary"
	"testing"
)

func TestRecord(t *testing.T) {
	for _, r := range []Record{{}, {Type: 1}, {Type: 127, Words: 255, Open: true}, {Type: RecMark, Words: 3},
		{Type: RecSys, Words: 1, Exit: true}, {Type: RecSys, Words: 7, Open: true, Exit: true}} {
		id := r.ID()
		if have, ok := ParseRecord(id); !ok || have != r {
			t.Errorf("%+v is read back as %+v, %v", r, have, ok)
		}
		if id := id &^ IDExit; id <= IDMax || id >= 0x7fff0000 {
			t.Errorf("%+v has id %#x", r, id)
		}
	}
	for _, id := range []uint32{0, 1, IDMax, 0x7fff0000, 0x7fffffff, 1<<31 | 5} {
		if r, ok := ParseRecord(id); ok {
			t.Errorf("id %#x is record %+v", id, r)
		}
	}
}

func TestContents(t *testing.T) {
	record := func(words int) uint64 { return uint64(Record{Type: 9, Words: words}.ID())<<32 | 1 }
	call := uint64(3<<32 | 1)
	for name, c := range map[string]struct {
		words []uint64
		want  int
	}{
		"empty":                       {nil, 0},
		"zeros":                       {[]uint64{0, 0}, 0},
		"calls":                       {[]uint64{call, 0, call, 0, 0}, 3},
		"record of zeros":             {[]uint64{call, record(3), 0, 0, 0, 0}, 5},
		"record without payload":      {[]uint64{record(0), 0}, 1},
		"record longer than there is": {[]uint64{record(200), 0, 0}, 3},
		"a record in a payload":       {[]uint64{record(1), record(3), 0, 0, 0}, 2},
	} {
		var b []byte
		for _, w := range c.words {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
		if n := len(Contents(b)); n != 8*c.want {
			t.Errorf("%s: %d bytes, want %d words", name, n, c.want)
		}
		if n := len(Contents(append(b, 0, 0, 0))); n > len(b) || n < 8*c.want {
			t.Errorf("%s, and half a word: %d bytes", name, n)
		}
	}
}
