// Package ctf writes a trace in the Common Trace Format, version 1.8, which babeltrace2 and Trace Compass read: a
// directory with the file metadata, which describes the others in TSDL, and a stream a track.
//
// A stream is the calls of one stack of one thread. Its packets say in their context whose calls these are (vpid, vtid
// and procname, as LTTng calls them, and stack), so that the events in them take 13 bytes each. What was lost there is
// in the packets' events_discarded, and readers warn of it. Functions are the labels of an enumeration. Times are those
// of the realtime clock, or begin with 0 if the trace does not tell it.
//
//	func_entry  a call of func begins; with args, if arguments of it were recorded
//	func_exit   it ends; with result, if that was recorded
//	func        a call of which only the beginning was recorded
//	mark        a text
//	note        a signal, what a trigger did, a function that was switched off
//	backtrace   the stack at a call of func: count functions in frames, the innermost first, and why there are no more
package ctf

import (
	"encoding/binary"
	"fmt"
	"os"

	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/trace"
)

// magic begins each packet; behind it is the context that the metadata describes. These are where its fields are that
// are only known at a packet's end.
const (
	magic       = 0xc1fc1fc1
	sizesAt     = 4 // content_size and packet_size, in bits
	endAt       = sizesAt + 16 + 8
	discardedAt = endAt + 8
)

// Numbers of the events.
const (
	eventEntry = iota
	eventExit
	eventOnly
	eventMark
	eventEntryArgs // these two are called as those without values
	eventExitResult
	eventNote
	eventBacktrace
)

// packetSize is how many bytes of a track make a packet, allBuffered how many of all tracks are kept in memory.
const (
	packetSize  = 64 << 10
	allBuffered = 64 << 20
)

// Write writes the files into the empty directory dir.
func Write(dir *os.Root, s *export.Source) (sum export.Summary, err error) {
	w := writer{dir: dir, t: s.Trace, sum: &sum, used: map[byte]bool{eventMark: true}}
	w.numbers.Make = func(id trace.FuncID) uint32 {
		w.functions = append(w.functions, id)
		return uint32(len(w.functions) - 1)
	}
	for _, k := range s.Tasks {
		w.streams = w.streams[:0]
		spans := &export.Spans{W: &w, Sum: &sum, Values: true}
		if err := s.Walk([]*trace.Task{k}, spans.Event); err != nil {
			return sum, err
		}
		if err := spans.Close(); err != nil {
			return sum, err
		}
		if err := w.flushAll(); err != nil {
			return sum, err
		}
		w.before += len(w.streams) // numbers of tracks begin again with each task
	}
	return sum, w.writeMetadata()
}

// A stream is a track's file.
type stream struct {
	number    int
	packet    []byte // empty, or a packet with its head
	discarded uint64
	last      uint64
}

type writer struct {
	dir       *os.Root
	t         *trace.Trace
	sum       *export.Summary
	streams   []*stream // of the task at hand, by Track.Index
	before    int       // streams of the tasks before
	buffered  int
	functions []trace.FuncID // by their numbers
	numbers   export.Cache[uint32]
	used      map[byte]bool // events that the metadata describes beside those of all calls
}

// Begin is that of export.SpanWriter.
func (w *writer) Begin(k *export.Track, at int64, fn trace.FuncID) error {
	return w.callWith(k, at, eventEntry, eventEntryArgs, fn)
}

// End is that of export.SpanWriter.
func (w *writer) End(k *export.Track, at int64, fn trace.FuncID) error {
	return w.callWith(k, at, eventExit, eventExitResult, fn)
}

// Note is that of export.SpanWriter.
func (w *writer) Note(k *export.Track, at int64, ev *trace.Event) error {
	switch {
	case ev.Kind == trace.Entry:
		return w.call(k, at, eventOnly, ev.Func)
	case ev.Kind == trace.Lost && ev.Count > 0:
		return w.lost(k, at, ev.Count)
	}
	text, ok := export.NoteText(w.t, ev)
	if !ok {
		w.sum.LeaveEvent(ev)
		return nil
	}
	if frames, end := export.Backtrace(w.t, ev); frames != nil {
		return w.backtrace(k, at, ev.Func, frames, end)
	}
	number := byte(eventMark)
	if ev.Kind != trace.Mark && ev.Kind != trace.Lost {
		number = eventNote
	}
	w.used[number] = true
	return w.event(k, at, number, appendString(nil, text))
}

// appendString appends a text as a string of the format, which ends with a zero byte.
func appendString(b []byte, s string) []byte { return append(append(b, safetext.Line(s)...), 0) }

// backtrace appends the event of a stack.
func (w *writer) backtrace(
	k *export.Track, at int64, fn trace.FuncID, frames []trace.SourceFrame, end string,
) error {
	w.used[eventBacktrace] = true
	b := binary.LittleEndian.AppendUint32(nil, w.numbers.Get(fn))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(frames)))
	for _, f := range frames {
		b = appendString(b, f.Name)
	}
	return w.event(k, at, eventBacktrace, appendString(b, end))
}

// callWith appends an event of a function, of the number with if there are values of it.
func (w *writer) callWith(k *export.Track, at int64, number, with byte, fn trace.FuncID) error {
	if k.Event != nil && export.HasValues(k.Event) {
		if text := export.AppendValues(nil, w.t, k.Event); len(text) > 0 {
			w.used[with] = true
			b := binary.LittleEndian.AppendUint32(nil, w.numbers.Get(fn))
			return w.event(k, at, with, appendString(b, string(text)))
		}
	}
	return w.call(k, at, number, fn)
}

// call appends an event of a function.
func (w *writer) call(k *export.Track, at int64, number byte, fn trace.FuncID) error {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], w.numbers.Get(fn))
	return w.event(k, at, number, b[:])
}

func (w *writer) stream(k *export.Track) *stream {
	for len(w.streams) <= k.Index {
		w.streams = append(w.streams, &stream{number: w.before + len(w.streams)})
	}
	return w.streams[k.Index]
}

// event appends an event to its track's packet.
func (w *writer) event(k *export.Track, at int64, number byte, payload []byte) error {
	s := w.stream(k)
	before := len(s.packet)
	s.last = uint64(max(at, 0))
	if before == 0 {
		s.begin(k)
	}
	s.packet = append(s.packet, number)
	s.packet = binary.LittleEndian.AppendUint64(s.packet, s.last)
	s.packet = append(s.packet, payload...)
	w.buffered += len(s.packet) - before
	switch {
	case len(s.packet) >= packetSize:
		return w.flush(s)
	case w.buffered >= allBuffered:
		return w.flushAll()
	}
	return nil
}

// lost counts lost events: a reader takes the difference of two packets, so one ends here and another begins, even if it
// has no events.
func (w *writer) lost(k *export.Track, at int64, n uint64) error {
	s := w.stream(k)
	s.last = uint64(max(at, 0))
	if len(s.packet) == 0 {
		s.begin(k)
		w.buffered += len(s.packet)
	}
	if err := w.flush(s); err != nil {
		return err
	}
	s.discarded += n
	s.begin(k)
	w.buffered += len(s.packet)
	return nil
}

// begin writes a packet's head but for what is known at its end.
func (s *stream) begin(k *export.Track) {
	b := binary.LittleEndian.AppendUint32(s.packet[:0], magic)
	b = append(b, make([]byte, 16)...)
	b = binary.LittleEndian.AppendUint64(b, s.last)
	b = append(b, make([]byte, 16)...)
	b = binary.LittleEndian.AppendUint32(b, uint32(k.Task.PID))
	b = binary.LittleEndian.AppendUint32(b, uint32(k.Task.TID))
	b = binary.LittleEndian.AppendUint64(b, k.Stack)
	s.packet = append(append(b, safetext.Line(export.TaskName(k.Task))...), 0)
}

// flushAll writes the packets of all tracks.
func (w *writer) flushAll() error {
	for _, s := range w.streams {
		if err := w.flush(s); err != nil {
			return err
		}
	}
	return nil
}

// flush writes a track's packet.
func (w *writer) flush(s *stream) (err error) {
	if len(s.packet) == 0 {
		return nil
	}
	bits := uint64(len(s.packet)) * 8
	binary.LittleEndian.PutUint64(s.packet[sizesAt:], bits)
	binary.LittleEndian.PutUint64(s.packet[sizesAt+8:], bits)
	binary.LittleEndian.PutUint64(s.packet[endAt:], s.last)
	binary.LittleEndian.PutUint64(s.packet[discardedAt:], s.discarded)
	f, err := w.dir.OpenFile(fmt.Sprintf("stream_%d", s.number), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	_, err = f.Write(s.packet)
	w.buffered -= len(s.packet)
	s.packet = s.packet[:0]
	return err
}
