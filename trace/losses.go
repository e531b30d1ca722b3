package trace

import (
	"encoding/binary"
	"math"

	"github.com/fentry-dev/fentry/internal/format"
)

// Losses say what programs did that their trace does not show. Everything that a program made is in the trace, among
// the events counted here, or fell into the time Uncounted.
type Losses struct {
	// Events is the number of events that were lost, as far as they were counted.
	Events uint64
	// Overwritten is the number of events that were given up for newer ones, as PolicyOverwrite asks for.
	Overwritten uint64
	// Gaps is the number of places where whole chunks of a task are missing. With PolicyOverwrite, what was in them
	// is counted by Overwritten; else the number of their events is not known.
	Gaps int
	// Uncounted is the time in which events were lost whose number is not known; nil: there is none.
	Uncounted *Interval
}

// An Interval is a part of a trace's time, in ns since its start.
type Interval struct {
	From, To int64 // To is NoEnd if the end is not known
}

// NoEnd is the end of an [Interval] that goes on after all that is known.
const NoEnd = math.MaxInt64

// Losses returns what is missing from the trace.
func (t *Trace) Losses() Losses {
	l := Losses{Events: t.Lost, Overwritten: t.Header.Overwritten}
	for _, k := range t.Tasks {
		l.Gaps += k.Gaps
	}
	h := &t.Header
	if h.Uncounted != 0 {
		l.Uncounted = &Interval{From: max(t.Clock.Time(h.UncountedFrom), 0), To: NoEnd}
		if h.UncountedTo > h.UncountedFrom {
			l.Uncounted.To = max(t.Clock.Time(h.UncountedTo), l.Uncounted.From)
		}
	}
	if t.Ending == EndMissing && h.Layout == LayoutPacked {
		from := t.unrecordedFrom()
		if l.Uncounted != nil {
			from = min(from, l.Uncounted.From)
		}
		l.Uncounted = &Interval{From: from, To: NoEnd}
	}
	return l
}

// unrecordedFrom returns from when on events can be missing if the memory that tasks wrote to was lost: since the
// newest chunk of a task that goes on began, or, if there is no such task, from the end of the newest chunk.
func (t *Trace) unrecordedFrom() int64 {
	oldest, newest := uint64(math.MaxUint64), t.Header.Counter
	for _, k := range t.Tasks {
		if len(k.chunks) == 0 {
			continue
		}
		last := k.chunks[len(k.chunks)-1]
		newest = max(newest, last.counter)
		if !t.endsThread(last) {
			oldest = min(oldest, last.counter)
		}
	}
	if oldest == math.MaxUint64 {
		oldest = newest
	}
	return t.Clock.Time(oldest)
}

// endsThread tells whether the last record of a chunk says that its task has ended.
func (t *Trace) endsThread(c chunkRef) bool {
	var b [8]byte
	size := int64(c.size)
	if size < ChunkHeaderSize+int64(len(b)) {
		return false
	}
	if _, err := t.file.ReadAt(b[:], c.off+size-int64(len(b))); err != nil {
		return false
	}
	r, ok := format.ParseRecord(uint32(binary.LittleEndian.Uint64(b[:]) >> 32))
	return ok && r.Type == format.RecThreadEnd && r.Words == 0
}
