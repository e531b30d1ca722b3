// Package tracedat writes a trace as trace-cmd does, a file trace.dat of version 6, which trace-cmd report and
// KernelShark open, as if the kernel's function_graph tracer had made it.
//
// Each thread, and each other stack that a thread ran on, is a processor of the file: it does one thing at a time and
// its calls nest, which readers rely on. Calls are funcgraph_entry and funcgraph_exit, calls of the function tracer are
// function, marks and notes of lost events are print: the kernel's own events, so filters and scripts for those work.
// Functions are the symbols in the file's kallsyms; spaces in their names, of which the reader knows none, are
// no-break spaces. Times are CLOCK_MONOTONIC, if the trace has it; else they count from its start.
package tracedat

import (
	"bufio"
	"encoding/binary"
	"io"

	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/trace"
)

// The file has all pages of one processor behind each other, and their places in front. The trace has the events of all
// threads by time. So the pages go to a spool in the order in which they fill, and from there to the file, processor by
// processor; what is kept in memory is one page of each, and the numbers of the others.

// Write writes the trace. spool is an empty file for as much as is written; it is the caller's to remove.
func Write(w io.Writer, s *export.Source, spool Spool) (sum export.Summary, err error) {
	p := &writer{
		t: s.Trace, sum: &sum, base: s.Trace.Clock.Monotonic,
		spool: spool, out: bufio.NewWriterSize(spool, 64<<10), symbols: newSymbols(s.Trace),
	}
	spans := &export.Spans{W: p, Sum: &sum}
	if err := s.Walk(s.Tasks, spans.Event); err != nil {
		return sum, err
	}
	if err := spans.Close(); err != nil {
		return sum, err
	}
	for _, b := range p.buffers {
		if b.used > 0 {
			if err := p.flush(b); err != nil {
				return sum, err
			}
		}
	}
	if err := p.out.Flush(); err != nil {
		return sum, err
	}
	b := bufio.NewWriterSize(w, 64<<10)
	if err := p.write(b); err != nil {
		return sum, err
	}
	return sum, b.Flush()
}

// A Spool is where pages wait.
type Spool interface {
	io.Writer
	io.ReaderAt
}

const (
	pageSize = 4096
	pageHead = 16 // timestamp, and size of the data
	pageData = pageSize - pageHead

	// Types of events in a page that are not their lengths in words, and the bits of their times.
	typeTimeExtend = 30
	deltaBits      = 27
	maxWords       = 28
)

// A buffer is the pages of a processor.
type buffer struct {
	page  [pageSize]byte
	used  int     // bytes of data in page
	start int64   // time of the page
	last  int64   // of its newest event
	pages []int64 // numbers of the full ones in the spool
	tid   int
}

type writer struct {
	t       *trace.Trace
	sum     *export.Summary
	base    int64
	spool   Spool
	out     *bufio.Writer
	count   int64 // pages in the spool
	buffers []*buffer
	symbols *symbols
	calls   [][]int64 // by Track.Index: when the open calls began
	event   []byte
}

// Begin is that of export.SpanWriter.
func (p *writer) Begin(k *export.Track, at int64, fn trace.FuncID) error {
	b := p.buffer(k)
	open := &p.calls[k.Index]
	ev := p.head(idEntry, b)
	ev = binary.LittleEndian.AppendUint64(ev, p.symbols.addr(fn))
	ev = binary.LittleEndian.AppendUint32(ev, uint32(len(*open)))
	*open = append(*open, at)
	return p.add(b, at, ev)
}

// End is that of export.SpanWriter.
func (p *writer) End(k *export.Track, at int64, fn trace.FuncID) error {
	b := p.buffer(k)
	open := &p.calls[k.Index]
	depth := len(*open) - 1
	ev := p.head(idExit, b)
	ev = binary.LittleEndian.AppendUint64(ev, p.symbols.addr(fn))
	ev = binary.LittleEndian.AppendUint32(ev, uint32(depth))
	ev = binary.LittleEndian.AppendUint32(ev, 0) // overrun
	ev = binary.LittleEndian.AppendUint64(ev, uint64(p.base+(*open)[depth]))
	ev = binary.LittleEndian.AppendUint64(ev, uint64(p.base+at))
	*open = (*open)[:depth]
	return p.add(b, at, ev)
}

// Note is that of export.SpanWriter.
func (p *writer) Note(k *export.Track, at int64, ev *trace.Event) error {
	b := p.buffer(k)
	if ev.Kind == trace.Entry {
		e := binary.LittleEndian.AppendUint64(p.head(idFunction, b), p.symbols.addr(ev.Func))
		var caller uint64
		if ev.Caller.ID != 0 {
			caller = p.symbols.addr(ev.Caller)
		}
		return p.add(b, at, binary.LittleEndian.AppendUint64(e, caller))
	}
	text, ok := export.NoteText(ev)
	if !ok {
		p.sum.LeaveEvent(ev)
		return nil
	}
	// Longer texts do not fit what the length of an event is said in.
	text = safetext.Line(text)
	if limit := maxWords*4 - printText - 1; len(text) > limit {
		text = text[:limit]
		p.sum.Leave("ends of long marks", 1)
	}
	e := binary.LittleEndian.AppendUint64(p.head(idPrint, b), 0)
	e = append(append(e, text...), 0)
	for len(e)%4 != 0 {
		e = append(e, 0)
	}
	return p.add(b, at, e)
}

// head begins an event with the fields that all have: the type, flags, the depth of preemption, and the thread.
func (p *writer) head(id uint16, b *buffer) []byte {
	ev := binary.LittleEndian.AppendUint16(p.event[:0], id)
	ev = append(ev, 0, 0)
	return binary.LittleEndian.AppendUint32(ev, uint32(b.tid))
}

func (p *writer) buffer(k *export.Track) *buffer {
	for k.Index >= len(p.buffers) {
		p.buffers = append(p.buffers, nil)
		p.calls = append(p.calls, nil)
	}
	if p.buffers[k.Index] == nil {
		p.buffers[k.Index] = &buffer{tid: k.Task.TID}
		p.symbols.task(k.Task)
	}
	return p.buffers[k.Index]
}

// add adds an event to a buffer.
func (p *writer) add(b *buffer, at int64, ev []byte) error {
	p.event = ev
	need := 4 + len(ev)
	if b.used > 0 && at-b.last >= 1<<deltaBits {
		need += 8
	}
	if b.used+need > pageData {
		if err := p.flush(b); err != nil {
			return err
		}
	}
	if b.used == 0 {
		b.start, b.last = at, at
	}
	delta := uint64(at - b.last)
	if delta >= 1<<deltaBits {
		b.word(uint32(delta)<<5 | typeTimeExtend)
		b.word(uint32(delta >> deltaBits))
		delta = 0
	}
	b.word(uint32(delta)<<5 | uint32(len(ev)/4))
	b.used += copy(b.page[pageHead+b.used:], ev)
	b.last = at
	return nil
}

func (b *buffer) word(v uint32) {
	binary.LittleEndian.PutUint32(b.page[pageHead+b.used:], v)
	b.used += 4
}

// flush moves the page of a buffer to the spool.
func (p *writer) flush(b *buffer) error {
	binary.LittleEndian.PutUint64(b.page[0:], uint64(p.base+b.start))
	binary.LittleEndian.PutUint64(b.page[8:], uint64(b.used))
	clear(b.page[pageHead+b.used:])
	if _, err := p.out.Write(b.page[:]); err != nil {
		return err
	}
	b.pages = append(b.pages, p.count)
	p.count++
	b.used = 0
	return nil
}
