//go:build linux

package pool

import (
	"sync/atomic"
	"unsafe"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/trace"
)

// Task tells tasks apart, also those that had one thread id after another.
type Task struct {
	PID, TID uint32
	key      uint64
}

// TaskOf is the task that a chunk is of.
func TaskOf(b []byte) Task {
	return Task{le.Uint32(b[format.CPID:]), le.Uint32(b[format.CTID:]), le.Uint64(b[format.CKey:])}
}

// Seal makes a chunk end with its last word that is not zero, or with its last record,
// if its task did not say where it ends, and returns its size; 0: it is no chunk.
func Seal(b []byte) int {
	if le.Uint32(b[format.CMagic:]) != format.ChunkMagic {
		return 0
	}
	size := int(le.Uint32(b[format.CSize:]))
	if size >= format.ChunkHeader && size <= len(b) && size%8 == 0 {
		return size
	}
	if size != 0 {
		return 0
	}
	size = format.ChunkHeader + len(format.Contents(b[format.ChunkHeader:]))
	le.PutUint32(b[format.CSize:], uint32(size))
	return size
}

// Header is a private copy of a chunk's header. Traced processes can change the one in
// the pool at any time, also between its being checked and its being written to a file.
type Header [format.ChunkHeader]byte

// HeaderOf copies the header of a chunk that Seal said to end at used.
func HeaderOf(b []byte, used int) (h Header) {
	copy(h[:], b)
	le.PutUint32(h[format.CMagic:], format.ChunkMagic)
	le.PutUint32(h[format.CSize:], uint32(used))
	return h
}

// Kind is what the chunk holds.
func (h *Header) Kind() trace.ChunkKind { return trace.ChunkKind(le.Uint16(h[format.CKind:])) }

// Task is the task that the chunk is of.
func (h *Header) Task() Task { return TaskOf(h[:]) }

// Counter is the counter at the chunk's beginning.
func (h *Header) Counter() uint64 { return le.Uint64(h[format.CCounter:]) }

// Lost is how many events its task says it has lost.
func (h *Header) Lost() uint64 { return le.Uint64(h[format.CLost:]) }

// Image is the image id.
func (h *Header) Image() trace.ImageID { return trace.ImageID(le.Uint64(h[format.CImage:])) }

// EndThread says in an unsealed chunk, which nobody writes to any more, that its task
// has ended by the given time, if there is room.
func EndThread(b []byte, counter uint64) {
	if le.Uint32(b[format.CSize:]) != 0 || le.Uint16(b[format.CKind:]) != format.KindEvents {
		return
	}
	at := format.ChunkHeader + len(format.Contents(b[format.ChunkHeader:]))
	if at+3*8 > len(b) {
		return
	}
	head := func(r format.Record) uint64 { return uint64(r.ID())<<32 | counter&0xffffffff }
	le.PutUint64(b[at:], head(format.Record{Type: format.RecSync, Words: 1}))
	le.PutUint64(b[at+8:], counter)
	le.PutUint64(b[at+16:], head(format.Record{Type: format.RecThreadEnd}))
}

// Written copies a chunk that its task is writing to, as far as it is whole: up to the first slot that is not written
// or record that is open. The words are read one after the other, because the task goes on: if one were read before
// another that is in front of it, the copy could have the first and not the second.
func Written(b []byte) []byte {
	out := make([]byte, format.ChunkHeader, len(b))
	copy(out, b)
	for at := format.ChunkHeader; ; {
		w, end := whole(b, at)
		if end == 0 {
			break
		}
		out = le.AppendUint64(out, w)
		for at += 8; at < end; at += 8 {
			out = le.AppendUint64(out, load(b, at))
		}
	}
	le.PutUint32(out[format.CSize:], uint32(len(out)))
	return out
}

// WrittenTo is where [Written] ends. From is the header's end, or where it ended before.
func WrittenTo(b []byte, from int) int {
	for {
		_, end := whole(b, from)
		if end == 0 {
			return from
		}
		from = end
	}
}

// whole is the word at an offset, and the end of the slot or record that it begins; 0: that is not whole.
func whole(b []byte, at int) (w uint64, end int) {
	if at+8 > len(b) {
		return 0, 0
	}
	w = load(b, at)
	end = at + 8
	if r, ok := format.ParseRecord(uint32(w >> 32)); ok {
		if end += 8 * r.Words; r.Open || end > len(b) {
			return w, 0
		}
	} else if w == 0 {
		return w, 0
	}
	return w, end
}

// load reads a word that its task may be writing.
func load(b []byte, at int) uint64 { return (*atomic.Uint64)(unsafe.Pointer(&b[at])).Load() }

// CountEvents counts entries and exits: words that are neither holes nor records
// with their payload, and the begins and ends of system calls. hole is the offset of the first slot
// that is reserved and not written, -1: there is none. Nearly all words are events,
// so eight at a time are looked at for one that is not.
func CountEvents(b []byte) (n uint64, hole int) {
	hole = -1
	for size := len(b); len(b) >= 8; {
		for len(b) >= 64 && allOrdinary(b[:64:64]) {
			n += 8
			b = b[64:]
		}
		if len(b) < 8 {
			break
		}
		if hole < 0 && le.Uint64(b) == 0 {
			hole = size - len(b)
		}
		var one uint64
		one, b = countEvent(b)
		n += one
	}
	return n, hole
}

// allOrdinary tells whether eight words are.
func allOrdinary(c []byte) bool {
	return ordinary(le.Uint64(c)) && ordinary(le.Uint64(c[8:])) &&
		ordinary(le.Uint64(c[16:])) && ordinary(le.Uint64(c[24:])) &&
		ordinary(le.Uint64(c[32:])) && ordinary(le.Uint64(c[40:])) &&
		ordinary(le.Uint64(c[48:])) && ordinary(le.Uint64(c[56:]))
}

// ordinary tells whether a word is an entry or an exit, in one comparison: shifted
// by the bit that says exit, records are the largest words, and less one, so is the
// hole.
func ordinary(w uint64) bool { return w<<1-1 < (format.IDMax+1)<<33-1 }

// countEvent counts one word, and skips what belongs to it.
func countEvent(b []byte) (n uint64, rest []byte) {
	w := le.Uint64(b)
	b = b[8:]
	if ordinary(w) {
		return 1, b
	}
	if r, ok := format.ParseRecord(uint32(w >> 32)); ok {
		b = b[min(8*r.Words, len(b)):]
		if r.Type == format.RecSys {
			n = 1
		}
	}
	return n, b
}

// AtomicMagic reads a chunk's magic, which its task writes after the rest of the
// header.
func AtomicMagic(b []byte) uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&b[format.CMagic])).Load()
}
