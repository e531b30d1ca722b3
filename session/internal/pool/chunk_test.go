//go:build linux

package pool

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/fentry-dev/fentry/internal/format"
)

// The payload of records is not counted, whether they are known or open.
func TestCountEvents(t *testing.T) {
	for _, r := range []format.Record{{Type: 0}, {Type: 3, Words: 1}, {Type: format.RecSys, Words: 7}, {Type: format.RecSys, Words: 1, Exit: true, Open: true}, {Type: format.RecComm, Words: 2}, {Type: format.RecMark, Words: 13, Open: true}, {Type: 127, Words: 255}} {
		name, words, own := fmt.Sprintf("%+v", r), r.Words, uint64(0)
		if r.Type == format.RecSys {
			own = 1
		}
		ev := le.AppendUint64(nil, uint64(r.ID())<<32|1)
		for range words {
			ev = le.AppendUint64(ev, 5<<32|1) // would count as an event
		}
		ev = le.AppendUint64(ev, 6<<32|1)
		// At every place within the words that are looked at together.
		var head []byte
		for i := range uint64(20) {
			b := append(bytes.Clone(head), ev...)
			if n, hole := CountEvents(b); n != i+1+own || hole >= 0 {
				t.Errorf("%s behind %d events: %d counted, want %d; hole %d", name, i, n, i+1+own, hole)
			}
			at := len(b)
			b = append(b, make([]byte, 16)...)
			if n, hole := CountEvents(append(b, head...)); n != 2*i+1+own || hole != at {
				t.Errorf("%s behind %d events, with a hole at %d: %d counted, want %d; hole %d", name, i, at, n, 2*i+1+own, hole)
			}
			head = le.AppendUint64(head, 1<<63|7<<32|2)
		}
	}
}

// countSlowly says again, simply, what countEvents counts.
func countSlowly(b []byte) (n uint64) {
	for len(b) >= 8 {
		w := le.Uint64(b)
		b = b[8:]
		switch id := w >> 32 &^ (1 << 31); {
		case id>>16 == 0x7ffe:
			if id>>8&0x7f == format.RecSys {
				n++
			}
			b = b[min(8*int(id&255), len(b)):]
		case id < 0x7ffe0000 && w&^(1<<63) != 0:
			n++
		}
	}
	return n
}

func TestSeal(t *testing.T) {
	b := make([]byte, format.ChunkSize)
	if Seal(b) != 0 {
		t.Error("an empty chunk is sealed")
	}
	le.PutUint32(b, format.ChunkMagic)
	if n := Seal(b); n != format.ChunkHeader || le.Uint32(b[format.CSize:]) != format.ChunkHeader {
		t.Errorf("%d", n)
	}
	le.PutUint32(b[format.CSize:], 0)
	b[format.ChunkHeader+83] = 1
	if n := Seal(b); n != format.ChunkHeader+88 {
		t.Errorf("%d", n)
	}
	// A record of zeros is part of the chunk.
	le.PutUint32(b[format.CSize:], 0)
	le.PutUint64(b[format.ChunkHeader+88:], uint64(format.Record{Type: 5, Words: 4}.ID())<<32)
	if n := Seal(b); n != format.ChunkHeader+88+40 {
		t.Errorf("%d", n)
	}
	for _, size := range []uint32{1, format.ChunkHeader - 8, format.ChunkHeader + 4, format.ChunkSize + 8} {
		le.PutUint32(b[format.CSize:], size)
		if n := Seal(b); n != 0 {
			t.Errorf("size %d is accepted as %d", size, n)
		}
	}
}

func TestEndThread(t *testing.T) {
	b := make([]byte, format.ChunkSize)
	le.PutUint32(b, format.ChunkMagic)
	le.PutUint16(b[format.CKind:], format.KindEvents)
	le.PutUint64(b[format.ChunkHeader:], 5<<32|1)
	EndThread(b, 7<<32|9)
	want := []uint64{5<<32 | 1, 0x7ffe1001<<32 | 9, 7<<32 | 9, 0x7ffe1700<<32 | 9, 0}
	for i, w := range want {
		if have := le.Uint64(b[format.ChunkHeader+8*i:]); have != w {
			t.Errorf("word %d is %#x, want %#x", i, have, w)
		}
	}
	if n := Seal(b); n != format.ChunkHeader+4*8 {
		t.Errorf("the chunk ends at %d", n)
	}
	sealed := bytes.Clone(b)
	if EndThread(b, 99); !bytes.Equal(b, sealed) {
		t.Error("a sealed chunk is changed")
	}
	le.PutUint32(b[format.CSize:], 0)
	le.PutUint64(b[len(b)-24:], 1)
	full := bytes.Clone(b)
	if EndThread(b, 99); !bytes.Equal(b, full) {
		t.Error("a full chunk is changed")
	}
}
