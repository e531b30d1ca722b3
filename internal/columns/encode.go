package columns

import (
	"encoding/binary"

	"github.com/klauspost/compress/zstd"

	"github.com/fentry-dev/fentry/internal/format"
)

const (
	tableBits = 12  // of the ids whose position is known
	maxShort  = 250 // largest position that an operation has
)

// A place is an id's position in the list of ids.
type place struct{ id, at uint32 }

// An Encoder makes words smaller. Its methods must not be used at the same time.
type Encoder struct {
	zstd *zstd.Encoder

	operations, ids, records, times []byte
	open                            []uint32              // functions entered and not left
	places                          [1 << tableBits]place // by hash; of two with the same hash the newest
	list                            uint32                // length of the list of ids
}

// NewEncoder returns an encoder.
func NewEncoder() (*Encoder, error) {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithWindowSize(64<<10), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, err
	}
	return &Encoder{zstd: z}, nil
}

// Append appends the contents of a compressed chunk to b: those of an events chunk that begins at a counter, and
// whose words are words. They are a multiple of 8 bytes.
func (e *Encoder) Append(b []byte, words []byte, counter uint64) []byte {
	e.split(words, uint32(counter))
	head := len(b)
	b = append(b, make([]byte, format.CompressedHead)...)
	sizes := [...]int{len(e.operations), len(e.ids), len(e.records)}
	e.operations = append(append(append(e.operations, e.ids...), e.records...), e.times...)
	b = e.zstd.EncodeAll(e.operations, b)
	le := binary.LittleEndian
	le.PutUint32(b[head+format.ZFrame:], uint32(len(b)-head-format.CompressedHead))
	le.PutUint32(b[head+format.ZOperations:], uint32(sizes[0]))
	le.PutUint32(b[head+format.ZIds:], uint32(sizes[1]))
	le.PutUint32(b[head+format.ZRecords:], uint32(sizes[2]))
	return append(b, make([]byte, -(len(b)-head)&7)...)
}

// Chunk appends the compressed chunk that stands for a chunk of events, whose header and words are given. It appends
// nothing, and ok is false, if it would not be smaller, or is too large.
func (e *Encoder) Chunk(b []byte, head, words []byte) (_ []byte, ok bool) {
	if len(head)+len(words) > format.MostPlain {
		return b, false
	}
	le := binary.LittleEndian
	at := len(b)
	b = append(b, head...)
	b = e.Append(b, words, le.Uint64(head[format.CCounter:]))
	size := len(b) - at
	if size >= len(head)+len(words) {
		return b[:at], false
	}
	le.PutUint16(b[at+format.CKind:], format.KindCompressed)
	le.PutUint32(b[at+format.CSize:], uint32(size))
	le.PutUint32(b[at+format.CPlain:], uint32(len(head)+len(words)))
	return b, true
}

// split takes the words apart. The time of the first is compared with before.
func (e *Encoder) split(words []byte, before uint32) {
	e.operations, e.ids, e.records, e.times = e.operations[:0], e.ids[:0], e.records[:0], e.times[:0]
	e.open, e.list = e.open[:0], 0
	clear(e.places[:])
	for len(words) >= 8 {
		v := binary.LittleEndian.Uint64(words)
		words = words[8:]
		if v == 0 {
			e.operations = append(e.operations, format.ColumnHole)
			continue
		}
		e.time(uint32(v) - before)
		before = uint32(v)
		half := uint32(v >> 32)
		id := half &^ format.IDExit
		switch {
		case id-1 >= format.IDMax:
			n := min(recordWords(half), len(words)/8)
			e.operations = append(e.operations, format.ColumnRecord)
			e.records = binary.LittleEndian.AppendUint32(e.records, half)
			e.records = append(e.records, words[:8*n]...)
			words = words[8*n:]
		case half == id:
			e.open = append(e.open, id)
			e.function(format.ColumnEntryOf, id)
		default:
			innermost := uint32(0)
			if n := len(e.open); n > 0 {
				innermost, e.open = e.open[n-1], e.open[:n-1]
			}
			if innermost == id {
				e.operations = append(e.operations, format.ColumnExit)
			} else {
				e.function(format.ColumnExitOf, id)
			}
		}
	}
}

// recordWords is how many payload words follow a word with the given upper half.
func recordWords(half uint32) int {
	r, ok := format.ParseRecord(half)
	if !ok {
		return 0
	}
	return r.Words
}

// function adds an operation with an id.
func (e *Encoder) function(operation byte, id uint32) {
	le := binary.LittleEndian
	p := &e.places[id*0x9e3779b1>>(32-tableBits)]
	switch {
	case p.id != id:
		e.operations = append(e.operations, operation)
		e.ids = le.AppendUint32(le.AppendUint16(e.ids, format.NewID), id)
		if e.list < format.NewID {
			*p = place{id, e.list}
			e.list++
		}
	case operation == format.ColumnEntryOf && p.at <= maxShort:
		e.operations = append(e.operations, format.ColumnEntry+byte(p.at))
	default:
		e.operations = append(e.operations, operation)
		e.ids = le.AppendUint16(e.ids, uint16(p.at))
	}
}

// time adds a difference of times.
func (e *Encoder) time(d uint32) {
	switch {
	case d < format.DeltaTwo:
		e.times = append(e.times, byte(d))
	case d < 1<<16:
		e.times = append(e.times, format.DeltaTwo, byte(d), byte(d>>8))
	case d < 1<<24:
		e.times = append(e.times, format.DeltaThree, byte(d), byte(d>>8), byte(d>>16))
	default:
		e.times = binary.LittleEndian.AppendUint32(append(e.times, format.DeltaFour), d)
	}
}
