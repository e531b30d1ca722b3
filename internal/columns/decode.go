package columns

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"github.com/fentry-dev/fentry/internal/format"
)

// A Decoder makes words of what an Encoder has made. Its methods must not be used at the same time.
type Decoder struct {
	zstd    *zstd.Decoder
	columns []byte
	open    []uint32
	list    []uint32

	operations, ids, records, times []byte // what is left of them
}

// maxWindow is more than the columns of the largest chunk take.
const maxWindow = 1 << 20

// NewDecoder returns a decoder.
func NewDecoder() (*Decoder, error) {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, err
	}
	return &Decoder{zstd: z}, nil
}

// Decode fills words, whose size is a multiple of 8, with those of the chunk that begins at a counter and has the given
// contents. An error says which column is not what it should be.
func (d *Decoder) Decode(words []byte, contents []byte, counter uint64) error {
	if err := d.expand(len(words), contents); err != nil {
		return err
	}
	if err := d.join(words, uint32(counter)); err != nil {
		return err
	}
	for _, c := range []struct {
		name string
		left []byte
	}{{"operations", d.operations}, {"ids", d.ids}, {"records", d.records}, {"times", d.times}} {
		if len(c.left) != 0 {
			return fmt.Errorf("column of %s: %d bytes too many", c.name, len(c.left))
		}
	}
	return nil
}

// expand decodes the frame of a chunk of so many bytes of words, and cuts it into columns.
func (d *Decoder) expand(words int, contents []byte) error {
	if len(contents) < format.CompressedHead {
		return fmt.Errorf("%d bytes, without the sizes of columns", len(contents))
	}
	le := binary.LittleEndian
	frame := uint64(le.Uint32(contents[format.ZFrame:]))
	if frame > uint64(len(contents)-format.CompressedHead) {
		return fmt.Errorf("frame of %d bytes in %d", frame, len(contents)-format.CompressedHead)
	}
	if room := words / 8 * format.MostColumns; cap(d.columns) < room {
		d.columns = make([]byte, 0, room)
	}
	// The capacity is the limit, of what is decoded and so of what is allocated.
	b, err := d.zstd.DecodeAll(contents[format.CompressedHead:][:frame], d.columns[:0:words/8*format.MostColumns])
	if err != nil {
		return fmt.Errorf("zstd frame: %w", err)
	}
	cut := func(field int) []byte {
		n := uint64(le.Uint32(contents[field:]))
		if n > uint64(len(b)) {
			err = fmt.Errorf("column of %d bytes in %d", n, len(b))
			return nil
		}
		column := b[:n]
		b = b[n:]
		return column
	}
	d.operations, d.ids, d.records = cut(format.ZOperations), cut(format.ZIds), cut(format.ZRecords)
	d.times = b
	return err
}

var (
	errWords   = errors.New("columns are of another number of words")
	errIDs     = errors.New("column of ids: an id is missing or not in the list")
	errRecords = errors.New("column of records: too short")
	errTimes   = errors.New("column of times: too short, or a difference of unknown size")
)

// join puts the columns together. The difference of the first time is to before.
func (d *Decoder) join(words []byte, before uint32) error {
	d.open, d.list = d.open[:0], d.list[:0]
	le := binary.LittleEndian
	for i, op := range d.operations {
		if len(words) < 8 {
			d.operations = d.operations[i:]
			return errWords
		}
		if op == format.ColumnHole {
			le.PutUint64(words, 0)
			words = words[8:]
			continue
		}
		// One byte is all that most differences take.
		if len(d.times) > 0 && d.times[0] < format.DeltaTwo {
			before += uint32(d.times[0])
			d.times = d.times[1:]
		} else if delta, ok := d.time(); ok {
			before += delta
		} else {
			return errTimes
		}
		half, ok := uint32(0), true
		switch {
		case op == format.ColumnRecord:
			n := d.record(words, &half)
			if n < 0 {
				return errRecords
			}
			le.PutUint64(words, uint64(half)<<32|uint64(before))
			words = words[8+8*n:]
			continue
		case op == format.ColumnExit && len(d.open) > 0:
			half = d.open[len(d.open)-1] | format.IDExit
			d.open = d.open[:len(d.open)-1]
		case op == format.ColumnExitOf:
			half, ok = d.id()
			half |= format.IDExit
			d.open = d.open[:max(0, len(d.open)-1)]
		case op >= format.ColumnEntry && int(op-format.ColumnEntry) < len(d.list):
			half = d.list[op-format.ColumnEntry]
			d.open = append(d.open, half)
		case op == format.ColumnEntryOf:
			half, ok = d.id()
			d.open = append(d.open, half)
		default:
			ok = false
		}
		if !ok {
			return errIDs
		}
		le.PutUint64(words, uint64(half)<<32|uint64(before))
		words = words[8:]
	}
	d.operations = nil
	if len(words) != 0 {
		return errWords
	}
	return nil
}

// record takes a record from its column, and writes its payload behind the first of words. It returns how many words
// that has, or -1.
func (d *Decoder) record(words []byte, half *uint32) int {
	if len(d.records) < 4 {
		return -1
	}
	*half = binary.LittleEndian.Uint32(d.records)
	n := min(recordWords(*half), len(words)/8-1)
	if len(d.records) < 4+8*n {
		return -1
	}
	copy(words[8:], d.records[4:4+8*n])
	d.records = d.records[4+8*n:]
	return n
}

// id takes an id from its column. ok is false if there is none, or it is no function's.
func (d *Decoder) id() (id uint32, ok bool) {
	le := binary.LittleEndian
	if len(d.ids) < 2 {
		return 0, false
	}
	at := int(le.Uint16(d.ids))
	d.ids = d.ids[2:]
	if at != format.NewID {
		if at >= len(d.list) {
			return 0, false
		}
		return d.list[at], true
	}
	if len(d.ids) < 4 {
		return 0, false
	}
	id = le.Uint32(d.ids)
	d.ids = d.ids[4:]
	if len(d.list) < format.NewID {
		d.list = append(d.list, id)
	}
	return id, id-1 < format.IDMax
}

// time takes a difference of more than a byte from its column.
func (d *Decoder) time() (delta uint32, ok bool) {
	if len(d.times) == 0 {
		return 0, false
	}
	n := 0
	switch d.times[0] {
	case format.DeltaTwo:
		n = 2
	case format.DeltaThree:
		n = 3
	case format.DeltaFour:
		n = 4
	default:
		return 0, false
	}
	if len(d.times) < 1+n {
		return 0, false
	}
	for i := n; i > 0; i-- {
		delta = delta<<8 | uint32(d.times[i])
	}
	d.times = d.times[1+n:]
	return delta, true
}
