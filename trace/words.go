package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/fentry-dev/fentry/internal/format"
)

// A word is one decoded event of a task: what the file says, without meaning.
type word struct {
	t    uint64 // counter
	arg  uint64 // payload: count, number, parent
	fn   FuncID // Func.ID 0: not an entry or exit
	code uint8  // see below
}

// Codes of a word. Reserved events keep their code, shifted.
const (
	wEntry = iota
	wExit
	wCall     // an entry of the function tracer, which records no exits
	wGap      // chunks are missing before this point
	wReserved // + code of the reserved id
)

const (
	wLost      = wReserved + format.EvLost - format.ReservedBase
	wResync    = wReserved + format.EvResync - format.ReservedBase
	wStack     = wReserved + format.EvStack - format.ReservedBase
	wFork      = wReserved + format.EvFork - format.ReservedBase
	wStart     = wReserved + format.EvStart - format.ReservedBase
	wComm      = wReserved + format.EvComm - format.ReservedBase
	wThreadEnd = wReserved + format.EvThreadEnd - format.ReservedBase
	wMark      = wReserved + format.EvMark - format.ReservedBase
)

// windowSize is how much of a chunk is in memory at a time.
const windowSize = 64 << 10

// A decoder streams the words of one task. It reads through a window: memory
// does not grow with the trace.
type decoder struct {
	r      io.ReaderAt
	chunks []chunkRef
	buf    []byte // the window's memory

	win       []byte // what is left of the window
	off, end  int64  // rest of the chunk behind the window
	number    uint32 // of the next chunk, when there is no gap
	image     uint32
	flat      []bool // images whose tracer records entries only
	entry     uint8  // code of an entry: wEntry or wCall
	high      uint64 // high half of the counter
	last      uint64 // counter of the newest event
	comm      [16]byte
	commIsNew bool  // comm changed with the chunk
	bad       int64 // words that mean nothing
	err       error
}

// newDecoder returns a decoder of a task's chunks whose window is buf.
func (t *Trace) newDecoder(chunks []chunkRef, buf []byte) *decoder {
	return &decoder{r: t.file, chunks: chunks, flat: t.flat, buf: buf}
}

// next decodes the next word into w. It returns false at the end.
func (d *decoder) next(w *word) bool {
	for {
		if len(d.win) < 8 {
			gap, ok := d.fill()
			if !ok {
				return false
			}
			if gap {
				*w = word{t: d.last, code: wGap}
				return true
			}
			continue
		}
		v := binary.LittleEndian.Uint64(d.win)
		d.win = d.win[8:]
		if v == 0 {
			continue // a hole: reserved, never written
		}
		t := d.high | v&0xffffffff
		if t-d.last >= 1<<31 && t > d.last {
			t = d.jump(t)
		}
		d.last = t
		id := uint32(v >> 32)
		if fn := id &^ (1 << 31); fn-1 < format.ReservedBase-1 {
			w.t = t
			w.fn = FuncID{d.image, fn}
			w.code = d.entry
			if id>>31 != 0 {
				w.code = wExit
			}
			return true
		}
		if d.reserved(w, id) {
			return true
		}
	}
}

// jump looks at an event that seems to lie more than half a wrap behind the one
// before it. The runtime announces every change of the counter's high half, so
// that is what it mostly is: the task did nothing for so long. But an event that
// was stamped just before such a change, interrupted by a signal handler whose
// events announced it, and only then written, belongs to the half before. The
// event behind it tells.
func (d *decoder) jump(t uint64) uint64 {
	if next, ok := d.peek(); ok && next < uint32(t) && t >= 1<<32 {
		return t - 1<<32
	}
	return t
}

// peek returns the counter's low half in the next word, if that is at hand and
// an entry or exit.
func (d *decoder) peek() (low uint32, ok bool) {
	for b := d.win; len(b) >= 8; b = b[8:] {
		if v := binary.LittleEndian.Uint64(b); v != 0 {
			id := uint32(v>>32) &^ (1 << 31)
			return uint32(v), id-1 < format.ReservedBase-1
		}
	}
	return 0, false
}

// reserved decodes a reserved event's payload. It returns false when there is
// nothing to report.
func (d *decoder) reserved(w *word, id uint32) bool {
	code := id - format.ReservedBase
	if id < format.ReservedBase || code >= uint32(len(format.EventWords)) {
		d.bad++
		return false
	}
	var payload [2]uint64
	for i := range format.EventWords[code] {
		payload[i] = d.payload()
	}
	switch id {
	case format.EvSync:
		// A killed writer leaves a zero payload.
		if payload[0] != 0 {
			d.high = payload[0] &^ 0xffffffff
			d.last = payload[0]
		}
		return false
	case format.EvComm:
		binary.LittleEndian.PutUint64(d.comm[:], payload[0])
		binary.LittleEndian.PutUint64(d.comm[8:], payload[1])
	}
	*w = word{t: d.last, arg: payload[0], code: uint8(wReserved + code)}
	return true
}

// payload returns the next word of the chunk, whatever it is; 0 behind its end.
func (d *decoder) payload() uint64 {
	if len(d.win) < 8 && !d.more() {
		return 0
	}
	v := binary.LittleEndian.Uint64(d.win)
	d.win = d.win[8:]
	return v
}

// more moves the window forward in the same chunk.
func (d *decoder) more() bool {
	n := min(int64(len(d.buf)), d.end-d.off)
	if n < 8 {
		return false
	}
	got, err := d.r.ReadAt(d.buf[:n], d.off)
	if err != nil && !errors.Is(err, io.EOF) {
		d.err = fmt.Errorf("offset %#x: %w", d.off, err)
	}
	d.win = d.buf[:got&^7]
	d.off += n
	if got < int(n) {
		d.off = d.end // the file has become shorter
	}
	return len(d.win) >= 8
}

// fill moves the window forward, to the next chunk if need be. gap reports that
// chunks are missing before the new one.
func (d *decoder) fill() (gap, ok bool) {
	for {
		if d.more() {
			return false, true
		}
		if d.err != nil || len(d.chunks) == 0 {
			return false, false
		}
		c := d.chunks[0]
		d.chunks = d.chunks[1:]
		d.off, d.end = c.off, c.off+int64(c.size)
		if c.size < ChunkHeaderSize || !d.more() || len(d.win) < ChunkHeaderSize {
			d.win, d.off = nil, d.end
			continue
		}
		if comm := [16]byte(d.win[format.CComm:]); comm != d.comm && comm != [16]byte{} {
			d.comm, d.commIsNew = comm, true
		}
		d.win = d.win[ChunkHeaderSize:]
		d.image, d.entry = c.image, wEntry
		if int(c.image) < len(d.flat) && d.flat[c.image] {
			d.entry = wCall
		}
		d.high, d.last = c.counter&^0xffffffff, c.counter
		gap = c.number > d.number
		d.number = c.number + 1
		return gap, true
	}
}
